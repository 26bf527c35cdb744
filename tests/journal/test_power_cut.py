"""A power cut takes what the system has not yet written to the disk: at an effect nothing of the journal may be that.

The kernel tells how much of a file it still keeps in memory alone: `cachestat(2)`, from Linux 6.5 on.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path

import pytest

from toolspeak import Agent, Decision, tool
from toolspeak.data.events import ApprovalDecided, RunFinished, ToolFinished, ToolStarted
from toolspeak.data.tools import Effects
from toolspeak.journal import SqliteJournal
from toolspeak.providers.scripted_provider import ScriptedProvider

_CACHESTAT = 451  # of every architecture
_LIBC = ctypes.CDLL(None, use_errno=True)


def unwritten(path: Path) -> int:
    """Pages of a file that are not on the disk yet. Raises OSError where the kernel does not tell."""
    # `struct cachestat_range {off, len}` (0, 0: all of it), `struct cachestat {cached, dirty, writeback, …}`
    whole, counts = (ctypes.c_uint64 * 2)(), (ctypes.c_uint64 * 5)()
    with path.open("rb") as file:
        if _LIBC.syscall(_CACHESTAT, file.fileno(), whole, counts, 0):
            raise OSError(ctypes.get_errno(), f"cachestat of {path}")
    return counts[1] + counts[2]


def kernel_tells(folder: Path) -> bool:
    """Whether that can be seen of files in this folder: not of one in memory, nor on an older kernel."""
    probe = folder / "probe"
    try:
        with probe.open("wb") as file:
            file.write(b"x" * 100_000)
            file.flush()
            before = unwritten(probe)
            os.fsync(file.fileno())
            return before > 0 and unwritten(probe) == 0
    except OSError:
        return False


class DirtyBytesJournal(SqliteJournal):
    """Notes how much of the journal's files is not on the disk whenever an event is recorded."""

    def __init__(self, path: Path, **options: object) -> None:
        super().__init__(path, **options)  # pyright: ignore[reportArgumentType]
        self.dirty_bytes: list[tuple[type, int]] = []

    async def append(self, record, lease=None):
        await super().append(record, lease)
        self.dirty_bytes.append((type(record.event), self.unwritten()))

    def unwritten(self) -> int:
        files = (self.path, self.path.with_name(f"{self.path.name}-wal"))
        return sum(unwritten(file) for file in files if file.exists())


def a_run(journal: DirtyBytesJournal) -> list[int]:
    """Runs two calls with an effect; what was not on the disk when the tool's function was entered."""
    unwritten_counts: list[int] = []

    @tool(effects=Effects(writes="desk:"))
    def stamp(text: str) -> str:
        unwritten_counts.append(journal.unwritten())
        return text

    call = '<tool_call>\n{{"name": "stamp", "arguments": {{"text": "{}"}}}}\n</tool_call>'

    async def main() -> None:
        provider = ScriptedProvider([call.format("one" * 3000), call.format("two"), "Done."])
        async with Agent(provider, [stamp], dialect="hermes", approve="all", journal=journal) as agent:
            assert (await agent.run("Stamp twice.")).answer == "Done."
        await journal.aclose()

    asyncio.run(main())
    return unwritten_counts


@pytest.fixture
def disk(tmp_path):
    """A folder of which the kernel tells what is on the disk."""
    if not kernel_tells(tmp_path):
        pytest.skip("the kernel does not tell what is on the disk: Linux 6.5 and a folder on a disk are needed")
    return tmp_path


def test_nothing_of_a_run_waits_for_the_disk_when_an_effect_begins_or_its_result_is_used(disk):
    journal = DirtyBytesJournal(disk / "journal.db")
    assert a_run(journal) == [0, 0]
    page_counts = [pages for event, pages in journal.dirty_bytes if event in (ToolStarted, ToolFinished, RunFinished)]
    assert page_counts == [0] * 5


def test_a_decision_is_on_the_disk_before_anything_follows_from_it(disk):
    """Also a refusal, which no `ToolStarted` follows."""
    journal = DirtyBytesJournal(disk / "journal.db")

    @tool(effects=Effects(writes="desk:"))
    def stamp(text: str) -> str:
        return text

    async def refuse(request):
        return Decision(False, "not this one", by="ann")

    call = '<tool_call>\n{"name": "stamp", "arguments": {"text": "one"}}\n</tool_call>'

    async def main() -> None:
        async with Agent(
            ScriptedProvider([call, "Done."]), [stamp], dialect="hermes", approve=refuse, journal=journal
        ) as agent:
            assert (await agent.run("Stamp.")).answer == "Done."
        await journal.aclose()

    asyncio.run(main())
    assert [pages for event, pages in journal.dirty_bytes if event is ApprovalDecided] == [0]


def test_without_syncs_it_waits_for_the_disk(disk):
    """That the test before can fail."""
    assert max(a_run(DirtyBytesJournal(disk / "journal.db", sync="never"))) > 0
