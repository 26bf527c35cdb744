"""Tools as a server lists them: their effects as annotations, in pages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from mcp import MCPError, types
from mcp.shared.inbound import find_invalid_x_mcp_header

from toolspeak.data.tools import Effects, ToolSpec
from toolspeak.errors import ConfigurationError

PAGE = 100
"""The most tools of one page."""

FRESH_MS = 300_000
"""Milliseconds for which a client may keep a page: the tools of a server change only when it is started again."""


def listed_tool(spec: ToolSpec) -> types.Tool:
    """A tool as the protocol lists it. Raises ConfigurationError for an `x-mcp-header` in its parameters that clients
    must refuse."""
    if (problem := find_invalid_x_mcp_header(dict(spec.parameters))) is not None:
        raise ConfigurationError(f"the tool {spec.name!r} cannot be served to MCP clients: {problem}")
    return types.Tool(
        name=spec.name,
        description=spec.description,
        input_schema=dict(spec.parameters),
        annotations=hints_of(spec.effects),
    )


def hints_of(effects: Effects) -> types.ToolAnnotations | None:
    """The effects as hints. None for undeclared ones, for which a client assumes the worst."""
    if not effects.declared:
        return None
    return types.ToolAnnotations(
        read_only_hint=effects.read_only and not effects.approval,
        destructive_hint=effects.destructive and bool(effects.writes or effects.external),
        idempotent_hint=effects.idempotent or effects.read_only,
        open_world_hint=effects.external,
    )


def page_of(tools: Sequence[types.Tool], cursor: str | None, digest: str) -> types.ListToolsResult:
    """The page that begins at a cursor; None is the first. `digest` identifies the list.

    Raises MCPError for a cursor that is not one of this list.
    """
    start = 0 if cursor is None else _start(cursor, digest, len(tools))
    end = start + PAGE
    return types.ListToolsResult(
        tools=list(tools[start:end]), next_cursor=_cursor(end, digest) if end < len(tools) else None, ttl_ms=FRESH_MS
    )


def _cursor(start: int, digest: str) -> str:
    return base64.urlsafe_b64encode(f"{start} {digest[:16]}".encode()).decode()


def _start(cursor: str, digest: str, count: int) -> int:
    try:
        start, _, of_list = base64.urlsafe_b64decode(cursor.encode()).decode().partition(" ")
        if of_list == digest[:16] and start.isascii() and start.isdecimal() and 0 < int(start[:9]) < count:
            return int(start[:9])
    except (binascii.Error, ValueError):
        pass
    raise MCPError(types.INVALID_PARAMS, "the cursor is not one of this list of tools: list them from the beginning")
