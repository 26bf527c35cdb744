"""W3C Trace Context (https://www.w3.org/TR/trace-context/): what of it a request carries on to the upstream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from toolspeak.gateway.observability.request_log import TRACE_ID
from toolspeak.providers.http_client import TRACE

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")
_MEMBER = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~]")
_MOST_MEMBERS = 32
_MOST_CHARACTERS = 512


def carry_trace(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Has upstreams be sent what a request says of its trace, and the log name it, from here on in this task."""
    found = trace_headers([*headers])
    TRACE.set(found)
    TRACE_ID.set(trace_id(found.get("traceparent", "")))


def trace_headers(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """`traceparent` and `tracestate` of a request as they are passed on: nothing for a trace that is not valid, and no
    state without one."""
    parents = [value.decode("latin-1").strip() for name, value in headers if name == b"traceparent"]
    if len(parents) != 1 or not trace_id(parents[0]):
        return {}
    states = [value.decode("latin-1") for name, value in headers if name == b"tracestate"]
    state = ",".join(states)
    members = [member.strip(" \t") for member in state.split(",") if member.strip(" \t")]
    keys = {member.partition("=")[0] for member in members}
    valid = len(members) <= _MOST_MEMBERS and len(state) <= _MOST_CHARACTERS and len(keys) == len(members)
    if not members or not valid or not all(map(_MEMBER.fullmatch, members)):
        return {"traceparent": parents[0]}
    return {"traceparent": parents[0], "tracestate": ",".join(members)}


def trace_id(parent: str) -> str:
    """The id of the trace that a `traceparent` names, empty if it is not valid."""
    found = _PARENT.fullmatch(parent)
    return "" if found is None or (found[2] is not None and parent.startswith("00")) else found[1]
