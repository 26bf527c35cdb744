"""The lines of a cassette.

The format (JSON Lines, UTF-8; version 1, this file is its definition). The first line names it and the provider, with
what that can do. Then, as they came, a line for each

- request: `turn` (counted from 1), `asked` (what it has not in common with the request before: `same` is how many of
  its first messages it shares with that, tools are left out if they are the same), its `digest`, and the `answer`: a
  text is a piece of text, all else as `data.codec` writes it; with `error` if the model's API failed behind it;
- result of a tool's function: the `call`'s id, its name and arguments, and the `result` as `data.codec` writes it,
  whole and before any interceptor; with `stop` if it ended the run, `recalled` if an earlier result was given in its
  place.

Secrets are placeholders in all of it, and what a provider sends beside a request (headers, keys) is not part of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from toolspeak.data.codec import dump, load
from toolspeak.data.deltas import ArgumentsDelta, Delta, ReasoningDelta, TextDelta
from toolspeak.data.messages import JSON
from toolspeak.errors import UsageError
from toolspeak.execute import Secrets

KIND = "toolspeak-cassette"
VERSION = 1
ERROR_FIELDS = ("status", "retryable", "code", "retry_after")


def is_cassette(path: Path) -> bool:
    with path.open("rb") as file:
        return f'"{KIND}"'.encode() in file.readline()


def read_lines(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: the recording cannot be read: {error}") from None
    for number, line in enumerate(text.rstrip("\n").split("\n"), 1):
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path}, line {number}: is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise UsageError(f"{path}, line {number}: is no line of a recording")
        found.append(cast("dict[str, Any]", value))
    version = found[0].get(KIND)
    if version is None:
        raise UsageError(f"{path}: is no recording; `toolspeak run --record FILE` makes one")
    if version != VERSION:
        raise UsageError(f"{path}: is of version {version!r}, and this build reads {VERSION}; upgrade toolspeak")
    return found


def without_secrets(deltas: Sequence[Delta], secrets: Secrets) -> Sequence[Delta]:
    """Streams cut secrets in pieces: text that holds one becomes one piece. Whole values are hidden when written."""
    if not secrets:
        return deltas
    pieces: dict[tuple[object, ...], list[int]] = {}
    part = 0
    for place, delta in enumerate(deltas):
        match delta:
            case TextDelta() | ReasoningDelta():
                pieces.setdefault((type(delta), part), []).append(place)
            case ArgumentsDelta(index):
                pieces.setdefault((ArgumentsDelta, index), []).append(place)
            case _:
                part += 1
    found: list[Delta | None] = list(deltas)
    for places in pieces.values():
        said = [cast("TextDelta | ReasoningDelta | ArgumentsDelta", deltas[place]) for place in places]
        whole = "".join(piece.text for piece in said)
        hidden = secrets.hide_text(whole)
        if hidden != whole:
            for place in places:
                found[place] = None
            found[places[0]] = replace(said[0], text=hidden)
    return [delta for delta in found if delta is not None]


def delta_json(delta: Delta) -> JSON:
    return delta.text if isinstance(delta, TextDelta) else bare(dump(delta))


def delta_of(value: JSON) -> Delta:
    return TextDelta(value) if isinstance(value, str) else load({"format": 1, **value})


def bare(data: dict[str, JSON]) -> dict[str, JSON]:
    """Without the version, which the first line has."""
    return {name: value for name, value in data.items() if name != "format"}


def plain(value: Any) -> Any:
    """The value as JSON gives it back."""
    return json.loads(json.dumps(value, default=dict))
