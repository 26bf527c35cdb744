"""Runs whose calls change files, with a scripted model, and looks at trees."""

from __future__ import annotations

import os
import stat

from toolspeak import Agent
from toolspeak.changes.change_recorder import ChangeRecorder
from toolspeak.changes.run_changes import store_of
from toolspeak.journal import SqliteJournal
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.tools.builtin import Workspace, workspace_tools


def calling(*calls):
    """A turn with these calls, `(name, arguments)` each. Their ids are `call_TURN_INDEX`."""
    return ScriptedTurn("", calls=tuple(ScriptedCall(name, arguments) for name, arguments in calls))


def shell(command):
    return calling(("shell", {"command": command}))


def write(path, content):
    return calling(("write", {"path": path, "content": content, "overwrite": True}))


async def change(folder, file, *turns, tools=(), after=lambda: None, principal=None, **options):
    """Runs the turns in a folder, with the journal `file`, and returns the run's result. `after` is called after each
    turn's calls."""
    workspace, journal = Workspace(folder), SqliteJournal(file)
    recorder = ChangeRecorder(workspace, store_of(journal))
    agent = Agent(
        ScriptedProvider([*turns, "Done."]),
        [*workspace_tools(folder), *tools],
        approve="all",
        journal=journal,
        interceptors=[recorder],
        **options,
    )
    try:
        run = agent.start("change files", principal=principal)
        async for _ in run.states():
            after()
        return run.state
    finally:
        await agent.aclose()
        await journal.aclose()
        recorder.close()


def tree_of(folder):
    """Everything in a folder: modes, contents, targets of links."""
    tree = {}
    for above, folders, files in os.walk(os.fsencode(folder)):
        for name in [*folders, *files]:
            path = os.path.join(above, name)
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                what = os.readlink(path)
            elif stat.S_ISDIR(status.st_mode):
                what = "folder"
            else:
                with open(path, "rb") as file:
                    what = file.read()
            tree[os.path.relpath(path, os.fsencode(folder))] = (stat.S_IMODE(status.st_mode), what)
    return tree
