"""Dialects by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

from toolspeak import dialects
from toolspeak.dialects.base import Dialect
from toolspeak.dialects.lookup import find_dialect
from toolspeak.dialects.table import PLACES, load_dialect
from toolspeak.errors import UnknownDialect, suggest

# The catalogue and `auto` are looked up in the package where they are needed: who names a dialect pays for that one.


@lru_cache(maxsize=256)  # an agent looks its model up when it is made, and a name means the same for ever
def known_dialect(model: str) -> Dialect | None:
    """The dialect that a model of this name was trained on, None if it is not known."""
    try:
        return find_dialect(model, dialects.DIALECTS)
    except UnknownDialect:
        return None


def get_dialect(name: str, *, model: str | None = None, strict_detection: bool = False) -> Dialect:
    """The dialect of this name, in any case, with `-` or `_`.

    `auto` reads whatever dialect a turn is in; with the model's name, as a hub or a server knows it
    (`Qwen/Qwen3-Coder-30B`, `qwen3-coder:30b`), that model's own first, which is also what it writes. Any other
    dialect is what it is, whatever the model. `strict_detection`: a marker stays text unless a complete, valid call of
    a known tool follows, so a call is held back until its end. Raises UnknownDialect, which lists the names there are
    or says that no dialect is known for the model.
    """
    if strict_detection:
        return dialects.StrictDialect(get_dialect(name, model=model))
    known = name.lower().replace("_", "-")
    if known == "auto":
        return dialects.AutoDialect(find_dialect(model, dialects.DIALECTS)) if model is not None else _auto()
    if known in PLACES:
        return load_dialect(known)
    try:
        return _aliases()[known]
    except KeyError:
        names = [*PLACES, *_aliases(), "auto"]
        if (own := known_dialect(name)) is not None:
            told = f"{name!r}; models of that name write {own.name!r}. Known: {', '.join(sorted(names))}."
            raise UnknownDialect(f"There is no dialect {told}") from None
        raise UnknownDialect(f"There is no dialect {suggest(name, names)}") from None


@cache
def _auto() -> Dialect:
    return dialects.AutoDialect()


@cache
def _aliases() -> Mapping[str, Dialect]:
    return {alias: dialect for dialect in dialects.DIALECTS for alias in dialect.info.aliases}
