"""Dialects by name."""

from __future__ import annotations

from functools import lru_cache

from toolspeak.dialects.base import Dialect
from toolspeak.dialects.catalogue import DIALECTS
from toolspeak.dialects.detect import AutoDialect
from toolspeak.dialects.lookup import find_dialect
from toolspeak.dialects.strict import StrictDialect
from toolspeak.errors import UnknownDialect, suggest

_BY_NAME = {name: dialect for dialect in DIALECTS for name in (dialect.name, *dialect.info.aliases)}
_AUTO = AutoDialect()


@lru_cache(maxsize=256)  # an agent looks its model up when it is made, and a name means the same for ever
def known_dialect(model: str) -> Dialect | None:
    """The dialect that a model of this name was trained on, None if it is not known."""
    try:
        return find_dialect(model, DIALECTS)
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
        return StrictDialect(get_dialect(name, model=model))
    known = name.lower().replace("_", "-")
    if known == "auto":
        return AutoDialect(find_dialect(model, DIALECTS)) if model is not None else _AUTO
    try:
        return _BY_NAME[known]
    except KeyError:
        names = [*_BY_NAME, "auto"]
        if (own := known_dialect(name)) is not None:
            told = f"{name!r}; models of that name write {own.name!r}. Known: {', '.join(sorted(names))}."
            raise UnknownDialect(f"There is no dialect {told}") from None
        raise UnknownDialect(f"There is no dialect {suggest(name, names)}") from None
