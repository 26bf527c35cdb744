"""What the tools that change a file share: the new text is computed first, then shown or put in place."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

from toolspeak.data.tools import Effects
from toolspeak.errors import ToolError
from toolspeak.tools.builtin import seen
from toolspeak.tools.builtin.diff import shortened, unified_diff
from toolspeak.tools.builtin.text import decode, quoted, visible
from toolspeak.tools.builtin.workspace import Workspace
from toolspeak.tools.context import RunContext


def changes(workspace: Workspace, path: str, *, idempotent: bool = False, destructive: bool = True) -> Effects:
    """The effects of a call that reads and changes one file."""
    key = {workspace.scope(path)}
    return Effects(reads=key, writes=key, idempotent=idempotent, destructive=destructive)


# A fixed number, so that nothing grows with the files of a long run; two files may share a lock.
_LOCKS = tuple(Lock() for _ in range(64))


def alone(workspace: Workspace, path: str) -> Lock:
    """Held while a call reads, changes and replaces a file: of calls that run at the same time, on purpose
    (`parallel`) or in another run of this process, none undoes what another did."""
    return _LOCKS[hash(workspace.scope(path)) % len(_LOCKS)]


def apply(workspace: Workspace, ctx: RunContext[Any], path: str, change: Callable[[str], str]) -> str:
    """Change an existing text file; the diff as the model reads it.

    `change` raises ToolError when it does not fit the text.
    """
    with alone(workspace, path):
        data = workspace.read(path)
        before = decode(data, path)
        after = change(before)
        encoded = after.encode()
        if encoded == data:
            return "The file already has this content: nothing was changed."
        workspace.replace(path, encoded)
        seen.update(ctx, workspace.real(path), data, encoded)
    return shortened(unified_diff(path, before, after))


def preview(path: str, texts: Callable[[], tuple[str, str]]) -> str:
    """The diff between the texts before and after a call; why there is none when the call would fail."""
    try:
        before, after = texts()
    except ToolError as error:
        return would_fail(error)
    return unified_diff(path, before, after) or f"{quoted(path)} already has this content: nothing would be changed."


def would_fail(error: ToolError) -> str:
    """The preview of a call that would raise this."""
    return f"This call would fail: {visible(str(error))}"


def preview_change(workspace: Workspace, path: str, change: Callable[[str], str]) -> str:
    """The preview of `apply`."""

    def texts() -> tuple[str, str]:
        before = decode(workspace.read(path), path)
        return before, change(before)

    return preview(path, texts)
