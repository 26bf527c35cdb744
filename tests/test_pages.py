"""The pages' examples run as they are written, and print what the pages show."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from page_examples import check_page, program_of
from toolspeak.data.deltas import Delta, TurnRestarted
from toolspeak.data.events import Event, MemoryChanged, Record

DOCS = Path(__file__).parents[1] / "docs"
TUTORIAL = ["index", "first-agent", "tools", "approvals", "resume", "dialects", "tests"]
ONE_PROGRAM = [
    "guides/approvals.md",
    "guides/approve-over-http.md",
    "guides/code-mode.md",
    "guides/custom-provider.md",
    "guides/dependencies.md",
    "guides/executor-alone.md",
    "guides/instructions.md",
    "guides/interceptors.md",
    "guides/making-tools.md",
    "guides/migrate.md",
    "guides/ready-interceptors.md",
    "guides/sandbox.md",
    "guides/several-agents.md",
    "guides/stream-answers.md",
    "guides/undo.md",
    "guides/web-clients.md",
    "guides/web-tools.md",
    "guides/stream-to-a-web-page.md",
    "guides/structured-output.md",
    "guides/telemetry.md",
    "guides/tools-per-turn.md",
    "guides/many-tools.md",
    "guides/memory.md",
    "guides/workers.md",
]
"""Pages whose Python blocks are one program, which asserts what it says."""
ELSEWHERE = {
    "guides/adapters.md": "adapters/framework_guide.py",
    "guides/adding-a-dialect.md": "test_guide.py",
    "guides/declaring-effects.md": "test_readme.py",
    "guides/testing.md": "testing/test_scripted_requests.py",
    "guides/gateway.md": "clients/client_examples.py",
    "guides/mcp.md": "mcp/test_mcp_guide.py",
    "guides/mcp-server.md": "mcp/test_mcp_guide.py",
    "guides/project-files.md": "project/test_project_files_page.py",
    "reference/models.md": "test_guide.py",
}
"""Pages with a test of their own."""
NOT_RUN = {"design.md": "signatures", "guides/engines.md": "needs PostgreSQL"}


@pytest.mark.over_a_second
def test_the_tutorial_does_what_it_shows(tmp_path: Path):
    commands = [check_page(DOCS / "tutorial" / f"{name}.md", tmp_path) for name in TUTORIAL]
    assert all(commands), "each part of the tutorial runs something"


@pytest.mark.over_a_second
@pytest.mark.parametrize("name", ONE_PROGRAM)
def test_a_guide_runs_as_one_program(name: str, tmp_path: Path):
    source = program_of(DOCS / name)
    assert "assert" in source
    subprocess.run([sys.executable, "-W", "error", "-c", source], cwd=tmp_path, check=True, timeout=60)


def test_the_page_of_the_command_line_prints_what_it_shows(tmp_path: Path):
    assert check_page(DOCS / "reference" / "command-line.md", tmp_path)


@pytest.mark.over_a_second
def test_the_comparison_says_what_a_kill_leaves_of_our_program():
    script = DOCS.parent / "benchmarks" / "beside" / "compare.py"
    process = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert process.returncode == 0, process.stderr


def test_the_page_of_what_a_run_yields_has_each_delta_and_event():
    page = (DOCS / "reference" / "stream.md").read_text("utf-8")
    names = [name for block in re.findall(r"value-fields::.*\n((?:   .*\n)+)", page) for name in block.split()]
    item_types = [*get_args(Delta), TurnRestarted, *get_args(Event), Record, MemoryChanged]
    assert sorted(names) == sorted(each.__name__ for each in item_types)


def test_the_reference_has_a_page_of_every_package_with_public_names():
    source = DOCS.parent / "src"
    rooms = [file.parent for file in source.rglob("__init__.py") if "\n__all__ = " in file.read_text("utf-8")]
    packages = {".".join(room.relative_to(source).parts) for room in rooms} | {"toolspeak.errors"}
    pages = [path for path in (DOCS / "reference" / "api").glob("*.md") if path.stem != "index"]
    packages_with_page = [
        name for page in pages for name in re.findall(r"public-names:: (\S+)", page.read_text("utf-8"))
    ]
    assert sorted(packages_with_page) == sorted(packages)
    assert set((DOCS / "reference" / "api" / "index.md").read_text("utf-8").split()) >= {page.stem for page in pages}
    table = (DOCS / "public_names.py").read_text("utf-8").partition("\nPACKAGES = (")[2].partition("\n)")[0]
    assert {f"toolspeak.{name}" for name in re.findall(r'"(\S+)"', table)} == packages - {"toolspeak"}


def test_every_page_with_a_program_is_run():
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if program_of(path)}
    run = {f"tutorial/{name}.md" for name in TUTORIAL} | set(ONE_PROGRAM) | ELSEWHERE.keys() | NOT_RUN.keys()
    assert pages - run == set()
    for page, test in ELSEWHERE.items():
        assert Path(page).stem in (Path(__file__).parent / test).read_text("utf-8"), test


def test_every_part_of_the_tutorial_is_run():
    assert {path.stem for path in (DOCS / "tutorial").glob("*.md")} == set(TUTORIAL)
