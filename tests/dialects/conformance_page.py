"""Writes docs/conformance.md from the samples and the reviewed list of disagreements; run it as a script."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from disagreements import CLASSES, COUNTED, ELSEWHERE, LISTED
from vectors import CUTS, agrees, rows, see

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
ELSEWHERE_ROWS = 327
"""Rows of SGLang's tests that were run: with each of the cuts, all agree but those in the list."""


def counted() -> list[str]:
    """The listed cases that may be held against us; in a soft one the input itself is malformed."""
    soft = {row["id"] for row in rows() if row.get("soft")}
    return [case for case, (kind, _) in LISTED.items() if kind in COUNTED and case not in soft]


def page() -> str:
    found = rows()
    scores = {cut: sum(agrees(see(row, cut), row) for row in found) for cut in CUTS}
    own, other = Counter(kind for kind, _ in LISTED.values()), Counter(kind for kind, _ in ELSEWHERE.values())
    against = sum(other[kind] for kind in COUNTED)
    equal = [f"{scores[cut]}" for cut in CUTS]
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
        f"| llama.cpp, vLLM | {len(found)} | " + " | ".join(equal) + " |",
        f"| SGLang | {ELSEWHERE_ROWS} | " + " | ".join([str(ELSEWHERE_ROWS - len(ELSEWHERE))] * len(CUTS)) + " |",
        "",
        "| where we differ | llama.cpp, vLLM | SGLang | |",
        "|---|---|---|---|",
        *(f"| {kind} | {own[kind]} | {other[kind]} | {meaning} |" for kind, meaning in CLASSES.items()),
        "",
        f"What may be held against us ({', '.join(COUNTED)}): {len(counted())} of llama.cpp's and vLLM's {len(found)}",
        f"cases, besides malformed input; of SGLang's {ELSEWHERE_ROWS}, malformed input among them, {against}.",
        "",
        "| case | class | reason |",
        "|---|---|---|",
        *(f"| {id} | {kind} | {why} |" for id, (kind, why) in sorted({**LISTED, **ELSEWHERE}.items())),  # noqa: A001
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
