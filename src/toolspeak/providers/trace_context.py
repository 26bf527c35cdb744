"""The trace that requests belong to, as W3C Trace Context writes it (https://www.w3.org/TR/trace-context/)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType

TRACE: ContextVar[Mapping[str, str]] = ContextVar("toolspeak_trace", default=MappingProxyType({}))
"""`traceparent` and `tracestate` for every request of this context to a model API or an MCP server."""

RETRY_LISTENER: ContextVar[Callable[[Exception | None], None] | None] = ContextVar(
    "toolspeak_retry_listener", default=None
)
"""A function to call each time a request of this context to a model is sent again, with the reason if there is one."""

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")


def trace_id(parent: str) -> str:
    """The id of the trace that a `traceparent` names, empty if it is not valid."""
    match = _PARENT.fullmatch(parent)
    return "" if match is None or (match[2] is not None and parent.startswith("00")) else match[1]
