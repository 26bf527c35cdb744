"""One line of JSON for each request, on standard error: never what was said, nor a key, unless asked for."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from contextvars import ContextVar

from toolspeak.data.messages import JSON
from toolspeak.providers.relayed import json_bytes

REQUEST_ID: ContextVar[str] = ContextVar("REQUEST_ID", default="")
"""Of the request that is answered, for every line that is logged meanwhile, whoever logs it."""

TRACE_ID: ContextVar[str] = ContextVar("TRACE_ID", default="")
"""Of the trace that it belongs to, if its client names one."""

LOG = logging.getLogger("toolspeak.gateway")


class JsonLines(logging.Formatter):
    """A record as one line: time (UTC), level, event, and the fields it was given."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, JSON] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **({"id": REQUEST_ID.get()} if REQUEST_ID.get() else {}),
            **({"trace_id": TRACE_ID.get()} if TRACE_ID.get() else {}),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json_bytes(line).decode()


def log(
    event: str, fields: Mapping[str, JSON], *, level: int = logging.INFO, failed: BaseException | None = None
) -> None:
    """Writes a line; fields that are None are left out."""
    told = {name: value for name, value in fields.items() if value is not None}
    LOG.log(level, event, extra={"fields": told}, exc_info=failed)


def log_to_stderr() -> None:
    """Has the gateway, its server and the providers log as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in (("toolspeak", logging.INFO), ("uvicorn.error", logging.WARNING), ("mcp", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
