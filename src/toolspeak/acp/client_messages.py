"""What an editor sends: the parameters of its requests in the Agent Client Protocol, version 1."""

from __future__ import annotations

from typing import Any

import msgspec

PROTOCOL_VERSION = 1


class _Params(msgspec.Struct, rename="camel", frozen=True):
    """JsonObject are in camelCase on the wire. Unknown fields are ignored, as the protocol asks."""


class FileAccess(_Params, frozen=True):
    """Which files the editor reads and writes for the agent, unsaved ones included."""

    read_text_file: bool | None = False
    write_text_file: bool | None = False


class Elicitation(_Params, frozen=True):
    """Which questions of MCP servers the editor shows: forms, addresses. An empty object is a yes."""

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class ClientCapabilities(_Params, frozen=True):
    """What the editor offers."""

    fs: FileAccess | None = None
    terminal: bool | None = False
    elicitation: Elicitation | None = None

    @property
    def reads(self) -> bool:
        return self.fs is not None and bool(self.fs.read_text_file)

    @property
    def writes(self) -> bool:
        return self.fs is not None and bool(self.fs.write_text_file)


class Implementation(_Params, frozen=True):
    """The editor's name."""

    name: str = ""
    title: str | None = None
    version: str = ""


class InitializeParams(_Params, frozen=True):
    protocol_version: int
    client_capabilities: ClientCapabilities | None = None
    client_info: Implementation | None = None


class AuthenticateParams(_Params, frozen=True):
    method_id: str


class NamedValue(_Params, frozen=True):
    """An environment variable, or an HTTP header."""

    name: str
    value: str


class ServerEntry(_Params, frozen=True):
    """An MCP server: a program (without `type`), or an address (`http` or `sse`)."""

    name: str
    type: str = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[NamedValue, ...] = ()
    url: str = ""
    headers: tuple[NamedValue, ...] = ()


class SessionParams(_Params, frozen=True):
    """Of a session that is made, loaded, resumed or forked. A new one has no id."""

    cwd: str
    session_id: str = ""
    mcp_servers: tuple[ServerEntry, ...] | None = None
    additional_directories: tuple[str, ...] | None = None


class SessionIdParams(_Params, frozen=True):
    """Of a session that is closed, deleted or interrupted."""

    session_id: str


class ListParams(_Params, frozen=True):
    cwd: str | None = None
    additional_directories: tuple[str, ...] | None = None
    cursor: str | None = None


class ModeParams(_Params, frozen=True):
    session_id: str
    mode_id: str


class ConfigOptionParams(_Params, frozen=True):
    session_id: str
    config_id: str
    value: str | bool


class PromptBlock(_Params, frozen=True):
    """A piece of a prompt: `text`, `image`, `audio`, `resource` (with its content) or `resource_link`."""

    type: str
    text: str = ""
    data: str = ""
    mime_type: str | None = None
    uri: str | None = None
    name: str = ""
    resource: ResourceContents | None = None


class ResourceContents(_Params, frozen=True):
    """A file as the editor has it: its text, or its bytes in base64."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class PromptParams(_Params, frozen=True):
    session_id: str
    prompt: tuple[PromptBlock, ...]


class Steering(_Params, frozen=True):
    """`idle_behavior`: "promptRequired" if the editor itself begins a turn with a message that comes too late."""

    idle_behavior: str = ""


class SteeringMeta(_Params, frozen=True):
    steering: Steering = Steering()


class SteeringParams(PromptParams, frozen=True):
    """Of `_session/steering`, an extension of the protocol that several agents and editors share: a message for the
    turn that is under way."""

    meta: SteeringMeta = msgspec.field(default=SteeringMeta(), name="_meta")


# What the editor answers


class PermissionOutcome(_Params, frozen=True):
    """`selected` with the option, or `cancelled`."""

    outcome: str
    option_id: str | None = None


class PermissionAnswer(_Params, frozen=True):
    outcome: PermissionOutcome


class ElicitationAnswer(_Params, frozen=True):
    """`accept` with the fields of a form, `decline`, or `cancel`."""

    action: str
    content: dict[str, Any] | None = None


class FileText(_Params, frozen=True):
    content: str


class TerminalCreated(_Params, frozen=True):
    terminal_id: str


class TerminalExit(_Params, frozen=True):
    exit_code: int | None = None
    signal: str | None = None


class TerminalText(_Params, frozen=True):
    output: str
    truncated: bool = False
    exit_status: TerminalExit | None = None
