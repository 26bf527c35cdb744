"""The programs that the gateway's page shows, run as they stand there (`make test-clients`)."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from conversations import CLIENTS, QUIET
from gateway_process import gateway
from upstream import CALLS, Upstream

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "gateway.md").read_text("utf-8")
ADDRESS = "http://127.0.0.1:8665"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_there_is_one_for_each_vendor():
    assert [program.split()[1] for program in PROGRAMS] == ["openai", "anthropic"]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.split()[1])
def test_the_page_shows_what_works(program: str, upstream: tuple[Upstream, str]):
    (runner, *_) = CLIENTS["openai"].command
    with gateway("--upstream", f"{upstream[1]}/hermes/v1", "--dialect", "hermes") as root:
        command = [runner, "-W", "error", "-c", program.replace(ADDRESS, root)]
        result = subprocess.run(command, env={**os.environ, **QUIET}, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    ((name, arguments),) = CALLS["#one"]
    assert any(line.startswith(f"{name} {{") for line in result.stdout.splitlines()), result.stdout
    assert str(arguments["days"]) in result.stdout
