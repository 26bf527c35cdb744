"""What the tools that edit a file share: compute the new text, then show it or write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolspeak.data.tools import Effects
from toolspeak.tools.context import RunContext
from toolspeak.tools.files import files_read
from toolspeak.tools.files.diff import shorten_diff, unified_diff
from toolspeak.tools.files.text_format import decode, quote_path
from toolspeak.tools.files.workspace import Workspace


def changes(workspace: Workspace, path: str, *, idempotent: bool = False, destructive: bool = True) -> Effects:
    """The effects of a call that edits one file."""
    key = {workspace.scope(path)}
    return Effects(reads=key, writes=key, idempotent=idempotent, destructive=destructive)


def apply(workspace: Workspace, ctx: RunContext[Any], path: str, change: Callable[[str], str]) -> str:
    """Edits an existing text file and returns the diff that the model reads.

    `change` raises ToolError if it does not apply to the text.
    """
    with workspace.alone(path):
        data = workspace.read(path)
        before = decode(data, path)
        after = change(before)
        after_data = after.encode()
        if after_data == data:
            return "The file already has this content: nothing was changed."
        workspace.replace(path, after_data, data)
        files_read.update(ctx, workspace.real(path), data, after_data)
    return shorten_diff(unified_diff(path, before, after))


def preview(path: str, texts: Callable[[], tuple[str, str]]) -> str:
    """The diff between the texts before and after a call. Raises ToolError if the call would fail."""
    before, after = texts()
    return (
        unified_diff(path, before, after) or f"{quote_path(path)} already has this content: nothing would be changed."
    )


def preview_change(workspace: Workspace, path: str, change: Callable[[str], str]) -> str:
    """The preview of `apply`."""

    def texts() -> tuple[str, str]:
        before = decode(workspace.read(path), path)
        return before, change(before)

    return preview(path, texts)
