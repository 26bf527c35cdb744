"""The guide's program runs as it is written (`make test-adapters`)."""

import subprocess
import sys
from pathlib import Path

from page_examples import program_of

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "adapters.md"


def test_the_guide_runs_as_one_program(tmp_path):
    # pydantic-ai's run_sync leaves its event loop open, which Python warns of.
    command = [sys.executable, "-W", "error", "-W", "ignore::ResourceWarning", "-c", program_of(GUIDE)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert run.stderr == ""
    assert run.returncode == 0
