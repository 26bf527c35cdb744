"""Keeps what the calls of an agent change in its workspace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from threading import Lock
from typing import TypeVar

from toolspeak.changes.change_recovery import recover_changes
from toolspeak.changes.change_store import ChangeStore
from toolspeak.changes.file_states import ChangeSet, PathChange
from toolspeak.changes.run_changes import store_of
from toolspeak.changes.store_upkeep import free_contents
from toolspeak.changes.tree_scan import TreeScanner, TreeState, add_changes, differences
from toolspeak.data.messages import ToolCall, ToolResult
from toolspeak.data.tools import EVERYTHING, FILES_CHANGED, Effects, covers
from toolspeak.execute import HookContext, Interceptor, Proceed
from toolspeak.execute.hooks import Level
from toolspeak.journal import Journal
from toolspeak.journal.leases import new_owner
from toolspeak.sandbox.processes import finish_work
from toolspeak.tools.builtin import Workspace
from toolspeak.tools.files.tree import printable_path

_ENOUGH, _SLACK = 1.25, 10
"""How many contents the store may have for each file of the workspace, and besides, before the end of a process looks
for those that nothing needs: in a large store that takes a second."""

_MOST_PATHS = 20
"""The most paths in a result's `extra`. The store has all."""

OutcomeT = TypeVar("OutcomeT")


@dataclass(slots=True, eq=False)
class RunningCall:
    """A call that may be changing files.

    - `places`: the paths that its effects name; None: it may change anything.
    - `tree`: what was there before the call. What other calls change meanwhile is no change of this one.
    - `above`: the change sets of the calls around it, of which this is a sub-run's.
    """

    number: int
    root_id: str
    call_id: str
    places: Sequence[str] | None
    tree: TreeState
    above: tuple[int, ...]

    def may_change(self, path: str) -> bool:
        """Whether the effects of the call cover the path."""
        return self.places is None or any(
            not place or path == place or path.startswith(f"{place}/") or place.startswith(f"{path}/")
            for place in self.places
        )


_ENCLOSING: ContextVar[tuple[str, RunningCall | None] | None] = ContextVar("enclosing", default=None)
"""The run whose call runs here, which is no sub-run, and the innermost call that may change files."""


class ChangeRecorder(Interceptor):
    """Keeps what calls change in a workspace, in the store of changes.

    Before a call that may write, the contents that it may change are durable in the store. After it the store has the
    change. A call that only reads costs nothing. A call whose effects name files costs two looks at these; another one
    two scans of the workspace. A call whose contents cannot be kept does not run.

    Give the same recorder to an agent and to those whose runs its tools start: their changes belong to its run.
    """

    level: Level = "call"
    priority = -1000  # innermost: each attempt of a call is a change set
    passes_reads = True

    def __init__(self, workspace: Workspace, store: ChangeStore) -> None:
        self.store = store
        self._workspace = workspace
        self._scanner = TreeScanner(workspace, store.keep)
        self._running: dict[int, RunningCall] = {}
        self._lock = Lock()
        self._owner = ""
        self._has_scanned = False
        self._deletions = 0

    async def around(self, call: ToolCall, proceed: Proceed, context: HookContext) -> ToolResult:
        """Calls the function, and adds to the result's `extra` which files it changed."""
        enclosing, effects = _ENCLOSING.get(), context.effects
        root_id, outer = (context.run_id, None) if enclosing is None else enclosing
        places = None if effects is None else self.places_of(effects)
        if effects is None or effects.read_only or effects.delegates or (places is not None and not places):
            token = _ENCLOSING.set((root_id, outer))
            try:
                return await proceed(call)
            finally:
                _ENCLOSING.reset(token)
        tool = context.tool.name if context.tool is not None else call.name
        running = await _in_thread(lambda: self._begin(call.id, tool, context, root_id, outer, places))
        token = _ENCLOSING.set((root_id, running))
        try:
            result = await proceed(call)
        finally:
            _ENCLOSING.reset(token)
            changes, uncovered_paths = await _in_thread(lambda: self._end(running))
        if not changes and not uncovered_paths:
            return result
        fact = {
            "count": len(changes),
            "paths": [printable_path(change.path) for change in changes[:_MOST_PATHS]],
            "uncovered": [printable_path(path) for path in list(uncovered_paths)[:_MOST_PATHS]],
        }
        return replace(result, extra={**result.extra, FILES_CHANGED: fact})

    def places_of(self, effects: Effects) -> Sequence[str] | None:
        """The paths in the workspace that a call with these effects may change; None: all."""
        root = self._workspace.key("")
        top = root.rstrip("/") + "/"
        places: list[str] = []
        for key in effects.writes:
            if key == EVERYTHING or covers(key, root) or not effects.declared:
                return None
            if key.startswith(top):
                places.append(key[len(top) :])
        # Where the system ignores case, a key is not the path itself.
        return None if places and self._workspace.key("A") != f"{top}A" else places

    def _begin(
        self,
        call_id: str,
        tool: str,
        context: HookContext,
        root_id: str,
        outer: RunningCall | None,
        places: Sequence[str] | None,
    ) -> RunningCall:
        workspace = str(self._workspace.root)
        with self._lock:
            if not self._owner:
                self._owner = new_owner()
                recover_changes(self.store, self._workspace)
                self._deletions = self.store.deletions()
            if places is None and not self._has_scanned:
                self._scanner.remember(self.store.cache(workspace))
                self._has_scanned = True
            if self._deletions != (deletions := self.store.deletions()):
                self._scanner.cache.clear()  # it relies on contents that may be gone
                self._deletions = deletions
            change_set = ChangeSet(
                number=0,
                run_id=context.run_id,
                root_id=root_id,
                call_id=call_id,
                tool=tool,
                step=context.step,
                workspace=workspace,
                start_time=time.time(),
                end_time=None,
                sequence=None,
                within=None if outer is None else outer.number,
                owner=self._owner,
                is_recovered=False,
            )
            with self.store.transaction():
                tree = self._scanner.scan(places)
                number = self.store.begin(change_set, tree)
                if places is None:
                    self._scanner.forget_missing(tree)
            above = () if outer is None else (*outer.above, outer.number)
            running = self._running[number] = RunningCall(number, root_id, call_id, places, tree, above)
            return running

    def close(self) -> None:
        """Stores what was read of the workspace for the next process, and frees what nothing needs any more."""
        if self._has_scanned and self._scanner.has_read:
            with self._lock, self.store.transaction():
                self.store.set_cache(str(self._workspace.root), self._scanner.cache)
                if self.store.content_count() > _ENOUGH * len(self._scanner.cache) + _SLACK:
                    free_contents(self.store)
        self.store.close()

    def _end(self, running: RunningCall) -> tuple[list[PathChange], dict[str, str]]:
        with self._lock:
            del self._running[running.number]
            others = [
                each
                for each in self._running.values()
                if each.number not in running.above and running.number not in each.above
            ]
            changes: list[PathChange] = []
            # Not synced: after a power cut the change is found as after a crash of the process.
            with self.store.transaction(synced=False):
                tree = self._scanner.scan(running.places)
                for path, before, after in differences(running.tree, tree):
                    rivals = [each for each in others if each.may_change(path)]
                    if running.places is None and any(each.places is not None for each in rivals):
                        continue  # the effects of the other call name the path
                    changes.append(PathChange(path, before, after, tuple(each.call_id for each in rivals)))
                uncovered_paths = _worth_saying(running, tree)
                self.store.end(running.number, changes, uncovered_paths)
            for each in self._running.values():
                add_changes(each.tree, [change for change in changes if each.may_change(change.path)])
            return changes, uncovered_paths


@contextmanager
def recorders(folder: str, journal: Journal) -> Generator[tuple[ChangeRecorder, ...]]:
    """The recorder of the changes in a folder, for runs in a journal; none for a journal in memory."""
    store = store_of(journal)
    if store is None:
        yield ()
        return
    recorder = ChangeRecorder(Workspace(folder), store)
    try:
        yield (recorder,)
    finally:
        recorder.close()


def _worth_saying(running: RunningCall, tree: TreeState) -> dict[str, str]:
    """What the call may have changed and the store does not have: what a scan leaves out, if the call may change
    anything there, with the reason."""
    return {path: reason for path, reason in tree.uncovered_paths.items() if reason and running.may_change(path)}


async def _in_thread(work: Callable[[], OutcomeT]) -> OutcomeT:
    """Runs the work in a thread, to its end even if the task is cancelled."""
    outcome: list[OutcomeT] = []

    async def run() -> None:
        outcome.append(await asyncio.to_thread(work))

    await finish_work(run())
    return outcome[0]
