"""The settings of a run's agent, as the run's first record holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any, Literal

import msgspec

from toolspeak.data.messages import JSON, no_extra
from toolspeak.data.values import quick
from toolspeak.dialects import Section
from toolspeak.dialects.base import PromptListing
from toolspeak.errors import ConfigurationError
from toolspeak.execute import AfterWeb, ScheduleName
from toolspeak.providers.configured_providers import ConfiguredProvider
from toolspeak.sandbox.base import SandboxMode

ApproveOption = Literal["ask", "all", "all+repaired", "none"]


@quick()
class Setup:
    """The settings of a run's agent. The run's first record holds them, so that `resume` uses them again."""

    model: str
    dialect: str
    workspace: str
    approve: ApproveOption
    schedule: ScheduleName | Literal["native"]
    starts_in: Section
    listing: PromptListing | None = None
    repair: Literal["yes", "no"] = "no"
    code_mode: Literal["yes", "no"] = "no"
    """Whether the model calls tools from programs that it writes."""
    rules: str = ""
    window: int | None = None
    prices: str = ""
    mcp: str = ""
    record: str = ""
    """The file of the run's cassette."""
    recording: str = ""
    """The cassette's id."""
    env: str = ""
    """Names of environment variables, with spaces between them."""
    active_file: str = ""
    folders: tuple[str, ...] = ()
    """Folders that the tools use besides the workspace, by absolute paths."""
    aliases: Mapping[str, str] = field(default_factory=no_extra)
    """Short names of models, which sub-agents may use."""
    providers: Mapping[str, ConfiguredProvider] = field(default_factory=no_extra)
    """The user's own providers, by name."""
    instructions: str = ""
    """What the model reads besides toolspeak's own instructions."""
    surroundings: str = ""
    """What the model reads of the folder, the system and the date; "" for nothing."""
    mcp_servers: Mapping[str, JSON] = field(default_factory=no_extra)
    """MCP servers besides those of the file `mcp`, as the table of such a file."""
    hooks: Mapping[str, JSON] = field(default_factory=no_extra)
    """Commands that run on events, as the table of the configuration."""
    tools: tuple[str, ...] = ()
    """Places of the user's own Python tools."""
    tool_folders: tuple[str, ...] = ()
    """Where their modules are."""
    price_table: Mapping[str, JSON] = field(default_factory=no_extra)
    """Prices besides those of the file `prices`, as the object of such a file."""
    theme: Mapping[str, str] = field(default_factory=no_extra)
    """Looks of the terminal's styles, by name."""
    sandbox: SandboxMode | Literal[""] = ""
    """Whether commands need a sandbox. "": they do unless a person can be asked."""
    allow_net: tuple[str, ...] = ()
    """The hosts that commands may reach, as `HostRule.parse` reads them; "all" is every host."""
    sandbox_write: tuple[str, ...] = ()
    """Files and folders outside the workspace that commands may change."""
    sandbox_read: tuple[str, ...] = ()
    """Files and folders that commands may read although a sandbox hides them."""
    defer: str = ""
    """Tools of which the model reads the names alone: "auto", patterns of names with commas between them, "" or "none"
    for none."""
    memory: Literal["yes", "no"] = "no"
    """Whether the model reads and keeps facts about the user (`tools.builtin.memory`)."""
    unasked_reads: Literal["yes", "no"] = "no"
    """Whether a command that only reads, in a sandbox and without the network, runs without a question."""

    web: Literal["yes", "no"] = "no"
    """Whether the tool `fetch` is there."""
    search: str = ""
    """The provider of the tool `search`, as `search_provider_of` reads it; "" for no such tool."""
    web_allow: tuple[str, ...] = ()
    """The internal hosts that `fetch` may reach, as `HostRule.parse` reads them."""
    robots: Literal["yes", "no"] = "no"
    """Whether robots.txt decides what `fetch` may read."""
    after_web: AfterWeb | Literal[""] = ""
    """What may change once the run has read the web. "": "allow" if a person can be asked, else "ask"."""

    def as_json(self) -> dict[str, JSON]:
        """The settings as JSON, with absolute paths: the run may be resumed from another folder."""
        setup_json: dict[str, Any] = msgspec.to_builtins(self)
        return {
            **setup_json,
            "model": with_absolute_path(self.model),
            "workspace": str(Path(self.workspace).resolve()),
        }

    @classmethod
    def of(cls, run_id: str, setup_json: Mapping[str, JSON]) -> Setup:
        """The settings of a run, from its first record. A field that the record lacks has its default.

        Raises ConfigurationError for a run of another program, and for settings that this version does not know.
        """
        known_fields = {each.name for each in fields(cls)}
        if not {"model", "workspace", "approve"} <= setup_json.keys():
            raise ConfigurationError(
                f"run {run_id} was not started by `toolspeak run`: resume it with the program that started it"
            )
        unknown_names = [name for name in setup_json if name not in known_fields]
        try:
            if unknown_names:  # to leave a setting out could run what it forbids
                raise ValueError(f"unknown settings: {', '.join(unknown_names)}")
            return msgspec.convert(dict(setup_json), cls)
        except ValueError as error:
            raise ConfigurationError(
                f"the settings of run {run_id} are not those of this version of toolspeak ({error}): "
                "resume it with the version that started it"
            ) from None


def with_absolute_path(model: str) -> str:
    """The model string, valid in any folder."""
    kind, _, name = model.partition(":")
    return f"{kind}:{Path(name).resolve()}" if kind == "scripted" else model
