"""`write`: replaces the whole content of a file at once."""

from __future__ import annotations

from typing import Any

from toolspeak.data.tools import Effects
from toolspeak.errors import ToolError
from toolspeak.tools import RunContext, Tool, tool
from toolspeak.tools.files import files_read
from toolspeak.tools.files.change import changes, preview
from toolspeak.tools.files.text_format import decode, encode
from toolspeak.tools.files.workspace import Workspace
from toolspeak.tools.files.workspace_folders import anywhere


def write_tool(workspace: Workspace) -> Tool:
    """The tool `write`: makes a file, or replaces its whole content."""

    def effects(path: str) -> Effects:
        return changes(workspace, path, idempotent=True)

    def would(path: str, content: str, overwrite: bool, ctx: RunContext[Any] | None = None) -> str:
        def texts() -> tuple[str, str]:
            data = encode(content, "content")
            before = workspace.read_if_exists(path)
            if before is None:
                return "", content
            if ctx is not None and before != data and not overwrite:
                _refuse_unknown(ctx, workspace.real(path), path, before)
            return _text(before, path), content

        return preview(path, texts)

    @tool(
        name="write",
        aliases={"file": "path"},
        effects=effects,
        effects_bound=anywhere(workspace, effects("")),
        preview=would,
    )
    def write(path: str, content: str, ctx: RunContext[Any], overwrite: bool = False) -> dict[str, Any]:
        """Write a text file: create it, or replace all of its content. Missing folders are made.

        Args:
            path: The file, relative to the workspace.
            content: The whole new content.
            overwrite: Replace an existing file although not all of it was read, or it changed since.
        """
        data = encode(content, "content")
        real = workspace.real(path)
        with workspace.alone(path, create=True):
            before = workspace.read_if_exists(path)
            if before == data:
                files_read.record(ctx, real, files_read.digest(data))
                return {"bytes": len(data), "unchanged": True}
            if before is not None and not overwrite:
                _refuse_unknown(ctx, real, path, before)
            workspace.replace(path, data, before)
            files_read.record(ctx, real, files_read.digest(data))
        return {"bytes": len(data)}

    return write


def _refuse_unknown(ctx: RunContext[Any], real: str, path: str, before: bytes) -> None:
    """Raises ToolError if the run has not read all of the file's content."""
    known_digest, sha256 = files_read.known_digest(ctx, real), files_read.digest(before)
    if known_digest == sha256:
        return
    remedy = "or pass overwrite: true to replace it."
    if unread := files_read.first_unread(ctx, real, sha256):
        raise ToolError(f"{path!r} was read only in part: read the rest (continue with start={unread}), {remedy}")
    if known_digest is not None:
        raise ToolError(f"{path!r} changed since it was read: read it again, {remedy}")
    raise ToolError(f"{path!r} exists and was not read: read it first, {remedy}")


def _text(data: bytes, path: str) -> str:
    try:
        return decode(data, path)
    except ToolError:
        return f"({len(data):,} bytes that are not UTF-8 text)\n"
