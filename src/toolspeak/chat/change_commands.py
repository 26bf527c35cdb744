"""The commands about files: what the conversation changed in them, and how to take it back."""

from __future__ import annotations

import asyncio

from toolspeak.changes.change_store import ChangeStore
from toolspeak.changes.git_patch import patch_of, path_patches, visible_name
from toolspeak.changes.run_changes import by_workspace, change_sets_of, from_call, net_changes, root_runs, store_of
from toolspeak.changes.undo import UndoReport, undo_changes
from toolspeak.chat.chat import Chat
from toolspeak.chat.display.code_colours import colour_lines, lexer_of_language
from toolspeak.errors import ConfigurationError
from toolspeak.ui.format import count
from toolspeak.ui.question import visible_lines
from toolspeak.ui.terminal_approver import understand

_MOST_LINES = 400
"""Lines of a patch that are shown."""

_UNDO = "to undo", "undone", "Take these changes back? (y)es, (n)o › "
_REDO = "to restore", "restored", "Make these changes again? (y)es, (n)o › "
"""What an undo that is undone says in place of `_UNDO`: the changes come back."""


async def show_changes(chat: Chat) -> None:
    """Writes what the tools of the conversation changed in files, as one patch."""
    store = _store(chat)
    try:
        roots = await root_runs(chat.journal, store, session_id=chat.session_id)
        nets = net_changes(change_sets_of(store, roots))
        parts = await asyncio.to_thread(lambda: list(path_patches(nets, store.content)))
    finally:
        store.close()
    patch = patch_of(parts)
    if not patch:
        chat.transcript.note("· the conversation changed no files")
        return
    for part in parts if len(parts) > 1 else ():
        size = (
            (part.note or "binary")
            if part.lines_added is None
            else f"+{part.lines_added:,} -{part.lines_removed or 0:,}"
        )
        chat.transcript.note(f"  {part.kind:8} {visible_name(part.path)}  {size}", "code")
    lines = visible_lines(patch.decode(errors="replace"))
    chat.front.print(colour_lines(lines[:_MOST_LINES], lexer_of_language("diff")))
    if len(lines) > _MOST_LINES:
        rest = f"… {len(lines) - _MOST_LINES:,} more lines"
        chat.transcript.note(f"{rest}: `toolspeak changes --session {chat.session_id[:8]}` prints all")


async def undo(chat: Chat, call: str) -> None:
    """Takes back what the last turn changed in files, or the call and everything after its beginning, once the person
    has said yes. Raises ConfigurationError for an unknown call."""
    store = _store(chat)
    try:
        roots = await root_runs(chat.journal, store, session_id=chat.session_id)
        change_sets = change_sets_of(store, roots)
        if call:
            change_sets = from_call(change_sets, call)
        else:  # the last turn that changed something
            last = next((root for root in roots if net_changes(change_sets_of(store, [root]))), None)
            change_sets = [] if last is None else change_sets_of(store, [last])
        if not net_changes(change_sets):
            chat.transcript.note("· there is no change of a file to take back")
            return
        is_redo = call.startswith("undo-") and len(change_sets) == 1
        plan_word, end_word, question = _REDO if is_redo else _UNDO
        groups = by_workspace(change_sets, None)
        reports = [await asyncio.to_thread(undo_changes, store, each, place, dry_run=True) for place, each in groups]
        for report in reports:
            _show(chat, report, plan_word)
        if not any(entry.outcome == "undone" for report in reports for entry in report.entries):
            return
        line = await chat.front.ask(question) or "n"
        answer = understand(line)
        if answer is None:  # a message, not an answer
            chat.front.write_message(line)
        if answer is None or not answer.yes:
            chat.transcript.note("· nothing was changed")
            return
        for place, each in groups:
            _show(chat, await asyncio.to_thread(undo_changes, store, each, place), end_word)
    finally:
        store.close()


def _store(chat: Chat) -> ChangeStore:
    store = store_of(chat.journal)
    if store is None:
        raise ConfigurationError("without a journal no changes are kept: start without --journal none")
    return store


def _show(chat: Chat, report: UndoReport, word: str) -> None:
    note = chat.transcript.note
    for entry in report.entries:
        outcome = {"undone": word, "already": "as before"}.get(entry.outcome, "left")
        reason = f": {entry.reason}" if entry.reason else ""
        note(f"  {outcome:10} {visible_name(entry.path)}{reason}", "code" if entry.outcome != "changed" else "warning")
    changed_count = sum(entry.outcome == "undone" for entry in report.entries)
    effect = "takes them back again" if word == _REDO[1] else "brings the changes back"
    back = f"; /undo {report.name} {effect}" if report.name else ""
    note(f"· {count(changed_count, 'path')} {word} in {visible_name(report.workspace)}{back}")
