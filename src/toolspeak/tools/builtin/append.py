"""`append`: text at the end of a file, exactly as it is given."""

from __future__ import annotations

from typing import Any

from toolspeak.data.tools import Effects
from toolspeak.errors import ToolError
from toolspeak.tools import RunContext, Tool, tool
from toolspeak.tools.builtin import seen
from toolspeak.tools.builtin.change import changes, preview
from toolspeak.tools.builtin.text import decode, encode
from toolspeak.tools.builtin.workspace import Workspace


def append_tool(workspace: Workspace) -> Tool:
    def effects(path: str) -> Effects:
        return changes(workspace, path, destructive=False)

    def would(path: str, content: str) -> str:
        def texts() -> tuple[str, str]:
            encode(content, "content")
            before = decode(workspace.read_if_exists(path) or b"", path)
            return before, before + content

        return preview(path, texts)

    @tool(name="append", aliases={"file": "path"}, effects=effects, effects_bound=effects(""), preview=would)
    def append(path: str, content: str, ctx: RunContext[Any]) -> dict[str, Any]:
        """Add text at the end of a file, exactly as given: no newline is put before or after it.

        A missing file is created, with its folders.

        Args:
            path: The file, relative to the workspace.
            content: The text to add.
        """
        data = encode(content, "content")
        real = workspace.real(path)
        before = _before(workspace, path) if seen.known(ctx, real) else None
        size = workspace.append(path, data)
        if before is not None and size == len(before) + len(data):
            seen.update(ctx, real, before, before + data)
        return {"bytes": len(data), "size": size}

    return append


def _before(workspace: Workspace, path: str) -> bytes | None:
    try:
        return workspace.read_if_exists(path)
    except ToolError:
        return None  # too large to compare: the run no longer counts as knowing the file
