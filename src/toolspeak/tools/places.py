"""Names a place in a value, and shows a value, in messages."""

from __future__ import annotations

import json
import re
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]

VALUE_CHARACTERS = 80  # characters of a value in a message: enough to recognise it, and few for a result
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def place_of(path: Path) -> str:
    """`items[2].name`."""
    place = ""
    for step in path:
        if isinstance(step, int):
            place += f"[{step}]"
        elif _IDENTIFIER.fullmatch(step):
            place += f".{step}" if place else step
        else:
            place += f"[{show(step)}]"
    return place


def show(value: object) -> str:
    """The value as JSON, shortened to about 80 characters."""
    if isinstance(value, str):
        value = value[: VALUE_CHARACTERS + 1]
    text = ""
    try:
        for chunk in json.JSONEncoder(ensure_ascii=False, skipkeys=True, default=_type_name).iterencode(value):
            text += chunk[: VALUE_CHARACTERS + 3]
            if len(text) > VALUE_CHARACTERS:
                text = text[:VALUE_CHARACTERS] + "…"
                break
    except (ValueError, RecursionError):
        text = _type_name(value)
    return text.encode("utf-8", "backslashreplace").decode()


def _type_name(value: object) -> str:
    return type(value).__name__
