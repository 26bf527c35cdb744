"""Fuzzing guided by coverage: `atheris` mutates the bytes of `cases.py` towards code of the parsers not yet reached.

    python fuzz/coverage_guided.py --family json --seconds 600 --work .fuzz

Faults go to `WORK/findings`, the corpus stays in `WORK/corpus/FAMILY` and is taken up again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["toolspeak.dialects"]):
    from cases import GROUPS, decode, seeds

from checks import check_case, check_growth
from findings import Findings

GROWTH_EVERY = 997
"""A long text takes as long as a thousand short ones, counted as they are."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--family", choices=list(GROUPS), required=True)
    options.add_argument("--seconds", type=int, default=600, help="of CPU time")
    options.add_argument("--work", type=Path, default=Path(".fuzz"))
    arguments = options.parse_args()
    dialects = GROUPS[arguments.family]
    findings = Findings(arguments.work / "findings")
    corpus = arguments.work / "corpus" / arguments.family
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in seeds(dialects):
        (corpus / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
    runs, began, until = 0, time.process_time(), time.process_time() + arguments.seconds

    def one(data: bytes) -> None:
        nonlocal runs
        if time.process_time() > until:
            print(
                f"{arguments.family}: {runs} runs in {time.process_time() - began:.0f} s of CPU time, guided",
                flush=True,
            )
            os._exit(0)  # the fuzzer's own end tells nothing of ours, and skips every exit handler likewise
        runs += 1
        case = decode(data, dialects)
        sound = findings.run(case, check_case)
        if sound and runs % GROWTH_EVERY == 0:
            findings.run(case, lambda each: check_growth(each, runs))

    flags = ["-max_len=600", f"-artifact_prefix={arguments.work}/", "-timeout=60", "-rss_limit_mb=2048", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *flags, str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
