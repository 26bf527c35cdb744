"""Tools that OpenAI's Responses API runs itself (`mcp`, `web_search`): which of them the gateway runs.

Source: the OpenAI API reference, "Responses", `tools`, with the types of the `openai` package 3.54. The gateway runs
tools of the MCP servers that its operator lists, and connects to no others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from toolspeak.data.messages import JSON, ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import FormatError
from toolspeak.gateway.server_tools.tool_servers import ServerTools
from toolspeak.gateway.turns.turn_gate import Note
from toolspeak.gateway.upstreams.routing import Route, Routes
from toolspeak.wire.base import WireRequest
from toolspeak.wire.json_conversion import describe, optional_list, require_name, require_object
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

OPTIONAL_TOOLS = "x-toolspeak-optional-tools"
"""The header with the types of tools that a client can do without, separated by commas."""

_WEB_SEARCHES = ("web_search", "web_search_preview")
_SEARCHES = (*_WEB_SEARCHES, "tool_search")
_OPERATORS = ("connector_id", "authorization", "headers")
"""Fields of an `mcp` tool about access to its server, which the operator configures."""


@dataclass(frozen=True, slots=True)
class HostedTool:
    """A tool that the gateway runs and whose calls are items of the answer: `name` is its name on the MCP server
    `server`."""

    kind: Literal["mcp", "web_search"]
    server: str
    name: str


@dataclass(frozen=True, slots=True)
class HostedTools:
    """The API's own tools that a request names and the gateway runs.

    `servers`: by the label of an MCP server, the names of the tools that the model may call; None for all. `search`:
    the name of the tool that searches the web, "" without a search. `choice`: the request's `tool_choice`, if it is one
    of these tools.
    """

    servers: Mapping[str, frozenset[str] | None]
    search: str
    choice: Mapping[str, JSON] | None

    def among(self, offered_tools: Sequence[ToolSpec], tools: ServerTools) -> Mapping[str, HostedTool]:
        """The offered tools that the request names, by the model's name for them. Raises FormatError for a tool that
        its server does not have."""
        tools_by_name: dict[str, HostedTool] = {}
        missing = {label: set(names or ()) for label, names in self.servers.items()}
        for spec in offered_tools:
            origin = tools.origin_of(spec.name)
            if origin is None:
                continue
            server, name = origin
            if spec.name == self.search:
                tools_by_name[spec.name] = HostedTool("web_search", server, name)
            elif server in self.servers:
                allowed_names = self.servers[server]
                missing[server].discard(name)
                if allowed_names is None or name in allowed_names:
                    tools_by_name[spec.name] = HostedTool("mcp", server, name)
        for label, names in missing.items():
            if names:
                raise FormatError(f"tools: the MCP server {label!r} offers no tool {describe(min(names))}")
        return tools_by_name

    def tool_choice(self, tools_by_name: Mapping[str, HostedTool]) -> ToolChoice:
        """The tool choice for the model. Raises FormatError for a tool that is not offered."""
        choice = cast("Mapping[str, JSON]", self.choice)
        if choice["type"] != "mcp":
            return ToolChoice("specific", self.search)
        label, name = choice.get("server_label"), choice.get("name")
        if name is None:
            return ToolChoice("required")
        for own, tool in tools_by_name.items():
            if (tool.kind, tool.server, tool.name) == ("mcp", label, name):
                return ToolChoice("specific", own)
        raise FormatError(f"tool_choice.name: the MCP server {label!r} offers no tool {describe(name)}")


def hosted_tools(
    wire_request: WireRequest, route: Route, optional: Collection[str], tools: ServerTools | None
) -> tuple[HostedTools | None, list[Note]]:
    """The API's own tools that the gateway runs for a request, and notes on those that it leaves out. An upstream of
    that API gets them all.

    `optional`: the types that the client can do without. A search beside tools of the client, as codex sends it, is
    optional too. Raises FormatError for other tools that the gateway does not run.
    """
    if route.wire == OPENAI_RESPONSES.name and not route.is_text:
        return None, []
    servers: dict[str, frozenset[str] | None] = {}
    search = ""
    notes: list[Note] = []
    for i, tool in enumerate(cast("list[dict[str, JSON]]", wire_request.request.options.get("tools", []))):
        kind, label = tool["type"], _label(tool)
        if kind == "mcp" and tools is not None and label in tools.urls:
            servers[label] = _allowed_names(label, tool, tools, f"tools[{i}]")
            continue
        if kind in _WEB_SEARCHES and tools is not None and tools.search:
            search = tools.search
            continue
        is_offered = kind in _SEARCHES and wire_request.request.tools and wire_request.request.choice.mode != "required"
        what = f"the tool {describe(kind)}"
        if label:
            what += f" of the server {describe(label)}"
        if kind not in optional and not is_offered:
            remedy = f"switch it off in the client, or send the header {OPTIONAL_TOOLS}: {kind} to do without it"
            raise FormatError(f"tools: this gateway does not run {what}; {remedy}")
        notes.append(Note("tool_left_out", f"{what} was left out: this gateway does not run it"))
    choice = _choice(wire_request.request.options.get("tool_choice"), servers, search)
    return (HostedTools(servers, search, choice) if servers or search else None), notes


def routes_that_support(
    wire_request: WireRequest, routes: Routes, optional: Collection[str], tools: ServerTools | None
) -> tuple[Routes, HostedTools | None, list[Note]]:
    """The routes that can answer the request, with their hosted tools and notes. If upstreams differ, only those that
    leave out the fewest tools remain. Raises FormatError if no route can."""
    able: list[tuple[Route, tuple[HostedTools | None, list[Note]]]] = []
    problem: FormatError | None = None
    for route in routes.routes:
        try:
            able.append((route, hosted_tools(wire_request, route, optional, tools)))
        except FormatError as error:
            problem = error
    if problem is not None and not able:
        raise problem
    hosted_and_notes = min((each for _, each in able), key=lambda each: len(each[1]))
    return replace(routes, routes=[route for route, each in able if each == hosted_and_notes]), *hosted_and_notes


def _label(table: Mapping[str, JSON]) -> str:
    """The MCP server that a tool or a choice names, or ""."""
    label = table.get("server_label")
    return label if isinstance(label, str) else ""


def _allowed_names(label: str, tool: Mapping[str, JSON], tools: ServerTools, place: str) -> frozenset[str] | None:
    """The tools of an MCP server that the model may call, None for all."""
    url = tool.get("server_url")
    if url is not None and (not isinstance(url, str) or url.rstrip("/") != tools.urls[label].rstrip("/")):
        raise FormatError(
            f"{place}.server_url: the gateway connects only to servers that its operator lists, and {label!r} is at a "
            "different address; omit server_url"
        )
    for field in _OPERATORS:
        if tool.get(field) is not None:
            raise FormatError(f"{place}.{field}: the operator configures access to {label!r}; omit {field}")
    if tool.get("require_approval") != "never":
        raise FormatError(
            f'{place}.require_approval: approval is not possible here; use "never". Only read-only tools and tools '
            "that the operator approved will run"
        )
    allowed_tools: Any = tool.get("allowed_tools")
    if isinstance(allowed_tools, dict):
        allowed_fields = require_object(allowed_tools, f"{place}.allowed_tools")
        if set(allowed_fields) - {"tool_names"}:
            raise FormatError(f"{place}.allowed_tools: only tool_names is supported here; list the names of the tools")
        allowed_tools = allowed_fields.get("tool_names")
    if allowed_tools is None:
        return None
    names = optional_list(allowed_tools, f"{place}.allowed_tools")
    return frozenset(require_name(name, f"{place}.allowed_tools[{i}]") for i, name in enumerate(names))


def _choice(choice: JSON, servers: Collection[str], search: str) -> Mapping[str, JSON] | None:
    """A `tool_choice` that is one of the API's own tools. Raises FormatError if the gateway does not run it."""
    if choice is None:
        return None
    table = cast("dict[str, JSON]", choice) if isinstance(choice, dict) else {"type": choice}
    kind = table.get("type")
    if (kind == "mcp" and _label(table) in servers) or (kind in _WEB_SEARCHES and search):
        return table
    raise FormatError(
        f"tool_choice.type: this gateway does not run {describe(kind)}; use auto, or name one of your own tools"
    )
