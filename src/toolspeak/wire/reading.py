"""Reading JSON that a server or a client sent: what it is, or an error that names the place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolspeak.data.messages import JSON
from toolspeak.errors import ProviderError


def as_object(value: JSON, what: str) -> dict[str, JSON]:
    """Raises ProviderError naming `what` if it is no object."""
    if not isinstance(value, dict):
        raise ill_formed(what, "an object", value)
    return cast("dict[str, JSON]", value)


def as_list(value: JSON, what: str) -> list[JSON]:
    """None is the empty list. Raises ProviderError naming `what` if it is no list."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ill_formed(what, "a list", value)
    return cast("list[JSON]", value)


def as_text(value: JSON, what: str) -> str:
    """None is the empty text. Raises ProviderError naming `what` if it is no text."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ill_formed(what, "text", value)
    return value


def count(counts: JSON, field: str) -> int | None:
    """A number of tokens. One that is none is unknown: no reason to throw a good answer away."""
    value = cast("dict[str, JSON]", counts).get(field) if isinstance(counts, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def ill_formed(what: str, expected: str, found: JSON) -> ProviderError:
    return ProviderError(
        f"the server sent an ill-formed answer: {what} should be {expected}, found {shown(found)}", code="ill_formed"
    )


def shown(value: JSON) -> str:
    """`null`, `'text'`, `a list`, `an object`, …: short whatever the value."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(shortened(value, 60))
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    return "a number" if not isinstance(value, bool) else str(value).lower()


def shortened(text: str, limit: int = 300) -> str:
    """One line of at most `limit` characters, without control characters."""
    printable = "".join(c if c.isprintable() else " " for c in text[: 2 * limit])
    collapsed = " ".join(printable.split())
    return collapsed if len(collapsed) <= limit else collapsed[: limit - 1] + "…"


def without_lone_surrogates(value: JSON) -> JSON:
    """The value with each lone surrogate in its text, which UTF-8 cannot carry, replaced by U+FFFD."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            # Through UTF-16, so that two halves side by side become their character.
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return value
    if isinstance(value, list | tuple):
        return [without_lone_surrogates(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, Mapping):
        return {
            without_lone_surrogates(key): without_lone_surrogates(item)
            for key, item in cast("Mapping[Any, Any]", value).items()
        }
    return value
