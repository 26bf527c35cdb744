"""What a run has read: `memory["files_read"]` maps real paths to the SHA-256 of the content last seen or written."""

from __future__ import annotations

import hashlib
from typing import Any, cast

from toolspeak.tools.context import RunContext

KEY = "files_read"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def record(ctx: RunContext[Any], real: str, sha256: str) -> None:
    """The run knows the content of this file."""
    _files(ctx)[real] = sha256


def known(ctx: RunContext[Any], real: str) -> str | None:
    """The digest of the content the run knows, None when it never read the file."""
    return _files(ctx).get(real)


def update(ctx: RunContext[Any], real: str, before: bytes, after: bytes) -> None:
    """After an edit: a run that knew the content knows the new one; one that did not, still does not."""
    if known(ctx, real) == digest(before):
        record(ctx, real, digest(after))


def _files(ctx: RunContext[Any]) -> dict[str, str]:
    return cast("dict[str, str]", ctx.memory.setdefault(KEY, {}))
