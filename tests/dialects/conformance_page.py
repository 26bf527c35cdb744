"""Writes docs/reference/conformance.md from the samples and the reviewed list of disagreements; run it as a script."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from disagreements import CLASSES, ELSEWHERE, ELSEWHERE_SOFT, LISTED, SOFT
from instructor_page import instructor_section
from vectors import CUTS, agrees, rows, see

from toolspeak.dialects.registry import FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"
ELSEWHERE_ROWS, ELSEWHERE_SOFT_ROWS = 288, 39
"""Rows of SGLang's tests that were run: with each of the cuts, all agree but those in the lists."""


def _kinds(listed: Mapping[str, tuple[str, str]]) -> Counter[str]:
    return Counter(kind for kind, _ in listed.values())


def _line(source: str, found: int, agreeing: list[int]) -> str:
    return f"| {source} | {found} | " + " | ".join(map(str, agreeing)) + " |"


MUTATIONS = Path(__file__).with_name("mutations.json")
"""What `make bench-mutations` counted."""
READERS = ("toolspeak", "vllm", "sglang")


def _sums(counted: list[dict[str, Any]], reader: str, beside: str) -> str:
    """A reader's figures for the dialects that `beside` reads too."""
    figures = [row[reader] for row in counted if row.get(beside)]
    return " / ".join(str(sum(each)) for each in zip(*figures, strict=True)) if figures else ""


def _mutations() -> list[str]:
    counted: list[dict[str, Any]] = json.loads(MUTATIONS.read_text("utf-8"))
    by_name = {row["dialect"]: row for row in counted}
    lines = [
        "## Damaged replies",
        "",
        "Replies of every dialect are damaged, cut, quoted and put into thoughts, and read by our parsers and by",
        "those of vLLM 0.33.0 and SGLang 0.5.23 (`make bench-mutations`). What a reply was meant to say is known",
        "from how it was made. Four things are counted: *calls lost* (a whole one has to run; a damaged one may be",
        "reported to the model instead), *calls invented* (examples and drafts that run), *wrong arguments run*",
        "(of calls that their tool takes), and replies whose *text is lost* or that show markup. The engines read",
        "whole replies, not streams, and have a reasoning parser where a reply thinks. A place is empty where an",
        "engine has no parser for the format, or needs a tokenizer for it. Apertus's inner part holds calls beside",
        "thoughts, by its format and its chat template: what is counted there as two drafts that run are its calls.",
        "",
        "| dialect | replies | ours: lost / invented / wrong / text | vLLM | SGLang |",
        "|---|---|---|---|---|",
    ]
    for family, names in FAMILIES.items():
        for name in names:
            row = by_name[name]
            told = (" / ".join(map(str, row[each])) if row.get(each) else "" for each in READERS)
            lines.append(f"| {name} ({family}) | {row['cases']} | {' | '.join(told)} |")
    for engine, title in (("vllm", "vLLM"), ("sglang", "SGLang")):
        found = [row for row in counted if row.get(engine)]
        theirs = ["", ""]
        theirs[READERS.index(engine) - 1] = f"**{_sums(counted, engine, engine)}**"
        replies = sum(row["cases"] for row in found)
        ours = _sums(counted, "toolspeak", engine)
        lines.append(f"| **all that {title} reads** | {replies} | **{ours}** | {' | '.join(theirs)} |")
    return [*lines, ""]


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
        *_mutations(),
        *instructor_section(),
        "## Each disagreement",
        "",
        "| case | class | reason |",
        "|---|---|---|",
        *(f"| {id} | {kind} | {why} |" for id, (kind, why) in every),  # noqa: A001
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
