"""What was at a path before and after a call: values, and their form in the store."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, Literal, TypeAlias

from toolspeak.data.values import quick

StateKind: TypeAlias = Literal["file", "link", "folder", "unread"]
"""`unread` is a file whose content is not kept: too large, or not readable."""


@quick()
class FileState:
    """What is at a path.

    - `mode`: the permissions; 0 for a link.
    - `content`: the SHA-256 of a file, the target of a link. Of an `unread` file what differs after a change.
    - `size`: in bytes.
    """

    kind: StateKind
    mode: int
    content: bytes = b""
    size: int = 0


@quick()
class PathChange:
    """A change of one path. None: nothing is there.

    - `path`: relative to the workspace, written with `/`. Bytes that are not UTF-8 are surrogates, as in `os.fsdecode`.
    - `sharing_calls`: calls that ran at the same time and may have made the change instead.
    """

    path: str
    before: FileState | None
    after: FileState | None
    sharing_calls: tuple[str, ...] = ()


@quick()
class ChangeSet:
    """The changes of one call, or of one undo.

    - `number`: counts the change sets of a store in the order in which their calls began.
    - `run_id`: the run of the call. `root_id`: the run that is not a sub-run of another.
    - `call_id`: the call, or the name of an undo (`undo-1`). `tool`: its tool, or `undo`.
    - `workspace`: the folder, as an absolute path.
    - `start_time`, `end_time`: in Unix seconds; `end_time` is None while the call runs, and after a crash.
    - `sequence`: counts the change sets in the order in which their calls ended.
    - `within`: the change set of the call whose sub-run made this one.
    - `owner`: the process that made it.
    - `is_recovered`: the process died during the call. What others changed since is among the changes.
    - `uncovered_paths`: what is not covered, with the reason.
    """

    number: int
    run_id: str
    root_id: str
    call_id: str
    tool: str
    step: int
    workspace: str
    start_time: float
    end_time: float | None
    sequence: int | None
    within: int | None
    owner: str
    is_recovered: bool
    uncovered_paths: tuple[tuple[str, str], ...] = ()
    changes: Sequence[PathChange] = field(default_factory=list[PathChange])


def state_of_link(target: str) -> FileState:
    """The state of a symbolic link."""
    content = os.fsencode(target)
    return FileState("link", 0, content, len(content))


def columns_of(state: FileState | None) -> tuple[Any, ...]:
    """The state as four columns of the store."""
    return (None, None, None, None) if state is None else (state.kind, state.mode, state.content, state.size)


def state_from(columns: Sequence[Any]) -> FileState | None:
    """The state in four columns of the store."""
    return None if columns[0] is None else FileState(columns[0], columns[1], bytes(columns[2]), columns[3])


def contents_in(states: Iterable[FileState | None]) -> set[bytes]:
    """The digests of the contents that these states need."""
    return {state.content for state in states if state is not None and state.kind == "file"}
