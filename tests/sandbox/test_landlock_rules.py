"""Landlock's rules are made once for commands that may touch the same; what changes on the disk meanwhile counts."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from sandbox_levels import open_level

from toolspeak.sandbox.base import Confinement, Sandbox
from toolspeak.testing.sandbox import run_command

SECRET = "the-canary-sings"
PLACE = Path(__file__).parents[2] / "build" / "landlock"
"""Not in /tmp: other programs make files there, so that rules that name its entries are made anew for each command."""


class Home:
    """A home with a key that commands may not read, notes that they may, and a workspace."""

    def __init__(self, folder: Path, sandbox: Sandbox) -> None:
        self.key, self.notes, self.workspace = folder / "key", folder / "notes", folder / "workspace"
        self.key.write_text(SECRET)
        self.notes.write_text("notes")
        self.workspace.mkdir()
        self._sandbox = sandbox

    async def run(self, command: str) -> str:
        confinement = Confinement((str(self.workspace),), hidden_paths=(str(self.key),))
        return (await run_command(self._sandbox, command, self.workspace, confinement)).output

    async def settle(self) -> None:
        """Waits until the home's last change is so long ago that rules are held, and lets a command make them."""
        while time.time_ns() - os.stat(self.key.parent).st_ctime_ns < 2_500_000_000:  # noqa: ASYNC110 - the clock
            await asyncio.sleep(0.1)
        assert await self.run(f"cat {self.notes}; cat {self.key} 2>/dev/null") == "notes"


async def to_replace_the_key_by_a_file_that_was_open(home: Home) -> None:
    home.notes.write_text(SECRET)
    os.rename(home.notes, home.key)
    assert SECRET not in await home.run(f"cat {home.key}")


async def to_link_the_key_to_such_a_file(home: Home) -> None:
    home.key.unlink()
    home.notes.write_text(SECRET)
    os.link(home.notes, home.key)
    home.notes.unlink()
    assert SECRET not in await home.run(f"cat {home.key}")


async def to_give_a_new_file_to_commands(home: Home) -> None:
    (home.key.parent / "new").write_text("new")
    assert await home.run(f"cat {home.key.parent / 'new'}") == "new"


async def to_make_the_workspace_anew(home: Home) -> None:
    shutil.rmtree(home.workspace)
    home.workspace.mkdir()
    assert await home.run("echo more > file && cat file") == "more\n"


CHANGES: list[Callable[[Home], Awaitable[None]]] = [
    to_replace_the_key_by_a_file_that_was_open,
    to_link_the_key_to_such_a_file,
    to_give_a_new_file_to_commands,
    to_make_the_workspace_anew,
]


@pytest.mark.over_a_second
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_on_the_disk_counts_for_the_next_command(change: Callable[[Home], Awaitable[None]]):
    open_sandbox = open_level("landlock")

    PLACE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=PLACE)).resolve()

    async def main() -> None:
        sandbox = await open_sandbox()
        try:
            home = Home(folder, sandbox)
            await home.settle()
            await change(home)
        finally:
            await sandbox.aclose()
            shutil.rmtree(folder, ignore_errors=True)

    asyncio.run(main())


def test_no_descriptor_stays_open_after_many_kinds_of_commands(tmp_path: Path):
    open_sandbox = open_level("landlock")

    async def main() -> tuple[int, int]:
        before = len(os.listdir("/proc/self/fd"))
        sandbox = await open_sandbox()
        try:
            for number in range(20):
                workspace = tmp_path / str(number)
                workspace.mkdir()
                await run_command(sandbox, ":", workspace, Confinement((str(workspace),)))
            during = len(os.listdir("/proc/self/fd")) - before
        finally:
            await sandbox.aclose()
        return during, len(os.listdir("/proc/self/fd")) - before

    during, after = asyncio.run(main())
    assert during <= 8
    assert after == 0
