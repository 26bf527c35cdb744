"""The files of docs/guides/project-files.md, in a project: each does what the page says."""

import json
import re
from pathlib import Path

from scripted_project import calls

from toolspeak.project.hook_settings import EVENTS

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "project-files.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def block_with(language, text):
    """The block of the page in this language that holds the text."""
    (block,) = [block for name, block in BLOCKS if name == language and text in block]
    return block


def test_the_files_of_the_page_work_together(project):
    project.write("AGENTS.md", block_with("markdown", "# How to work here"))
    project.write(".agents/skills/release/SKILL.md", block_with("markdown", "name: release"))
    project.write(".agents/skills/release/references/changelog.md", "Newest first.")
    project.write(".agents/agents/reviewer.md", block_with("markdown", "name: reviewer"))
    project.write("tools.py", block_with("python", "def stock"))
    project.write("Makefile", "check:\n\t@echo checked >> checks.txt\n")
    project.write("scripts/check-path.sh", "grep -q generated/ && { echo generated >&2; exit 2; }; exit 0\n").chmod(
        0o755
    )
    book = project.write_home("fast.json", json.dumps({"turns": ["No mistakes."], "follow": True}))
    hooks = block_with("toml", "PreToolUse").replace("scripts/check-path.sh", "sh scripts/check-path.sh")
    config = f'tools = ["{project.folder}/tools.py:stock"]\n[aliases]\nfast = "scripted:{book}"\n{hooks}'
    project.write_home(".config/toolspeak/config.toml", config)

    run = project.run(
        calls(("skill", {"name": "release"}), ("stock", {"article": "pears"})),
        calls(("read", {"path": ".agents/skills/release/references/changelog.md"})),
        calls(("task", {"agent": "reviewer", "task": "Look at it."})),
        calls(("write", {"path": "generated/a.txt", "content": "x"}), ("write", {"path": "a.txt", "content": "x"})),
        "Released.",
        options=("--approve", "all"),
    )

    assert (run.code, run.process.stdout) == (0, "Released.\n"), run.errors
    assert "Run `make check` after each change." in run.system
    assert "- release: Make a release of this project." in run.system
    skill, stock, file, review, refusal, _ = run.results
    assert "Run `scripts/version.py` and read what it prints." in skill
    assert (stock, file, review) == ("40", "Newest first.", "No mistakes.")
    assert refusal == "the call was rejected: generated"
    assert (project.folder / "a.txt").exists()
    assert (project.folder / "checks.txt").read_text() == "checked\n"


def test_the_page_names_every_event():
    assert all(f"`{event}`" in PAGE for event in EVENTS)
