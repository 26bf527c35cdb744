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
        f"{len(PROTOCOLS)} published protocols, for models that know no format of their own, and {own} formats that",
        "models were trained on. Made by `python tests/dialects/catalogue_page.py`; a test keeps it current.",
        "",
        "`auto` stands for all of them: it reads whichever a turn is in (`dialect:hermes` in the notes says",
        "which), a model's own first if it is told the model's name: `toolspeak parse --model Qwen/Qwen3-Coder-30B`,",
        '`get_dialect("auto", model="qwen3-coder:30b")`. `toolspeak dialects --model NAME` says which one a model has.',
        "A model is known by its family, which is the beginning of its name: `qwen3.6` covers `Qwen/Qwen3.6-27B-FP8`,",
        "`minimax-m2.x` all of M2. A new version is known once it is named, as formats change: add it to the `models`",
        "of its dialect in `src/toolspeak/dialects`, with a name to the table in `tests/dialects/test_lookup.py`. The",
        "families are those that were out in November 2026, as far as vLLM, SGLang or llama.cpp say what they write.",
        "",
        f"Text behind the calls of a turn is part of the answer, but not in {_names(aside)}:",
        "engines show none there, so it is set aside (`TextAside`; `toolspeak parse` has it under `ignored`).",
        "",
        "An argument's text stays byte for byte, also where it holds tags of the format: engines end it at the first",
        "end tag. A text without its end swallows no other call: see *Tags in a value* in [the design](../design.md).",
        "",
        "The model is told of a call whose beginning has one wrong character, with two exceptions. Two characters that",
        "change places between the end of a marker and what it opens (`<|role_sep|\\n>`, `<|START_ACTION|[>`,",
        "`<｜tool▁calls▁begin｜<>｜`, `<|tool_calls|<>|`) damage both, and what is left is as far from a call as prose",
        "about one; beside another call it is text. Without a model's name `auto` tells such a call by tools' names",
        "and the keys of arguments, in any dialect. It does not compare each line with how each dialect begins a call,",
        "for some begin them nearly as prose and code begin, and a code fence ends no call (`command-r-plus`).",
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
    return "\n".join([*lines, *_trained(), "", *listing_sizes.lines()]) + "\n"


_LEVELS = {
    "whole": "the whole prompt",
    "block": "the tools' text",
    "other": "another template's",
    "none": "writes no tools",
    "to come": "not yet",
}


def _trained() -> list[str]:
    """What of each chat template is written as it writes it."""
    listed = [expected for expected in LEVELS.values() if expected.first != "none"]
    whole = sum(expected.first == "whole" for expected in listed)
    block = sum(expected.first == "block" for expected in listed)
    lines = [
        "",
        "## Prompts as trained",
        "",
        "Where calls are text, a prompt lists the tools as the chat template of the model writes them (the listing",
        "`trained`): in its words and its place. `prose`, `signatures` and `json_schema` list them in ours, behind",
        "instructions; a dialect whose template is not known has `prose`. The option is",
        "`DialectSettings(listing=…)`, `--listing` of `toolspeak run`, `serve` and `dialects --show`, and `listing` of",
        "a model in the gateway's",
        "configuration. A model's template is chosen by its name; a dialect by itself has that of its first family.",
        "",
        f"`make test-templates` renders {len(LEVELS)} chat templates and compares: *the prompt that a template writes",
        "of the tools is the prompt that it writes of our messages*, byte for byte, for a first request and for one",
        f"with a history, from an agent and through the gateway. Of the {len(listed)} that write tools, it is the",
        f"whole prompt in {whole} and the text of the tools in {block} more, where no message can say its place or its",
        "frame. A conversation with calls and results is whole too where a role is named: that of the messages with",
        "results.",
        "Results that hold a marker of the dialect are the exception: it is escaped there.",
        "",
        "| template | model | dialect | equal | with calls and results | what is not |",
        "|---|---|---|---|---|---|",
    ]
    for name, expected in LEVELS.items():
        dialect = known_dialect(expected.model)
        known = f"`{dialect.name}`" if dialect else "none"
        history = f"role `{expected.history}`" if expected.history else ""
        lines.append(
            f"| {name} | {expected.model} | {known} | {_LEVELS[expected.first]} | {history} | {expected.why} |"
        )
    return lines


def _earlier(info: DialectInfo) -> str:
    """What the model reads of what it thought before."""
    earlier = info.earlier
    if earlier is None:
        return "" if not info.reasoning else "left out"
    which = "kept" if earlier.keep == "always" else "kept behind the last user message"
    return f"{which}, in turns with calls" if earlier.calls_only else which


def _names(dialects: Sequence[Dialect]) -> str:
    *most, last = (f"`{dialect.name}`" for dialect in dialects)
    return f"{', '.join(most)} and {last}"


def code(text: str) -> str:
    return f"``{text}``" if "`" in text else f"`{text}`"


_HEADING = "## Dialects and targets\n"
_TOOL = ToolSpec("read", "", {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]})


def grammars_page(page: str) -> str:
    """The page with its table made anew: which targets each dialect has."""
    rows = [f"| `{dialect.name}` | {' | '.join(_has(dialect, target) for target in TARGETS)} |" for dialect in DIALECTS]
    head = [f"| dialect | {' | '.join(f'`{target}`' for target in TARGETS)} |", f"|---|{'---|' * len(TARGETS)}"]
    intro = (
        "For a tool with a text argument. `one`: for one call in a turn. Made by `tests/dialects/catalogue_page.py`."
    )
    return page.partition(_HEADING)[0] + "\n".join([_HEADING, intro, "", *head, *rows]) + "\n"


def _has(dialect: Dialect, target: Target) -> str:
    for most, said in ((None, "yes"), (1, "one")):
        try:
            dialect.grammar([_TOOL], ToolChoice("required"), target=target, max_calls=most)
        except ConfigurationError:
            continue
        return said
    return ""


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    GRAMMARS.write_text(grammars_page(GRAMMARS.read_text("utf-8")), "utf-8")
