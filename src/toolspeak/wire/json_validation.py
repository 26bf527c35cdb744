"""Checks values of JSON from outside, and raises errors that name the place.

`require_…` and `optional_…` check JSON from clients and raise FormatError; `as_…` check JSON from servers and raise
ProviderError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from toolspeak.data.messages import JSON
from toolspeak.errors import FormatError, ProviderError


def describe(value: JSON) -> str:
    """A short description of the value for a message: `nothing`, `'text'`, `a list`, `an object`, …"""
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


def invalid_field(place: str, expected: str, actual: JSON) -> FormatError:
    """`messages[0].role: expected a string, found a number`."""
    return FormatError(f"{place}: expected {expected}, found {describe(actual)}")


def ill_formed(place: str, expected: str, actual: JSON) -> ProviderError:
    """`the server sent an ill-formed answer: 'choices' should be a list, found a number`."""
    return ProviderError(
        f"the server sent an ill-formed answer: {place} should be {expected}, found {describe(actual)}",
        code="ill_formed",
    )


class _Validator:
    """Checks of values from one side. `error` makes the exception from the place, the expectation and the value."""

    def __init__(self, error: Callable[[str, str, JSON], Exception]) -> None:
        self._error = error

    def object(self, value: JSON, place: str) -> dict[str, JSON]:
        if not isinstance(value, dict):
            raise self._error(place, "an object", value)
        return cast("dict[str, JSON]", value)

    def optional_list(self, value: JSON, place: str) -> list[JSON]:
        """None is the empty list."""
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._error(place, "a list", value)
        return cast("list[JSON]", value)

    def text(self, value: JSON, place: str) -> str:
        if not isinstance(value, str):
            raise self._error(place, "a string", value)
        return value

    def optional_text(self, value: JSON, place: str) -> str:
        """None is the empty string."""
        return "" if value is None else self.text(value, place)

    def name(self, value: JSON, place: str) -> str:
        """A string that is not empty."""
        if not isinstance(value, str) or not value:
            raise self._error(place, "a name", value)
        return value

    def optional_flag(self, value: JSON, place: str) -> bool | None:
        """True, false or None."""
        if value is not None and not isinstance(value, bool):
            raise self._error(place, "true or false", value)
        return value


_client = _Validator(invalid_field)
require_object = _client.object
require_text = _client.text
require_name = _client.name
optional_list = _client.optional_list
optional_text = _client.optional_text
optional_flag = _client.optional_flag

_server = _Validator(ill_formed)
as_object = _server.object
as_list = _server.optional_list
as_text = _server.optional_text


def token_count(counts: JSON, field: str) -> int | None:
    """A number of tokens; None for any other value, which must not make a good answer fail."""
    value = cast("dict[str, JSON]", counts).get(field) if isinstance(counts, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
