"""Calls and results as clients tell them to APIs whose calls may have no ids, and their bytes."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

from toolspeak.data.messages import JSON, ToolCall
from toolspeak.errors import FormatError
from toolspeak.wire.asked import asked_text


def optional_text(value: JSON, place: str) -> str:
    """None is the empty text."""
    return "" if value is None else asked_text(value, place)


def asked_bytes(value: JSON, place: str) -> bytes:
    """Base64 of either alphabet, with or without padding (google-genai writes the one for URLs)."""
    text = asked_text(value, place).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"{place}: expected bytes in base64: {error}") from error


class Awaiting:
    """The calls of a conversation: each gets an id of its own, and each result finds its call.

    A result without an id is that of the first call of its name in the turn before it that has none yet; one without
    a name either, of the first call.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._open: list[ToolCall] = []

    def id_of(self, given: str) -> str:
        """`given`, unless there is none or another call has it."""
        number = len(self._taken)
        found = given
        while not found or found in self._taken:
            found = f"{given or 'call'}_{number}"
            number += 1
        self._taken.add(found)
        return found

    def begin(self, calls: Iterable[ToolCall]) -> None:
        """A new turn of the model: results belong to its calls from now on."""
        self._open = [*calls]

    def take(self, given: str, name: str, place: str) -> ToolCall:
        """The call of a result that names `given` as its call and `name` as its tool; both may be empty.

        Raises FormatError if no call awaits one.
        """
        named = [call for call in self._open if given and given == (call.provider_id or call.id)]
        if not named:
            named = [call for call in self._open if name == call.name or not (name or given)]
        if not named:
            which = f" of {name!r}" if name else ""
            raise FormatError(
                f"{place}: no call{which} awaits this result; send it right behind the turn with its call"
            )
        self._open.remove(named[0])
        return named[0]
