"""Tables of TOML, checked field by field; an error names the field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from toolspeak.errors import ConfigurationError, suggest

_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "text"),
    "Section": ((str,), "text"),
    "BalancingPolicy": ((str,), "text"),
    "PromptListing | None": ((str,), "text"),
    "int": ((int,), "a number"),
    "int | None": ((int,), "a number"),
    "float": ((int, float), "a number of seconds"),
    "bool": ((bool,), "true or false"),
}


def checked_kind(value: Any, kind: str, place: str) -> Any:
    """The value, if it is of a kind (the annotation of a field of settings). Raises ConfigurationError naming the
    place."""
    types, words = _KINDS[kind]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise ConfigurationError(f"{place}: expected {words}, found {value!r}")
    if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
        raise ConfigurationError(f"{place}: {value} is less than 0")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigurationError(f"{place}: {value} is not a number of seconds")
    return value


def check_fields(table: Mapping[str, Any], names: set[str], place: str) -> None:
    """Raises ConfigurationError for a key that is not known, naming the place."""
    for name in table:
        if name not in names:
            raise ConfigurationError(f"{place}{'.' if place else ''}{name}: unknown key {suggest(name, names)}")
