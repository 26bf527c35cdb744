"""Reading JSON that a client sent: what it is, or a FormatError that names the place and the remedy."""

from __future__ import annotations

from typing import cast

from toolspeak.data.messages import JSON
from toolspeak.errors import FormatError
from toolspeak.wire.reading import shown


def wrong(place: str, expected: str, found: JSON) -> FormatError:
    """`messages[0].role: expected text, found a number`."""
    return FormatError(f"{place}: expected {expected}, found {shown(found)}")


def asked_object(value: JSON, place: str) -> dict[str, JSON]:
    if not isinstance(value, dict):
        raise wrong(place, "an object", value)
    return cast("dict[str, JSON]", value)


def asked_list(value: JSON, place: str) -> list[JSON]:
    """None is the empty list."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise wrong(place, "a list", value)
    return cast("list[JSON]", value)


def asked_text(value: JSON, place: str) -> str:
    if not isinstance(value, str):
        raise wrong(place, "text", value)
    return value


def asked_name(value: JSON, place: str) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise wrong(place, "a name", value)
    return value


def asked_flag(value: JSON, place: str) -> bool | None:
    """True, false, or None where the client leaves it open."""
    if value is not None and not isinstance(value, bool):
        raise wrong(place, "true or false", value)
    return value
