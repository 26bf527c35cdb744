"""The styles of the conversation. They use the terminal's own sixteen colours, which its user has chosen."""

from __future__ import annotations

from collections.abc import Mapping

STYLES: Mapping[str, str] = {
    "user": "bold ansicyan",
    "said": "bold",
    "note": "dim",
    "hint": "dim",
    "warning": "ansiyellow",
    "error": "ansired",
    "done": "ansigreen",
    "failed": "bold ansired",
    "call": "bold ansicyan",
    "output": "dim",
    "thought": "dim italic",
    "question": "bold ansiyellow",
    "strong": "bold",
    "prompt": "bold ansicyan",
    "prompt.answer": "bold ansiyellow",
    "status": "dim",
    "status.busy": "ansicyan",
    "status.asks": "bold ansiyellow",
    "spinner": "ansicyan",
    "md.h1": "bold underline",
    "md.h2": "bold",
    "md.h3": "bold italic",
    "md.strong": "bold",
    "md.emphasis": "italic",
    "md.strike": "strike",
    "md.code": "ansicyan",
    "md.link": "underline",
    "md.address": "dim",
    "md.marker": "ansicyan",
    "md.quote": "dim",
    "md.rule": "dim",
    "code": "",
    "code.comment": "ansibrightblack italic",
    "code.keyword": "ansimagenta",
    "code.string": "ansigreen",
    "code.number": "ansicyan",
    "code.function": "ansiblue",
    "code.builtin": "ansicyan",
    "diff.heading": "bold",
    "diff.place": "ansicyan",
    "diff.added": "ansigreen",
    "diff.removed": "ansired",
    "completion-menu": "noinherit",
    "completion-menu.completion": "",
    "completion-menu.completion.current": "reverse",
    "completion-menu.meta.completion": "dim",
    "completion-menu.meta.completion.current": "reverse",
}
"""The style of each class, in prompt_toolkit's words."""

_CLASSES: Mapping[str, str] = {
    "green": "class:diff.added",
    "red": "class:diff.removed",
    "cyan": "class:diff.place",
    "bold": "class:strong",
    "bold yellow": "class:question",
    "yellow": "class:warning",
    "dim": "class:note",
}


def theme_class(style: str) -> str:
    """The class for a style of `ui.format` and `ui.question`."""
    return _CLASSES.get(style, "")
