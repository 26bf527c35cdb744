"""The same cases made up by `hypothesis`: no coverage, but texts of more structure, and another kind of chance.

python fuzz/made_up.py --family json --seconds 600 --work .fuzz
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from cases import AGAIN, FRAGMENT, GROUPS, HEADER, WORD, decode
from checks import check_case, check_growth
from findings import Findings
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

_BYTE = st.integers(0, 255)
_PIECES = st.one_of(
    st.builds(lambda n: bytes((FRAGMENT, n)), _BYTE),
    st.builds(lambda n: bytes((FRAGMENT, n)), st.integers(0, 40)),  # markers and whole calls
    st.builds(lambda n: bytes((FRAGMENT, n, WORD)), _BYTE),
    st.builds(lambda n, again: bytes((FRAGMENT, n, AGAIN, again)), _BYTE, _BYTE),
    st.text(max_size=4).map(lambda text: text.encode("utf-8", "replace")),
    st.binary(max_size=2),
)
CASES = st.builds(
    lambda head, pieces: head + b"".join(pieces),
    st.binary(min_size=HEADER, max_size=HEADER),
    st.lists(_PIECES, max_size=30),
)
SETTINGS = settings(
    max_examples=1_000,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--family", choices=list(GROUPS), required=True)
    options.add_argument("--seconds", type=int, default=600, help="of CPU time")
    options.add_argument("--work", type=Path, default=Path(".fuzz"))
    arguments = options.parse_args()
    dialects = GROUPS[arguments.family]
    findings = Findings(arguments.work / "findings")
    runs, began, until = 0, time.process_time(), time.process_time() + arguments.seconds

    @SETTINGS
    @given(CASES)
    def one(data: bytes) -> None:
        nonlocal runs
        if time.process_time() > until:
            return
        runs += 1
        case = decode(data, dialects)
        if findings.run(case, check_case) and runs % 499 == 0:
            findings.run(case, lambda each: check_growth(each, runs))

    while time.process_time() < until:
        one()
    print(f"{arguments.family}: {runs} runs in {time.process_time() - began:.0f} s of CPU time, made up", flush=True)


if __name__ == "__main__":
    main()
