"""Runs the examples of a page in its order, in one folder, as a reader does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

COMMANDS = Path(sys.executable).parent
BLOCK = re.compile(r"(?:^([^\n]*`([\w.-]+)`):\n\n)?^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def session(block: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with what it prints."""
    steps: list[tuple[list[str], list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            steps.append(([line[2:]], []))
        elif line.startswith("> "):
            steps[-1][0].append(line[2:])
        else:
            steps[-1][1].append(line)
    return [("\n".join(command), "\n".join(output)) for command, output in steps]


def check_console(block: str, folder: Path) -> None:
    """Each command of a console block succeeds and prints what the block shows."""
    for command, output in session(block):
        process = subprocess.run(
            ["sh", "-c", command],
            cwd=folder,
            env={"PATH": f"{COMMANDS}:/usr/bin:/bin", "PYTHONWARNINGS": "error", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert process.returncode == 0, f"{command}\n{process.stderr}"
        assert process.stdout.rstrip("\n") == output, command


def check_page(page: Path, folder: Path) -> int:
    """Saves each block behind "`NAME`:" under that name, and runs each console block. Returns how many commands ran."""
    commands = 0
    for _, name, language, text in BLOCK.findall(page.read_text("utf-8")):
        if name and language != "console":
            (folder / name).write_text(text, "utf-8")
        elif language == "console":
            check_console(text, folder)
            commands += len(session(text))
    return commands


def program_of(page: Path) -> str:
    """The Python blocks of a page as one program."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE))
