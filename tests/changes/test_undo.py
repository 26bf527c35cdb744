"""Undoing what calls changed."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path

import pytest
from changing_runs import calling, change, shell, tree_of, write
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak.changes.run_changes import from_call, store_of
from toolspeak.changes.undo import undo_changes
from toolspeak.journal import SqliteJournal
from toolspeak.tools.builtin import Workspace

NAMES = ["a", "b", "ü x", "line\nbreak", "d/a", "d/b", "d/e/a"]


def undo(folder, file, run_id, *, to=None, **options):
    store = store_of(SqliteJournal(file))
    try:
        sets = store.of_roots([run_id])
        return undo_changes(store, sets if to is None else from_call(sets, to), Workspace(folder), **options)
    finally:
        store.close()


def first_call_of(file, run_id, turn):
    """The call of a turn that began first: those of one turn have no order."""
    store = store_of(SqliteJournal(file))
    try:
        sets = [each for each in store.of_roots([run_id]) if each.call_id.startswith(f"call_{turn}_")]
        return min(sets, key=lambda each: each.number).call_id
    finally:
        store.close()


def outcomes(report):
    return {entry.path: entry.outcome for entry in report.entries}


def a_step(rng, number):
    """A turn of one to three calls that change something."""
    names = [rng.choice(NAMES) for _ in range(3)]
    one, two, three = (f"'{name}'" for name in names)
    kind = rng.randrange(11)
    text = "".join(rng.choices("ab\n", k=rng.randrange(12)))
    commands = [
        f"mkdir -p d/e; printf '%s' '{text}' > {one}",
        f"rm -rf {one}",
        f"mv {one} {two} 2>/dev/null; true",
        f"rm -rf {one}; ln -s nowhere {one}",
        f"chmod 7{rng.choice('057')}{rng.choice('05')} {one} {two} 2>/dev/null; true",
        f"rm -rf {one}; mkdir -p {one}; printf x > {one}/in",
        "rm -rf d; printf flat > d",
        "rm -f d; mkdir -p d/empty/er; head -c 3000 /dev/zero > d/zeros; printf '\\377\\376' > bytes",
        f"printf more >> {one}; cp {one} {three} 2>/dev/null; touch \"$(printf 'bad\\377')\"; true",
    ]
    if kind < len(commands):
        return shell(commands[kind])
    if kind == 9:
        return write(names[0], text)
    return calling(
        ("write", {"path": f"new{number}/deep/x", "content": text}),
        ("append", {"path": "log", "content": text + "."}),
        ("write", {"path": "z", "content": text, "overwrite": True}),
    )


@pytest.mark.over_a_second
@settings(max_examples=fewer(60))
@given(st.integers(0, 2**32))
def test_undo_to_any_call_gives_exactly_the_tree_that_was_there(seed):
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as top:
        folder, file = Path(top, "work"), Path(top, "runs.db")
        folder.mkdir()
        (folder / "a").write_text("first\n")
        trees = [tree_of(folder)]
        turns = [a_step(rng, number) for number in range(rng.randrange(1, 7))]
        state = asyncio.run(change(folder, file, *turns, after=lambda: trees.append(tree_of(folder))))
        number = rng.randrange(len(turns))
        report = undo(folder, file, state.run_id, to=first_call_of(file, state.run_id, number + 1))
        assert report.is_complete, report
        assert tree_of(folder) == trees[number]
        if report.name:
            again = undo(folder, file, state.run_id, to=report.name)
            assert again.is_complete, again
            assert tree_of(folder) == trees[len(turns)]
        report = undo(folder, file, state.run_id)
        assert report.is_complete, report
        assert tree_of(folder) == trees[0]
