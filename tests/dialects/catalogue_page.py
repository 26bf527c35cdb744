"""Writes docs/dialects.md from the catalogue; run it as a script."""

from __future__ import annotations

from pathlib import Path

from toolspeak.dialects import DIALECTS, PROTOCOLS

PAGE = Path(__file__).parents[2] / "docs" / "dialects.md"
_COUNTS = {"first_block": "the first block's", "last_call": "the last one", "all_calls": "all"}


def page() -> str:
    own = len(DIALECTS) - len(PROTOCOLS)
    lines = [
        "# Dialects",
        "",
        f"{len(PROTOCOLS)} published protocols, for models that know no format of their own, and {own} formats that",
        "open models were trained on. Made by `python tests/dialects/catalogue_page.py`; a test keeps it current.",
        "",
        "`auto` stands for all of them: it reads whichever a turn is in (`dialect:hermes` in the notes says",
        "which), a model's own first if it is told the model's name: `toolspeak parse --model Qwen/Qwen3-Coder-30B`,",
        '`get_dialect("auto", model="qwen3-coder:30b")`. `toolspeak dialects --model NAME` says which one a model has.',
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


def code(text: str) -> str:
    return f"``{text}``" if "`" in text else f"`{text}`"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
