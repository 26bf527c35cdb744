"""`append`: adds text at the end of a file."""

from __future__ import annotations

from typing import Any

from toolspeak.data.tools import Effects
from toolspeak.errors import ToolError
from toolspeak.tools import RunContext, Tool, tool
from toolspeak.tools.files import files_read
from toolspeak.tools.files.change import changes, preview
from toolspeak.tools.files.text_format import encode, quote_path, text_chunks, visible
from toolspeak.tools.files.workspace import MAX_EDIT, Workspace
from toolspeak.tools.files.workspace_folders import anywhere


def append_tool(workspace: Workspace) -> Tool:
    """The tool `append`: adds text at the end of a file, or makes the file."""

    def effects(path: str) -> Effects:
        return changes(workspace, path, destructive=False)

    def would(path: str, content: str) -> str:
        encode(content, "content")
        before = _before(workspace, path)
        if before is None:
            return f"{quote_path(path)} is too large for a diff. This would be added at its end:\n{visible(content)}"
        text = before.decode()
        return preview(path, lambda: (text, text + content))

    @tool(
        name="append",
        aliases={"file": "path"},
        effects=effects,
        effects_bound=anywhere(workspace, effects("")),
        preview=would,
    )
    def append(path: str, content: str, ctx: RunContext[Any]) -> dict[str, Any]:
        """Add text at the end of a file, exactly as given: no newline is put before or after it.

        A missing file is created, with its folders. A file that is not UTF-8 text is refused.

        Args:
            path: The file, relative to the workspace.
            content: The text to add.
        """
        data = encode(content, "content")
        real = workspace.real(path)
        with workspace.alone(path, create=True):
            before = _before(workspace, path)
            size = workspace.append(path, data)
            if before is not None and size == len(before) + len(data):
                files_read.update(ctx, real, before, before + data)
        return {"bytes": len(data), "size": size}

    return append


def _before(workspace: Workspace, path: str) -> bytes | None:
    """The content of the file, which must be text. None if it has more than MAX_EDIT bytes: it is checked but not
    loaded."""
    chunks: list[bytes] | None = []
    size = 0
    try:
        with workspace.open(path) as file:
            for chunk in text_chunks(file, path):
                size += len(chunk)
                if size > MAX_EDIT:
                    chunks = None  # the run no longer knows the whole file
                if chunks is not None:
                    chunks.append(chunk)
    except ToolError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return b""
        raise
    return None if chunks is None else b"".join(chunks)
