"""Makes tools of a server's listing: their names, their effects, and the checks of their arguments."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass
from typing import Any, Protocol

from mcp import types

from toolspeak.data.tools import EVERYTHING, NO_VERSION, UNDECLARED_EFFECTS, Effects, ToolSpec
from toolspeak.data.values import evolve
from toolspeak.mcp.call_results import returned_content
from toolspeak.tools.context import RunContext
from toolspeak.tools.returned_values import ReturnValue
from toolspeak.tools.schema_checks import Checks, SchemaReader, UnusableSchema, checks_of
from toolspeak.tools.tool import Tool

MAX_NAME = 64
"""The most characters of a name that OpenAI's and Anthropic's APIs accept."""

_ODD = re.compile(r"[^A-Za-z0-9_-]+")


class McpCall(Protocol):
    """Calls a tool of the server. `tool` is the definition for which the call was approved; `progress` gets lines of
    progress."""

    def __call__(
        self, tool: types.Tool, arguments: dict[str, Any], progress: Callable[[str], None] | None, /
    ) -> Awaitable[types.CallToolResult]: ...


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A listed tool that cannot be used, and why."""

    server: str
    tool: str
    reason: str

    def __str__(self) -> str:
        return f"the tool {self.tool!r} of the MCP server {self.server!r} is left out: {self.reason}"


def tool_name(server: str, tool: str, names: Container[str] = ()) -> str:
    """`server__tool`, with characters that every model API accepts in a name. If the name is in use or too long, it
    ends with a digest of both names, so that it is the same in every process."""
    plain = f"{server}__{tool}"
    name = _ODD.sub("_", plain)
    if not re.match(r"[A-Za-z_]", name):
        name = f"_{name}"
    if name not in names and len(name) <= MAX_NAME:
        return name
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()
    ends = (f"_{digest[:length]}" for length in range(8, len(digest)))
    return next(candidate for end in ends if (candidate := name[: MAX_NAME - len(end)] + end) not in names)


def effects_of(annotations: types.ToolAnnotations | None) -> Effects:
    """The effects in a server's hints about its tool. Without any hint they are undeclared. If only some hints are
    missing, the specification's defaults apply: it writes, may destroy, is not idempotent and may reach the outside."""
    hints = annotations
    if hints is None or (
        hints.read_only_hint is None
        and hints.destructive_hint is None
        and hints.idempotent_hint is None
        and hints.open_world_hint is None
    ):
        return UNDECLARED_EFFECTS
    external = hints.open_world_hint is not False
    if hints.read_only_hint:
        return Effects(reads={EVERYTHING}, external=external, idempotent=True, destructive=False, version=NO_VERSION)
    return Effects(
        reads={EVERYTHING},
        writes={EVERYTHING},
        external=external,
        idempotent=bool(hints.idempotent_hint),
        destructive=hints.destructive_hint is not False,
    )


def tool_of(
    server: str,
    listed_tool: types.Tool,
    name: str,
    call: McpCall,
    timeout: float | None,
    definition: Callable[[types.Tool], types.Tool] = lambda listed_tool: listed_tool,
    is_pinned: Callable[[types.Tool], bool] = lambda _: True,
) -> Tool | LeftOut:
    """A listed tool as a Tool, or why it cannot be used.

    `name`: the tool's name here.
    `timeout`: of one call, in seconds.
    `definition`: the tool's definition in the server's latest listing.
    `is_pinned`: whether a definition is the pinned one. A person approves each call of another one.
    """
    # Model APIs require `properties`, even empty ones, and some refuse `$schema`.
    schema: dict[str, Any] = {"type": "object", "properties": {}, **listed_tool.input_schema}
    try:
        reader = SchemaReader(checks_of(schema))
    except UnusableSchema as error:
        return LeftOut(server, listed_tool.name, f"its schema cannot be used: {error}")
    output, approved_definition = _output_check(listed_tool), listed_tool

    def spec_of(tool: types.Tool) -> ToolSpec:
        schema: dict[str, Any] = {"type": "object", "properties": {}, **tool.input_schema}
        parameters = {key: value for key, value in schema.items() if key != "$schema"}
        return ToolSpec(name, tool.description or tool.title or "", parameters, effects_of(tool.annotations))

    def effects(_arguments: object) -> Effects:
        nonlocal approved_definition
        approved_definition = definition(listed_tool)  # the definition that approval decides about
        declared_effects = effects_of(approved_definition.annotations)
        return declared_effects if is_pinned(approved_definition) else evolve(declared_effects, approval=True)

    async def function(arguments: dict[str, Any], context: RunContext[Any] | None = None) -> ReturnValue:
        progress = None if context is None else context.progress
        return returned_content(await call(approved_definition, arguments, progress), output)

    return Tool(
        spec=spec_of(listed_tool),
        function=function,
        is_async=True,
        read_arguments=reader,
        effects_of=effects,
        injected_kinds={"context": "context"},
        timeout=timeout,
        live=lambda: spec_of(definition(listed_tool)),
    )


def _output_check(mcp_tool: types.Tool) -> Checks | None:
    """The checks of the tool's structured results; None without a usable schema."""
    try:
        return None if mcp_tool.output_schema is None else checks_of(mcp_tool.output_schema)
    except UnusableSchema:
        return None
