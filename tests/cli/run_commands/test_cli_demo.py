"""`toolspeak demo`: it succeeds, and it would notice if it did not."""

from __future__ import annotations

import asyncio
import io
import re
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from forked_commands import completed_text
from toolspeak.cli.demo_project import ALIAS, FILES, STEPS, TOOLS_USED, playbook
from toolspeak.cli.run_commands.demo_command import play
from toolspeak.dialects import PROTOCOLS, Dialect, read_turn
from toolspeak.tools.builtin import workspace_tools
from toolspeak.ui import make_console

NAMES = [dialect.name for dialect in PROTOCOLS]


def demo(tmp_path: Path, *options: str) -> CompletedProcess[str]:
    """The command with an empty environment (no key, no model), and a folder for its temporary files."""
    env = {"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    return completed_text(("demo", *options), cwd=tmp_path, env=env, session=True)


def test_it_fixes_the_bug_in_every_dialect_and_leaves_nothing(tmp_path: Path):
    process = demo(tmp_path, "--fast")
    assert (process.returncode, process.stderr) == (0, "")
    rows = re.findall(r"│ (\S+) +│ +(\d+) +│ +(\d+) +│ +(\d+) +│ +[\d.]+ +│ tests pass +│", process.stdout)
    assert [name for name, *_ in rows] == NAMES
    assert {(calls, recoveries) for _, _, calls, recoveries in rows} == {("8", "1")}
    assert list(tmp_path.iterdir()) == []
    for text in (
        "One test fails: -500 != 850.",
        "✗ read_file (unknown_tool)",
        "accepted leniently: code_fence",
        "    +    return amount - amount * discount // 100\n  ✓ allowed by the demo",
        "Line 12 divides by 10",
        "All 3 tests pass.",
    ):
        assert process.stdout.count(text) == len(NAMES), text


def test_one_dialect(tmp_path: Path):
    process = demo(tmp_path, "--fast", "--dialect", "tool-call")
    assert process.returncode == 0
    assert re.findall(r"│ (\S+) .*tests pass", process.stdout) == ["tool-call"]


def test_an_unknown_dialect(tmp_path: Path):
    process = demo(tmp_path, "--dialect", "hermez")
    assert (process.returncode, process.stdout) == (2, "")
    assert "There is no dialect 'hermez'" in process.stderr


PRICES, TESTS = FILES["shop/prices.py"], FILES["tests/test_prices.py"]

# A project in which something is not as the playbook expects, and what the demo then says.
WRONG = {
    "the tests pass from the beginning": ({"shop/prices.py": PRICES.replace("// 10", "// 100")}, "matches nothing"),
    "the tests cannot be loaded": ({"tests/test_prices.py": "import absent\n"}, "matches nothing"),
    "the line is not found": (
        {"shop/prices.py": PRICES.replace("amount * discount // 10", "discount * amount // 10")},
        "matches nothing",
    ),
    "another line is found last": (
        {"shop/prices.py": PRICES + "\n\nx = 1  # total * discount\n"},
        "matches nothing",  # the tests still fail after the fix
    ),
    "the note has no place": ({"CHANGES.md": "# Changes\n"}, "the failed calls were ['unknown_tool', 'exception']"),
    "the file is not the expected one": (
        {"shop/prices.py": PRICES + "\n"},
        "shop/prices.py has unexpected content",
    ),
    "a test fails still": (
        {"tests/test_prices.py": TESTS + "\n    def test_more(self):\n        self.assertEqual(total([(1, 1)]), 2)\n"},
        "matches nothing",
    ),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("dialect", PROTOCOLS, ids=NAMES)
def test_it_fails_when_a_result_is_not_the_right_one(dialect: Dialect, name: str):
    damaged_files, problem = WRONG[name]
    outcome = asyncio.run(play(dialect, make_console(io.StringIO()), files={**FILES, **damaged_files}))
    assert problem in "; ".join(outcome.problems)


@pytest.mark.parametrize("dialect", PROTOCOLS, ids=NAMES)
def test_the_playbook_says_the_same_in_every_dialect(dialect: Dialect, tmp_path: Path):
    tools = workspace_tools(tmp_path).specs
    turns = [read_turn(dialect, text, tools) for text in playbook(dialect, tools)]
    assert "".join(turn.message.text for turn in turns) == "".join(step.text for step in STEPS)


def test_the_playbook_shows_what_it_should():
    assert {"list", "find", "read", "line_edit", "edit", "shell"} <= TOOLS_USED
    assert any(ALIAS in arguments for step in STEPS for _, arguments in step.calls)
    assert sum("{{find:" in step.text for step in STEPS) >= 2


@pytest.mark.over_a_second
def test_the_three_schedules_are_compared_and_drawn(tmp_path: Path):
    picture = tmp_path / "out.svg"
    process = demo(tmp_path, "--schedules", "--timeline", str(picture))
    assert process.returncode == 0
    rows = {line.split("│")[1].strip(): line for line in process.stdout.splitlines() if line.startswith("│")}
    assert "WRONG" in rows["parallel"]
    assert "the same" in rows["serializable"]
    assert "░" in process.stdout
    assert picture.read_text(encoding="utf-8").count("<rect") == 21
