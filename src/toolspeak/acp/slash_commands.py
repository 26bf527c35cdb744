"""The commands that a user types as a prompt, such as `/model`. The model does not see them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from toolspeak.acp.call_presentation import JsonObject
from toolspeak.acp.editor_session import EditorSession
from toolspeak.acp.prompt_content import fence
from toolspeak.agent.state.state import Totals
from toolspeak.agent.storage.runs import load_state
from toolspeak.changes.change_store import ChangeStore
from toolspeak.changes.file_states import ChangeSet
from toolspeak.changes.git_patch import patch_of, path_patches, visible_name
from toolspeak.changes.run_changes import by_workspace, change_sets_of, net_changes, root_runs, store_of
from toolspeak.changes.undo import undo_changes
from toolspeak.data.messages import Message, TextPart
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, ToolspeakError
from toolspeak.project.skills import find_skills
from toolspeak.ui.format import compaction_text, money, printable

_MOST_PATCH = 64 * 1024
"""How many bytes of a patch are shown."""


@quick()
class SlashCommand:
    """- `hint`: what may follow the name; "" if nothing."""

    description: str
    run: Callable[[EditorSession, str], Awaitable[str]]
    hint: str = ""


def command_in(message: Message) -> tuple[str, str] | None:
    """The name and the rest of a command; None for a message to the model."""
    first = message.parts[0]
    if not isinstance(first, TextPart) or not first.text.startswith("/"):
        return None
    name, _, rest = message.text[1:].partition(" ")
    return (name.strip(), rest.strip()) if name.strip() in COMMANDS else None


async def run_slash_command(session: EditorSession, name: str, rest: str) -> JsonObject:
    """Runs a command between two turns, shows what it says, and returns the answer to the prompt."""
    async with session.between_turns:
        try:
            text = await COMMANDS[name].run(session, rest)
        except ToolspeakError as error:
            text = str(error)
        await session.say(text)
    return {"stopReason": "end_turn"}


async def _model(session: EditorSession, name: str) -> str:
    if not name:
        model_list = "\n".join(f"- {each}" for each in session.models)
        return f"The model is `{session.setup.model}`. `/model NAME` changes it.\n\n{model_list}"
    await session.set_model(name, between_turns=True)
    return f"The model is now `{printable(session.setup.model)}`."


async def _tools(session: EditorSession, _rest: str) -> str:
    tools = await session.tools()
    return "\n".join(f"- `{printable(each.name)}`: {printable(each.description.partition('.')[0])}." for each in tools)


async def _usage(session: EditorSession, _rest: str) -> str:
    totals = Totals()
    for run in await session.journal.runs(session_id=session.session_id):
        run_totals = (await load_state(session.journal, run.run_id)).totals
        totals = totals.plus(run_totals.usage, run_totals.cost, run_totals.estimated, run_totals.calls)
    tokens = f"{'~' if totals.estimated else ''}{totals.tokens:,} tokens"
    cost = "the price of the model is not known" if totals.cost is None else money(totals.cost, totals.estimated)
    return f"This session has used {tokens}, {cost}."


async def _compact(session: EditorSession, _rest: str) -> str:
    if await session.journal.session(session.session_id) is None:
        return "There is nothing to summarise yet."
    event = await session.compact()
    if event is None:
        return "The conversation stays as it is: a hook keeps it."
    text = compaction_text(event)
    return f"{text[0].upper()}{text[1:]}."


async def _skills(session: EditorSession, _rest: str) -> str:
    skills = find_skills(Path(session.folder))
    lines = [f"- `{printable(name)}`: {printable(skill.description)}" for name, skill in skills.by_name.items()]
    return "\n".join([*lines, *map(printable, skills.problems)]) or "This project has no skills."


async def _diff(session: EditorSession, _rest: str) -> str:
    with _store(session) as store:
        runs = await root_runs(session.journal, store, session_id=session.session_id)
        patch = patch_of([*path_patches(net_changes(change_sets_of(store, runs)), store.content)])
    if not patch:
        return "This session has changed no file."
    text = printable(patch[:_MOST_PATCH].decode(errors="replace"))
    more = f"\n{len(patch) - _MOST_PATCH:,} more bytes: `toolspeak changes` shows all." if patch[_MOST_PATCH:] else ""
    return fence(text, "diff") + more


async def _undo(session: EditorSession, _rest: str) -> str:
    with _store(session) as store:
        change_sets: list[ChangeSet] = []
        for run_id in await root_runs(session.journal, store, session_id=session.session_id):  # the newest first
            change_sets = change_sets_of(store, [run_id])
            if net_changes(change_sets):
                break
        else:
            return "This session has changed no file, or nothing is left to undo."
        # In a thread, so that other sessions go on.
        reports = [
            await asyncio.to_thread(undo_changes, store, group, place) for place, group in by_workspace(change_sets)
        ]
    lines = [
        f"- `{visible_name(entry.path)}`: {entry.outcome}{f' ({entry.reason})' if entry.reason else ''}"
        for report in reports
        for entry in report.entries
    ]
    return "\n".join(["The files of the last turn that changed some:", "", *lines])


@contextmanager
def _store(session: EditorSession) -> Generator[ChangeStore]:
    store = store_of(session.journal)
    if store is None:
        raise ConfigurationError("a journal in memory keeps no changes")
    try:
        yield store
    finally:
        store.close()


COMMANDS: Mapping[str, SlashCommand] = {
    "model": SlashCommand("Show or change the model", _model, "NAME"),
    "tools": SlashCommand("List the tools", _tools),
    "diff": SlashCommand("Show what this session has changed in files", _diff),
    "undo": SlashCommand("Undo the last turn's changes of files", _undo),
    "compact": SlashCommand("Summarise the conversation, to make room in the model's window", _compact),
    "skills": SlashCommand("List the skills of this project", _skills),
    "usage": SlashCommand("Show the tokens and the cost of this session", _usage),
}
