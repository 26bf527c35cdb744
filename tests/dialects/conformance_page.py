"""Writes docs/conformance.md from the samples and the reviewed list of disagreements; run it as a script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from disagreements import CLASSES, COUNTED, ELSEWHERE, ELSEWHERE_SOFT, LISTED, SOFT
from vectors import CUTS, agrees, rows, see

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
ELSEWHERE_ROWS, ELSEWHERE_SOFT_ROWS = 288, 39
"""Rows of SGLang's tests that were run: with each of the cuts, all agree but those in the lists."""


def _kinds(listed: Mapping[str, tuple[str, str]]) -> Counter[str]:
    return Counter(kind for kind, _ in listed.values())


def _against(listed: Mapping[str, tuple[str, str]], found: int) -> str:
    number = sum(_kinds(listed)[kind] for kind in COUNTED)
    return f"{number} of {found} ({100 * number / found:.1f} %)"


def _line(source: str, found: int, agreeing: list[int]) -> str:
    return f"| {source} | {found} | " + " | ".join(map(str, agreeing)) + " |"


def page() -> str:
    firm = [row for row in rows() if not row.get("soft")]
    soft = [row for row in rows() if row.get("soft")]
    scores, soft_scores = ([sum(agrees(see(row, cut), row) for row in group) for cut in CUTS] for group in (firm, soft))
    other = [ELSEWHERE_ROWS - len(ELSEWHERE)] * len(CUTS)
    soft_other = [ELSEWHERE_SOFT_ROWS - len(ELSEWHERE_SOFT)] * len(CUTS)
    counts = [_kinds(each) for each in (LISTED, ELSEWHERE, {**SOFT, **ELSEWHERE_SOFT})]
    every = sorted({**LISTED, **ELSEWHERE, **SOFT, **ELSEWHERE_SOFT}.items())
    lines = [
        "# Conformance",
        "",
        "How the dialects read the test cases of other engines: `tests/samples` holds those of llama.cpp and vLLM;",
        "those of SGLang are run beside them and are no part of the project. Where two readings differ, a reviewed",
        "list says why, and a test holds every case to its verdict, however it is cut.",
        "Made by `python tests/dialects/conformance_page.py`; a test keeps it current.",
        "",
        "| source | cases | " + " | ".join(CUTS) + " |",
        "|---|---|" + "---|" * len(CUTS),
        _line("llama.cpp, vLLM", len(firm), scores),
        _line("SGLang", ELSEWHERE_ROWS, other),
        _line("malformed input, llama.cpp and vLLM", len(soft), soft_scores),
        _line("malformed input, SGLang", ELSEWHERE_SOFT_ROWS, soft_other),
        "",
        "For malformed input a case tells what its engine does with it; another answer is no disagreement, and stands",
        "in the list all the same. A case of a finished reply begins inside reasoning if the reply shows it",
        "(`section_of_reply`), as `toolspeak parse` reads it.",
        "",
        "| where we differ | llama.cpp, vLLM | SGLang | malformed input | |",
        "|---|---|---|---|---|",
        *(f"| {kind} | {' | '.join(f'{each[kind]}' for each in counts)} | {text} |" for kind, text in CLASSES.items()),
        "",
        f"What may be held against us ({', '.join(COUNTED)}): {_against(LISTED, len(firm))} of llama.cpp's and vLLM's",
        f"cases, {_against(ELSEWHERE, ELSEWHERE_ROWS)} of SGLang's. The other classes follow from what is promised of",
        "every dialect, or from what the case does not say.",
        "",
        "| case | class | reason |",
        "|---|---|---|",
        *(f"| {id} | {kind} | {why} |" for id, (kind, why) in every),  # noqa: A001
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
