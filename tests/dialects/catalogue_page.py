"""Writes docs/reference/dialects.md, and the table of grammars.md there, from the catalogue; run it as a script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import listing_sizes
from template_levels import LEVELS

from toolspeak.data.messages import ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, PROTOCOLS, TARGETS, Dialect, DialectInfo, Target, known_dialect
from toolspeak.errors import ConfigurationError

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "dialects.md"
GRAMMARS = PAGE.with_name("grammars.md")
_COUNTS = {"first_block": "the first block's", "last_call": "the last one", "all_calls": "all"}


def page() -> str:
    own = len(DIALECTS) - len(PROTOCOLS)
    aside = [dialect for dialect in DIALECTS if dialect.info.text_aside]
    lines = [
        "# Dialects",
        "",
        f"toolspeak speaks {len(PROTOCOLS)} published protocols, for models without a tool format of their own,",
        f"and {own} formats that models were trained on. A test keeps this page current; to generate it, run",
        "`python tests/dialects/catalogue_page.py`.",
        "",
        "**`auto`** reads all of them: it detects the dialect of each turn, and the batch's notes name it",
        "(`dialect:hermes`). If you give the name of the model, its own dialect comes first:",
        '`toolspeak parse --model Qwen/Qwen3-Coder-30B`, `get_dialect("auto", model="qwen3-coder:30b")`.',
        "`toolspeak dialects --model NAME` prints the dialect of a model.",
        "",
        "**Models** are recognised by their family, with which the name begins: `qwen3.6` covers",
        "`Qwen/Qwen3.6-27B-FP8`, and `minimax-m2.x` covers all versions of M2. Because formats change between",
        "versions, a new version is unknown until somebody adds it to the `models` of its dialect in",
        "`src/toolspeak/dialects`, and one of its names to the table in `tests/dialects/test_lookup.py`. The list",
        "covers the families that were available in November 2026 and whose format vLLM, SGLang or llama.cpp",
        "documents.",
        "",
        f"**Text after the calls** of a turn is part of the answer, except in {_names(aside)}. In these dialects",
        "the engines do not show it, so it is reported separately (`TextAside`; `toolspeak parse` prints it under",
        "`ignored`).",
        "",
        "**Tags in an argument** are preserved: the text of an argument stays as it is, byte for byte, even if it",
        "holds tags of the format, where engines end it at the first end tag. A text without its end tag does not",
        "swallow the next call: see *Tags in a value* in [the design](../design.md).",
        "",
        "**Damaged calls** are reported to the model, also if one character at the beginning of a call is wrong.",
        "There are two exceptions:",
        "",
        "- Two characters have changed places between the end of a marker and what it opens (`<|role_sep|\\n>`,",
        "  `<|START_ACTION|[>`, `<｜tool▁calls▁begin｜<>｜`, `<|tool_calls|<>|`). Both texts are damaged then, and",
        "  the rest looks like a call only as much as prose about calls does. Beside another call, it is text.",
        "- Without the name of a model, `auto` recognises such a call only by the names of tools and the keys of",
        "  arguments, in any dialect. It does not compare each line with the beginning of a call in each dialect,",
        "  because in some dialects that looks almost like prose or code, and because a code fence does not end a",
        "  call (`command-r-plus`).",
        "",
        (
            "| name | how calls are written | which count | arguments | results | reasoning | earlier thoughts "
            "| models | aliases | source |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for dialect in DIALECTS:
        info = dialect.info
        cells = [
            f"`{info.name}`",
            code(info.summary),
            _COUNTS[dialect.batch.counts],
            info.arguments,
            info.results.replace("<", "&lt;"),
            code(info.reasoning) if info.reasoning else "none",
            _earlier(info),
            ", ".join(info.models) or "any",
            ", ".join(f"`{alias}`" for alias in info.aliases) or "",
            info.source,
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join([*lines, *_template_lines(), "", *listing_sizes.lines()]) + "\n"


_LEVELS = {
    "whole": "the whole prompt",
    "block": "the tools' text",
    "other": "another template's",
    "none": "writes no tools",
    "to come": "not yet",
}


def _template_lines() -> list[str]:
    """What of each chat template is written as it writes it."""
    templates = [expected for expected in LEVELS.values() if expected.first != "none"]
    whole = sum(expected.first == "whole" for expected in templates)
    block = sum(expected.first == "block" for expected in templates)
    lines = [
        "",
        "## Prompts as trained",
        "",
        "The listing `trained` writes tools into the prompt as the model's own chat template does: with the same",
        "words, in the same place. It is the default where calls are text. The listings `prose`, `signatures` and",
        "`json_schema` use our own words, after instructions. If the template of a dialect is unknown, `trained`",
        "is the same as `prose`. To choose a listing, set `DialectSettings(listing=…)`, `--listing` of `toolspeak",
        "run`, `serve` and `dialects --show`, or `listing` of a model in the gateway's configuration. The name of",
        "the model decides which template is used; without it, the dialect uses that of its first family.",
        "",
        f"`make test-templates` renders {len(LEVELS)} chat templates. It compares the prompt that a template",
        "writes for a request with tools with the prompt that it writes for our messages. Both must be equal byte",
        "for byte, for a first request and for a request with a history, from an agent and through the gateway.",
        f"{len(templates)} of the templates write tools. For {whole} of them the whole prompt is equal. For {block}",
        "more the text of the tools is equal, but no message can express its place or its frame. If the table",
        "names a role, a conversation with calls and results is equal too, provided that results are messages of",
        "this role. The exception is a result that holds a marker of the dialect: the marker is escaped.",
        "",
        "| template | model | dialect | equal | with calls and results | what is not |",
        "|---|---|---|---|---|---|",
    ]
    for name, expected in LEVELS.items():
        dialect = known_dialect(expected.model)
        dialect_text = f"`{dialect.name}`" if dialect else "none"
        history = f"role `{expected.history}`" if expected.history else ""
        lines.append(
            f"| {name} | {expected.model} | {dialect_text} | {_LEVELS[expected.first]} | {history} | {expected.why} |"
        )
    return lines


def _earlier(info: DialectInfo) -> str:
    """What the model reads of what it thought before."""
    earlier = info.earlier
    if earlier is None:
        return "" if not info.reasoning else "left out"
    which = "kept" if earlier.keep == "always" else "kept after the last user message"
    return f"{which}, in turns with calls" if earlier.calls_only else which


def _names(dialects: Sequence[Dialect]) -> str:
    *most, last = (f"`{dialect.name}`" for dialect in dialects)
    return f"{', '.join(most)} and {last}"


def code(text: str) -> str:
    return f"``{text}``" if "`" in text else f"`{text}`"


_HEADING = "## Dialects and targets\n"
_TOOL = ToolSpec("read", "", {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]})


def grammars_page(page: str) -> str:
    """The page with a new table of each dialect's targets."""
    rows = [f"| `{dialect.name}` | {' | '.join(_has(dialect, target) for target in TARGETS)} |" for dialect in DIALECTS]
    head = [f"| dialect | {' | '.join(f'`{target}`' for target in TARGETS)} |", f"|---|{'---|' * len(TARGETS)}"]
    intro = (
        "The table applies to a tool with a text argument. `one` means that the target allows one call in a turn.\n"
        "`tests/dialects/catalogue_page.py` generates this table."
    )
    return page.partition(_HEADING)[0] + "\n".join([_HEADING, intro, "", *head, *rows]) + "\n"


def _has(dialect: Dialect, target: Target) -> str:
    for most, limit in ((None, "yes"), (1, "one")):
        try:
            dialect.grammar([_TOOL], ToolChoice("required"), target=target, max_calls=most)
        except ConfigurationError:
            continue
        return limit
    return ""


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    GRAMMARS.write_text(grammars_page(GRAMMARS.read_text("utf-8")), "utf-8")
