"""Headers that repeat what a request's body says: refuses those with characters that readers take differently.

The SDK compares headers and body, and reads a byte that is not ASCII as Latin-1; a proxy may read UTF-8, or drop it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from mcp import types
from mcp.shared.inbound import MCP_PARAM_HEADER_PREFIX, x_mcp_header_map
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

_ODD = re.compile(rb"[^\t\x20-\x7e]")
_MODERN = {version.encode() for version in MODERN_PROTOCOL_VERSIONS}


def compared_headers(schemas: Iterable[Mapping[str, Any]]) -> Collection[bytes]:
    """The names, in lower case, of the headers that must say the same as the body, for tools of these parameters."""
    tokens = {token for schema in schemas for token in x_mcp_header_map(schema).values()}
    return {b"mcp-method", b"mcp-name", *(f"{MCP_PARAM_HEADER_PREFIX}{token}".lower().encode() for token in tokens)}


def odd_header(headers: Iterable[tuple[bytes, bytes]], names: Collection[bytes]) -> str | None:
    """The first of these headers with a character that none may have, in a request of a revision with such headers."""
    headers = list(headers)
    if not any(name == b"mcp-protocol-version" and value in _MODERN for name, value in headers):
        return None
    return next((name.decode() for name, value in headers if name in names and _ODD.search(value)), None)


def mismatch_message(name: str) -> str:
    """The protocol's error for such a header."""
    text = f"the header {name} has a character that is not plain ASCII: encode it as =?base64?…?="
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": types.HEADER_MISMATCH, "message": text}})
