"""Resources and prompts of a server: as tools for the model, and prompts for the person."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import Protocol, TypeVar

from mcp import Client, types

from toolspeak.data.messages import ContentPart, FilePart, ImagePart, JsonPart, Message, TextPart
from toolspeak.data.tools import EVERYTHING, NO_VERSION, Effects
from toolspeak.data.values import quick
from toolspeak.mcp.call_results import part_of, resource_part
from toolspeak.mcp.mcp_tools import tool_name
from toolspeak.tools import Tool, tool
from toolspeak.tools.files.text_format import visible

_MOST_LISTED = 500
"""The most resources of one answer, and the most prompts of a server."""

_MOST_NAMED = 50
"""The most prompts that the description of the tool for prompts names."""

_DESCRIPTION = 200
"""Characters of a description in a list."""

# A resource is read where the server is, which may be anywhere.
_READS = Effects(reads={EVERYTHING}, external=True, idempotent=True, destructive=False, version=NO_VERSION)

_T = TypeVar("_T")


class AskServer(Protocol):
    """Does some work with the connection to the server. Raises ToolError."""

    def __call__(self, work: Callable[[Client], Awaitable[_T]], /) -> Awaitable[_T]: ...


@quick()
class PromptField:
    """An argument of a server's prompt."""

    name: str
    description: str = ""
    required: bool = False


@quick()
class ServerPrompt:
    """A prompt that a server offers, for a person to choose. The texts are the server's.

    - `command`: a name for it in letters, digits, `_` and `-`: `server__prompt`.
    """

    server: str
    name: str
    command: str
    description: str = ""
    fields: tuple[PromptField, ...] = ()


async def list_prompts(client: Client) -> Sequence[types.Prompt]:
    """The server's prompts. Raises MCPError and ValidationError."""
    prompts: list[types.Prompt] = []
    cursor: str | None = None
    while len(prompts) < _MOST_LISTED:
        page = await client.list_prompts(cursor=cursor, cache_mode="bypass")
        prompts += page.prompts
        if page.next_cursor is None or not page.prompts:
            break
        cursor = page.next_cursor
    return prompts[:_MOST_LISTED]


def prompts_of(server: str, prompts: Sequence[types.Prompt]) -> tuple[ServerPrompt, ...]:
    """The prompts of a server as values."""
    commands: dict[str, None] = {}
    values: list[ServerPrompt] = []
    for each in prompts:
        command = tool_name(server, each.name, commands)
        commands[command] = None
        fields = tuple(
            PromptField(field.name, field.description or "", bool(field.required)) for field in each.arguments or ()
        )
        values.append(ServerPrompt(server, each.name, command, each.description or each.title or "", fields))
    return tuple(values)


async def prompt_messages(client: Client, name: str, arguments: Mapping[str, str]) -> tuple[Message, ...]:
    """The messages of a prompt. Raises MCPError and ValidationError."""
    result = await client.get_prompt(name, dict(arguments))
    return tuple(Message(each.role, (part_of(each.content),)) for each in result.messages)


def resource_tools(
    server: str,
    ask: AskServer,
    names: Container[str],
    *,
    has_resources: bool,
    prompts: Sequence[types.Prompt],
    timeout: float | None,
) -> list[Tool]:
    """The tools for a server's resources and prompts."""

    async def list_resources(cursor: str | None = None) -> str:
        return await ask(lambda client: _resource_list(client, cursor))

    async def read_resource(uri: str) -> list[ContentPart]:
        result = await ask(lambda client: client.read_resource(uri, cache_mode="bypass"))
        return [resource_part(each) for each in result.contents]

    async def get_prompt(name: str, arguments: dict[str, str] | None = None) -> list[ContentPart]:
        messages = await ask(lambda client: prompt_messages(client, name, arguments or {}))
        parts: list[ContentPart] = []
        for message in messages:
            parts.append(TextPart(f"[{message.role}]\n"))
            parts += [part for part in message.parts if isinstance(part, TextPart | JsonPart | ImagePart | FilePart)]
        return parts

    tools: list[Tool] = []
    functions: list[tuple[Callable[..., Awaitable[object]], str]] = []
    if has_resources:
        functions = [
            (list_resources, "Lists the server's resources, and the templates of their addresses."),
            (read_resource, "Reads one of the server's resources, by its address (uri)."),
        ]
    if prompts:
        functions.append(
            (get_prompt, f"Returns a prompt that the server has prepared. There are:\n{_summary(prompts)}")
        )
    for function, description in functions:
        name = tool_name(server, function.__name__, names)
        tools.append(tool(function, name=name, description=description, effects=_READS, timeout=timeout))
    return tools


async def _resource_list(client: Client, cursor: str | None) -> str:
    page = await client.list_resources(cursor=cursor, cache_mode="bypass")
    lines = [_line(each.uri, each.name, each.description) for each in page.resources[:_MOST_LISTED]]
    if cursor is None:
        templates = (await client.list_resource_templates(cache_mode="bypass")).resource_templates
        lines += [_line(each.uri_template, each.name, each.description) for each in templates[:_MOST_LISTED]]
    if page.next_cursor is not None:
        lines.append(f"There are more: list them with cursor={page.next_cursor!r}.")
    return "\n".join(lines) or "The server has no resources."


def _summary(prompts: Sequence[types.Prompt]) -> str:
    lines: list[str] = []
    for each in prompts[:_MOST_NAMED]:
        fields = ", ".join(field.name if field.required else f"{field.name}?" for field in each.arguments or ())
        lines.append(_line(f"{each.name}({fields})", "", each.description))
    more = len(prompts) - _MOST_NAMED
    return "\n".join([*lines, *([f"and {more} more"] if more > 0 else [])])


def _line(address: str, name: str, description: str | None) -> str:
    about = " ".join(part for part in (name, " ".join((description or "").split())[:_DESCRIPTION]) if part)
    return visible(f"- {address}: {about}" if about else f"- {address}")
