"""`toolspeak show --svg` writes the picture of a run."""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ET

from command import toolspeak

from toolspeak import SqliteJournal
from toolspeak.testing.journal import a_run, every_kind, write


def test_a_run_is_drawn(tmp_path):
    async def fill():
        journal = SqliteJournal(tmp_path / "runs.db")
        await write(journal, a_run("mine", *every_kind(), task="Write <it>"))
        await journal.aclose()

    asyncio.run(fill())
    process = toolspeak("show", "mine", "--svg", "run.svg", "--journal", "runs.db", cwd=tmp_path)
    assert (process.returncode, process.stderr) == (0, b"toolspeak: the timeline is in run.svg\n")
    tree = ET.parse(tmp_path / "run.svg").getroot()
    assert tree.attrib["aria-label"] == "Write <it>"
    assert len(tree.findall("{http://www.w3.org/2000/svg}rect")) == 3
    failure = toolspeak("show", "mine", "--svg", "no/folder.svg", "--journal", "runs.db", cwd=tmp_path)
    assert failure.returncode == 0
    assert b"--svg no/folder.svg was not written" in failure.stderr
