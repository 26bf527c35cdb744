"""Compares one program in three libraries: its lines, its type errors, and what a killed process leaves.

    python benchmarks/beside/compare.py --others PYTHON

PYTHON has the two other libraries. The exit code is 1 if the table in docs/explanation/beside-others.md differs.
Without --others, only toolspeak's program runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "explanation" / "beside-others.md"
LIBRARIES = {"toolspeak": "toolspeak", "pydantic_ai": "pydantic-ai-slim", "openai_agents": "openai-agents"}
"""The package of each program."""
KILLS = {
    "during the read": ("read", 0),
    "during the write, after its effect": ("write", 1),
    "after the write, while the model answers": ("answer", 1),
}
"""The place where the process is killed, and the start of the program at which this happens."""
ANSWER = "item='pear' quantity=20"


def lines(library: str) -> int:
    return sum(bool(line.strip()) for line in (HERE / f"shop_{library}.py").read_text("utf-8").splitlines())


def after_a_kill(library: str, python: str, place: str, at: int) -> tuple[int, int]:
    """Returns how often the order is placed and the model called if the process is killed and the program restarted."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, environment = Path(temporary), {**os.environ, "PYTHONPATH": str(HERE)}
        for start in range(5):
            process = subprocess.run(
                [python, str(HERE / f"shop_{library}.py"), *(["yes"] if start else [])],
                cwd=folder,
                env={**environment, "KILL_AT": place} if start == at else environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if (process.returncode != 0) != (start == at):
                raise SystemExit(f"shop_{library}.py, start {start}: {process.stdout}{process.stderr}")
            if ANSWER in process.stdout:
                counts = [(folder / name).read_text("utf-8").count("\n") for name in ("orders.txt", "requests.txt")]
                return counts[0], counts[1]
    raise SystemExit(f"shop_{library}.py gave no answer in five starts")


def mistakes_found(library: str, python: str) -> str:
    """Returns how many marked lines have a type error. Fails if another line has one."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for path in (*HERE.glob(f"*_{library}.py"), HERE / "shop.py"):
            (folder / path.name).write_text(path.read_text("utf-8"), "utf-8")
        (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}', "utf-8")
        command = [sys.executable, "-m", "pyright", "-p", str(folder), "--pythonpath", python, "--outputjson"]
        report = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    errors = {(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in report["generalDiagnostics"]}
    name = f"mistakes_{library}.py"
    source = (HERE / name).read_text("utf-8").splitlines()
    marked_lines = {(name, number) for number, line in enumerate(source, 1) if "# wrong" in line}
    if errors - marked_lines:
        raise SystemExit(f"unexpected type errors: {sorted(errors - marked_lines)}")
    return f"{len(errors)} of {len(marked_lines)}"


def version(package: str, python: str) -> str:
    source = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
    return subprocess.run([python, "-c", source], capture_output=True, text=True, check=True).stdout.strip()


def row(title: str, cells: Sequence[object]) -> str:
    return f"| {title} | {' | '.join(map(str, cells))} |"


def table(pythons: dict[str, str]) -> list[str]:
    rows = [
        row(
            "",
            [f"{LIBRARIES[name].removesuffix('-slim')} {version(LIBRARIES[name], pythons[name])}" for name in pythons],
        ),
        row("---", ["---"] * len(pythons)),
        row("lines of the program", [lines(name) for name in pythons]),
        row("mistakes that pyright finds", [mistakes_found(name, pythons[name]) for name in pythons]),
    ]
    for title, (place, at) in KILLS.items():
        counts = [after_a_kill(name, pythons[name], place, at) for name in pythons]
        rows.append(row(f"killed {title}: orders placed", [orders for orders, _ in counts]))
        rows.append(row(f"killed {title}: model requests", [requests for _, requests in counts]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--others", help="a Python that has pydantic-ai and openai-agents")
    others = parser.parse_args().others
    if others is None:
        counts = [after_a_kill("toolspeak", sys.executable, place, at) for place, at in KILLS.values()]
        columns = [line.split("|")[2].strip() for line in PAGE.read_text("utf-8").splitlines() if "| killed" in line]
        if columns != [str(count) for pair in counts for count in pair]:
            sys.exit(f"{PAGE} says {columns}, and toolspeak's program leaves {counts}")
        return
    rows = table({"toolspeak": sys.executable, "pydantic_ai": others, "openai_agents": others})
    print("\n".join(rows))
    if "\n".join(rows) not in PAGE.read_text("utf-8"):
        sys.exit(f"{PAGE} has another table")


if __name__ == "__main__":
    main()
