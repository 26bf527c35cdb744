"""All families one after the other, guided by coverage and made up; the time is shared out among them.

    python fuzz/run.py --seconds 3600 [--work .fuzz]

Ends with 1 if there are findings, and shows them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from cases import GROUPS

HERE = Path(__file__).parent
SHARES = {"coverage_guided.py": 0.75, "made_up.py": 0.25}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=int, default=3600, help="of CPU time, in total")
    options.add_argument("--work", type=Path, default=Path(".fuzz"), help="corpus and findings; kept between runs")
    arguments = options.parse_args()
    has_failed = False
    for family, dialects in GROUPS.items():
        for script, share in SHARES.items():
            every = sum(map(len, GROUPS.values()))
            seconds = max(int(arguments.seconds * share * len(dialects) / every), 5)
            command = [sys.executable, str(HERE / script), "--family", family, "--seconds", str(seconds)]
            print(f"{family}: {script} for {seconds} s", flush=True)
            process = subprocess.run([*command, "--work", str(arguments.work)], check=False, stderr=subprocess.DEVNULL)
            if process.returncode:
                print(f"{family}: {script} ended with {process.returncode}")
                has_failed = True
    paths = sorted((arguments.work / "findings").glob("*.json"))
    for path in paths:
        finding = json.loads(path.read_text(encoding="utf-8"))
        print(f"{path}\n  {finding['text']!r}\n  {finding['fault']}")
    print(f"{len(paths)} findings")
    sys.exit(bool(paths) or has_failed)


if __name__ == "__main__":
    main()
