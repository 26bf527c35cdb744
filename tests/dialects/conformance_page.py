"""Writes docs/reference/conformance.md from the samples and the reviewed list of disagreements; run it as a script."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from disagreements import CLASSES, DISAGREEMENTS, ELSEWHERE, ELSEWHERE_SOFT, SOFT
from instructor_page import instructor_section
from vectors import CUTS, agrees, rows, see

from toolspeak.dialects.registry import FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"
ELSEWHERE_ROWS, ELSEWHERE_SOFT_ROWS = 288, 39
"""Rows of SGLang's tests that were run: with each of the cuts, all agree but those in the lists."""


def _kinds(disagreements: Mapping[str, tuple[str, str]]) -> Counter[str]:
    return Counter(kind for kind, _ in disagreements.values())


def _line(source: str, count: int, agreeing: list[int]) -> str:
    return f"| {source} | {count} | " + " | ".join(map(str, agreeing)) + " |"


MUTATIONS = Path(__file__).with_name("mutations.json")
"""What `make bench-mutations` counted."""
READERS = ("toolspeak", "vllm", "sglang")


def _sums(rows: list[dict[str, Any]], reader: str, beside: str) -> str:
    """A reader's figures for the dialects that `beside` reads too."""
    figures = [row[reader] for row in rows if row.get(beside)]
    return " / ".join(str(sum(each)) for each in zip(*figures, strict=True)) if figures else ""


def _mutations() -> list[str]:
    every_row: list[dict[str, Any]] = json.loads(MUTATIONS.read_text("utf-8"))
    by_name = {row["dialect"]: row for row in every_row}
    lines = [
        "## Damaged replies",
        "",
        "`make bench-mutations` takes replies of every dialect and damages them, cuts them off, quotes them or",
        "moves them into reasoning. It then reads them with our parsers and those of vLLM 0.33.0 and SGLang 0.5.23.",
        "The benchmark made each reply, so it knows the correct result. It counts four kinds of mistakes:",
        "",
        "- *lost*: a call that does not run. A damaged call counts as lost only if the model also gets no report",
        "  of it.",
        "- *invented*: an example or a draft that runs.",
        "- *wrong*: a call that runs with wrong arguments that its tool accepts.",
        "- *text*: a reply that loses some of its text or shows markup.",
        "",
        "The engines read whole replies instead of streams. If a reply has reasoning, they use a reasoning parser.",
        "A cell is empty if the engine has no parser for the format or needs a tokenizer for it. Apertus is a",
        "special case: its format and its chat template allow calls inside reasoning. The two drafts that count as",
        "invented there are real calls.",
        "",
        "| dialect | replies | ours: lost / invented / wrong / text | vLLM | SGLang |",
        "|---|---|---|---|---|",
    ]
    for family, names in FAMILIES.items():
        for name in names:
            row = by_name[name]
            columns = (" / ".join(map(str, row[each])) if row.get(each) else "" for each in READERS)
            lines.append(f"| {name} ({family}) | {row['cases']} | {' | '.join(columns)} |")
    for engine, title in (("vllm", "vLLM"), ("sglang", "SGLang")):
        rows = [row for row in every_row if row.get(engine)]
        theirs = ["", ""]
        theirs[READERS.index(engine) - 1] = f"**{_sums(rows, engine, engine)}**"
        replies = sum(row["cases"] for row in rows)
        ours = _sums(rows, "toolspeak", engine)
        lines.append(f"| **all that {title} reads** | {replies} | **{ours}** | {' | '.join(theirs)} |")
    return [*lines, ""]


def page() -> str:
    firm = [row for row in rows() if not row.get("soft")]
    soft = [row for row in rows() if row.get("soft")]
    scores, soft_scores = ([sum(agrees(see(row, cut), row) for row in group) for cut in CUTS] for group in (firm, soft))
    other = [ELSEWHERE_ROWS - len(ELSEWHERE)] * len(CUTS)
    soft_other = [ELSEWHERE_SOFT_ROWS - len(ELSEWHERE_SOFT)] * len(CUTS)
    counts = [_kinds(each) for each in (DISAGREEMENTS, ELSEWHERE, {**SOFT, **ELSEWHERE_SOFT})]
    every = sorted({**DISAGREEMENTS, **ELSEWHERE, **SOFT, **ELSEWHERE_SOFT}.items())
    lines = [
        "# Conformance",
        "",
        "This page compares how our dialects and the parsers of other engines read the same replies. The cases",
        "come from the engines' own tests. The cases of llama.cpp and vLLM are in `tests/samples`. We also ran",
        "SGLang's cases, but they are not part of the project. If our result for a case differs from the engine's,",
        "a reviewed list gives the reason. A test checks every case in `tests/samples` against its recorded verdict,",
        "both as whole text and in pieces. `python tests/dialects/conformance_page.py` generates this page, and a",
        "test keeps it current.",
        "",
        "| source | cases | " + " | ".join(CUTS) + " |",
        "|---|---|" + "---|" * len(CUTS),
        _line("llama.cpp, vLLM", len(firm), scores),
        _line("SGLang", ELSEWHERE_ROWS, other),
        _line("malformed input, llama.cpp and vLLM", len(soft), soft_scores),
        _line("malformed input, SGLang", ELSEWHERE_SOFT_ROWS, soft_other),
        "",
        "The last four columns count the cases in which we agree with the engine. Their headings say how the reply",
        "is split. A case of malformed input only records what its engine does. A different result is not a",
        "disagreement, but it is on the list. If the text of a finished reply shows that it begins inside reasoning",
        "(`section_of_reply`), we read it that way. `toolspeak parse` decides in the same way.",
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
