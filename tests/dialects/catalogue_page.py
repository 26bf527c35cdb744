"""Writes docs/dialects.md, and the table in docs/grammars.md, from the catalogue; run it as a script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from toolspeak.data.messages import ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, PROTOCOLS, TARGETS, Dialect, Target
from toolspeak.errors import UsageError

PAGE = Path(__file__).parents[2] / "docs" / "dialects.md"
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
        "",
        f"Text behind the calls of a turn is part of the answer, but not in {_names(aside)}:",
        "engines show none there, so it is set aside (`TextAside`; `toolspeak parse` has it under `ignored`).",
        "",
        "An argument's text stays byte for byte, also where it holds tags of the format: engines end it at the first",
        "end tag. A text without its end swallows no other call: see *Tags in a value* in [the design](design.md).",
        "",
        "| name | how calls are written | which count | arguments | results | reasoning | models | aliases | source |",
        "|---|---|---|---|---|---|---|---|---|",
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
            ", ".join(info.models) or "any",
            ", ".join(f"`{alias}`" for alias in info.aliases) or "",
            info.source,
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


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
        except UsageError:
            continue
        return said
    return ""


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    GRAMMARS.write_text(grammars_page(GRAMMARS.read_text("utf-8")), "utf-8")
