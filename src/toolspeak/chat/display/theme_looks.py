"""The looks of a configuration's `[theme]` for the screen of the conversation."""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style

from toolspeak.chat.display.theme import STYLES
from toolspeak.ui.console import style_of


def styles_with(theme: Mapping[str, str]) -> dict[str, str]:
    """The styles of the screen, with the theme's look for each style that it names (`green`, `bold`, `dim`, …). Raises
    ConfigurationError for a look that is none."""
    looks = {name: _words(style_of(name, look)) for name, look in theme.items()}
    return {
        each: " ".join(looks.get(word.removeprefix("ansi"), word) for word in words.split())
        for each, words in STYLES.items()
    }


def _words(style: Style) -> str:
    """A style of rich in prompt_toolkit's words."""
    names = ("bold", "dim", "italic", "underline", "reverse", "strike")
    words = [name for name in names if getattr(style, name)]
    for color, prefix in ((style.color, ""), (style.bgcolor, "bg:")):
        if color is not None:
            words.append(prefix + (color.get_truecolor().hex if not color.is_default else "default"))
    return " ".join(words)
