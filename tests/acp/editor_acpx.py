"""acpx, a client of the Agent Client Protocol that nobody here wrote, with `toolspeak acp`: `make test-editors`."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from scripted_editor import environment, playbook

HERE = Path(__file__).parent
NODE = os.environ.get("EDITORS_NODE", "node")
CLI = HERE / "npm" / "node_modules" / "acpx" / "dist" / "cli.js"


@pytest.fixture
def acpx(tmp_path):
    """Runs acpx in the folder `work`, whose agent plays the turns. Returns what it prints."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("one\ntwo\n")
    variables = environment(tmp_path, HOME=str(tmp_path), PYTHONPATH=str(HERE.parents[1] / "src"))

    def run(model, *arguments, check=True):
        agent = shlex.join([sys.executable, "-m", "toolspeak", "acp", "--sandbox", "off", "--model", model])
        command = [NODE, str(CLI), "--agent", agent, *arguments]
        return subprocess.run(
            command, cwd=work, env=variables, capture_output=True, text=True, timeout=120, check=check
        ).stdout

    run.folder = tmp_path
    return run


def test_one_turn_with_files_a_terminal_a_plan_and_approvals(acpx):
    calls = [
        ("edit", {"path": "a.txt", "old": "two", "new": "three"}),
        ("shell", {"command": "echo from the terminal"}),
        ("todo", {"items": [{"text": "Look", "state": "completed"}]}),
    ]
    model = playbook(acpx.folder / "model.json", [("read", {"path": "a.txt"})], calls, "All done.")
    output = acpx(model, "--approve-all", "exec", "Change a.txt")
    assert (acpx.folder / "work" / "a.txt").read_text() == "one\nthree\n"
    for each in (
        "fs/write_text_file",
        "terminal/create",
        "from the terminal",
        "[completed] Look",
        "All done.",
        "end_turn",
    ):
        assert each in output


def test_a_session_goes_on_from_command_to_command(acpx):
    turns = ["Hello.", [("write", {"path": "b.txt", "content": "x"})], "I may not write."]
    model = playbook(acpx.folder / "model.json", *turns)
    acpx(model, "sessions", "new")
    try:
        assert acpx(model, "--format", "quiet", "prompt", "Hello?").strip() == "Hello."
        assert "mode set: plan" in acpx(model, "set-mode", "plan")
        refusal = acpx(model, "--deny-all", "--format", "quiet", "prompt", "Write b.txt", check=False)
        assert refusal.strip() == "I may not write."
        assert not (acpx.folder / "work" / "b.txt").exists()
    finally:
        acpx(model, "sessions", "close")
