"""What a fuzzer found, one file a kind of fault, with the shortest text that still shows it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cases import Case

_CHANGING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[-\d.]+")
Check = Callable[[Case], None]


def kind_of(case: Case, error: Exception) -> str:
    """What two findings of the same fault share: the dialect, and the message without what the text made of it."""
    message = _CHANGING.sub("_", f"{type(error).__name__} {error}".partition("\n")[0][:160])
    message = re.sub(r"_(?:, _)+", "_", message)
    return re.sub(r"\W+", "-", f"{case.dialect.name} {message}").strip("-")[:100]


def shorten(case: Case, check: Check, kind: str, seconds: float = 20.0) -> Case:
    """The case with as little text as shows the same fault, tried for about this long."""
    best, until = case, time.monotonic() + seconds
    size = max(len(best.text) // 2, 1)
    while size:
        at, before = 0, len(best.text)
        while at < len(best.text) and time.monotonic() < until:
            shorter = replace(best, text=best.text[:at] + best.text[at + size :], stop=min(best.stop, at))
            for each in (shorter, replace(shorter, stop=max(best.stop - size, 0))):
                if _shows(replace(each, words=tuple(w for w in each.words if w in each.text)), check, kind):
                    best = replace(each, words=tuple(w for w in each.words if w in each.text))
                    break
            else:
                at += size
        size = size // 2 if size > 1 or len(best.text) == before else size
        if time.monotonic() > until:
            break
    return best


def _shows(case: Case, check: Check, kind: str) -> bool:
    try:
        check(case)
    except Exception as error:  # noqa: BLE001 (whatever a parser raises is what we look for)
        return kind_of(case, error) == kind
    return False


class Findings:
    """A folder of findings."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, case: Case, check: Check) -> bool:
        """Checks the case; a fault is kept if it is the first of its kind. True where all is well."""
        try:
            check(case)
        except Exception as error:  # noqa: BLE001
            self._keep(case, check, error)
            return False
        return True

    def _keep(self, case: Case, check: Check, error: Exception) -> None:
        kind = kind_of(case, error)
        path = self._folder / f"{kind}.json"
        if path.exists():
            return
        shortest = shorten(case, check, kind)
        try:
            check(shortest)
        except Exception as again:  # noqa: BLE001
            error = again
        finding = {
            "dialect": shortest.dialect.name,
            "text": shortest.text,
            "fault": f"{type(error).__name__}: {error}",
            "tools": [spec.name for spec in shortest.tools],
            "finish": shortest.finish,
            "starts_in": shortest.starts_in,
            "keep_reasoning": shortest.keep_reasoning,
            "cuts": shortest.cuts,
            "stop": shortest.stop,
            "words": shortest.words,
        }
        path.write_text(json.dumps(finding, indent=1) + "\n", encoding="utf-8")
        print(f"FOUND {kind}\n  {finding['text']!r}\n  {finding['fault']}", flush=True)
