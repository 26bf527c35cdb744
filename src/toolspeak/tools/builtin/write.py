"""`write`: the whole content of a file, put in place at once."""

from __future__ import annotations

from typing import Any

from toolspeak.data.tools import Effects
from toolspeak.errors import ToolError
from toolspeak.tools import RunContext, Tool, tool
from toolspeak.tools.builtin import seen
from toolspeak.tools.builtin.change import changes, preview
from toolspeak.tools.builtin.text import decode, encode
from toolspeak.tools.builtin.workspace import Workspace


def write_tool(workspace: Workspace) -> Tool:
    def effects(path: str) -> Effects:
        return changes(workspace, path, idempotent=True)

    def would(path: str, content: str) -> str:
        def texts() -> tuple[str, str]:
            encode(content, "content")
            before = workspace.read_if_exists(path)
            return ("" if before is None else _text(before, path)), content

        return preview(path, texts)

    @tool(name="write", aliases={"file": "path"}, effects=effects, effects_bound=effects(""), preview=would)
    def write(path: str, content: str, ctx: RunContext[Any], overwrite: bool = False) -> dict[str, Any]:
        """Write a text file: create it, or replace all of its content. Missing folders are made.

        Args:
            path: The file, relative to the workspace.
            content: The whole new content.
            overwrite: Replace an existing file although it was not read, or changed since.
        """
        data = encode(content, "content")
        real = workspace.real(path)
        before = workspace.read_if_exists(path)
        if before == data:
            seen.record(ctx, real, seen.digest(data))
            return {"bytes": len(data), "unchanged": True}
        if before is not None and not overwrite:
            _check_known(ctx, real, path, before)
        workspace.replace(path, data)
        seen.record(ctx, real, seen.digest(data))
        return {"bytes": len(data)}

    return write


def _check_known(ctx: RunContext[Any], real: str, path: str, before: bytes) -> None:
    """What would be lost must have been seen."""
    known = seen.known(ctx, real)
    if known is None:
        raise ToolError(f"{path!r} exists and was not read: read it first, or pass overwrite: true to replace it.")
    if known != seen.digest(before):
        raise ToolError(f"{path!r} changed since it was read: read it again, or pass overwrite: true to replace it.")


def _text(data: bytes, path: str) -> str:
    try:
        return decode(data, path)
    except ToolError:
        return f"({len(data):,} bytes that are not UTF-8 text)\n"
