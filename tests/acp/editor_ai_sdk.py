"""The AI SDK with a provider for ACP agents, which nobody here wrote, and `toolspeak acp`: `make test-editors`."""

import json
import os
import subprocess
import sys
from pathlib import Path

from scripted_editor import environment, playbook

HERE = Path(__file__).parent
NODE = os.environ.get("EDITORS_NODE", "node")


def test_an_agent_is_a_model_of_the_ai_sdk(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("one\ntwo\n")
    edit = ("edit", {"path": "a.txt", "old": "two", "new": "three"})
    calls = [edit, ("shell", {"command": "echo from the command"})]
    model = playbook(tmp_path / "model.json", [("read", {"path": "a.txt"})], calls, "All done.")
    agent = [sys.executable, "-m", "toolspeak", "acp", "--sandbox", "off", "--model", model]
    process = subprocess.run(
        [NODE, str(HERE / "npm" / "ai_sdk_client.mjs"), str(work), *agent],
        env=environment(tmp_path, HOME=str(tmp_path), PYTHONPATH=str(HERE.parents[1] / "src")),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert (work / "a.txt").read_text() == "one\nthree\n"
    assert "All done." in process.stdout
    rows = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    assert [row.get("tool") for row in rows] == ["read", "edit", "shell", None]
    assert rows[0]["output"] == "one\ntwo\n"
    assert rows[2]["output"] == {"exit_code": 0, "output": "from the command\n"}
    assert rows[3] == {"finish": "stop"}
