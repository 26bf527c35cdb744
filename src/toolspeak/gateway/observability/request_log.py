"""One line of JSON for each request, on standard error. It holds no key, and contents only with `log_content`.

A line has the id of its request, and the id of the trace that the client names (https://www.w3.org/TR/trace-context/).
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar

from toolspeak.data.messages import JSON
from toolspeak.providers.http_client import TRACE, json_bytes

REQUEST_ID: ContextVar[str] = ContextVar("REQUEST_ID", default="")
"""The id of the current request, for every line of its context."""

TRACE_ID: ContextVar[str] = ContextVar("TRACE_ID", default="")
"""The id of the request's trace, if the client names one."""

LOG = logging.getLogger("toolspeak.gateway")

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")
_MEMBER = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~]")
_MOST_MEMBERS = 32
_MOST_CHARACTERS = 512


class JsonLines(logging.Formatter):
    """A record as one line: time (UTC), level, event and fields. A record of another library names no event: it is a
    `message`."""

    def format(self, record: logging.LogRecord) -> str:
        named: str | None = getattr(record, "event", None)
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, JSON] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": named or "message",
            **({"id": REQUEST_ID.get()} if REQUEST_ID.get() else {}),
            **({"trace_id": TRACE_ID.get()} if TRACE_ID.get() else {}),
            **(getattr(record, "fields", {}) if named else {"logger": record.name, "problem": record.getMessage()}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json_bytes(line).decode()


def log(
    event: str, fields: Mapping[str, JSON], *, level: int = logging.INFO, failed: BaseException | None = None
) -> None:
    """Writes a line without the fields that are None."""
    present = {name: value for name, value in fields.items() if value is not None}
    LOG.log(level, event, extra={"event": event, "fields": present}, exc_info=failed)


def log_to_stderr() -> None:
    """Sends the log of the gateway, its server and the providers to standard error, as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in (("toolspeak", logging.INFO), ("uvicorn.error", logging.WARNING), ("mcp", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


# --- W3C Trace Context -------------------------------------------------------------------------------------------


def carry_trace(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Passes the trace of a request to upstreams and to the log, for the rest of this task."""
    trace = trace_headers([*headers])
    TRACE.set(trace)
    TRACE_ID.set(trace_id(trace.get("traceparent", "")))


def trace_headers(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """`traceparent` and `tracestate` of a request, to be passed on. Empty for an invalid trace; an invalid state is
    left out."""
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
    match = _PARENT.fullmatch(parent)
    return "" if match is None or (match[2] is not None and parent.startswith("00")) else match[1]
