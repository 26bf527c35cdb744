"""What calls changed in files, as the store of changes has it, for an editor to show."""

from __future__ import annotations

import os

from toolspeak.acp.call_presentation import FileChange
from toolspeak.acp.editor_files import MOST_SHOWN
from toolspeak.changes.change_store import ChangeStore, DamagedContent
from toolspeak.changes.file_states import FileState
from toolspeak.changes.run_changes import net_changes, store_of
from toolspeak.data.messages import ToolResult
from toolspeak.data.tools import FILES_CHANGED
from toolspeak.errors import JournalError
from toolspeak.journal import Journal

MOST_FILES = 20
"""How many changed files of one call an editor is shown. `/diff` has all."""


class RecordedChanges:
    """Reads the store of changes of a journal. Use it in threads other than the event loop's."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._store: ChangeStore | None = None

    def of_result(self, run_id: str, result: ToolResult) -> list[FileChange]:
        """The changes of text files that a call has made; [] for a call that changed none, and where nothing is
        kept."""
        if FILES_CHANGED not in result.extra:
            return []
        if self._store is None:
            self._store = store_of(self._journal)
        store = self._store
        if store is None or not store.exists():
            return []
        changes: list[FileChange] = []
        try:
            change_sets = store.of_call(run_id, result.call_id)
        except JournalError:
            return []  # the turn goes on without its diffs; `/diff` says what is wrong
        for net in net_changes(change_sets)[:MOST_FILES]:
            sides = [_text_of(state, store) for state in (net.before, net.after)]
            if None not in sides:
                before, after = sides
                path = os.path.join(net.workspace, net.path)
                changes.append(FileChange(path, before if net.before is not None else None, after or ""))
        return changes

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


def _text_of(state: FileState | None, store: ChangeStore) -> str | None:
    """The text; "" where nothing is. None if it is no text, too long, or not kept."""
    if state is None:
        return ""
    if state.kind != "file" or state.size > MOST_SHOWN:
        return None
    try:
        data = store.content(state.content)
        return None if b"\0" in data else data.decode()
    except (DamagedContent, UnicodeDecodeError):
        return None
