"""Dialects by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache

from toolspeak import dialects
from toolspeak.dialects.base import Dialect
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect
from toolspeak.dialects.model_lookup import find_dialect, named_family, newest_of
from toolspeak.dialects.registry import PLACES, load_dialect
from toolspeak.dialects.trained.template import Template
from toolspeak.dialects.trained.template_table import default_template, template_for
from toolspeak.errors import UnknownDialect

# The catalogue and `auto` are read from the package on use, so that naming one dialect imports only that one.


@lru_cache(maxsize=256)  # each new agent looks its model up
def known_dialect(model: str) -> Dialect | None:
    """The dialect that a model of this name was trained on, None if it is unknown."""
    try:
        return trained_dialect(find_dialect(model, dialects.DIALECTS), model)
    except UnknownDialect:
        return None


def trained_dialect(dialect: Dialect, model: str) -> Dialect:
    """The dialect with the chat template of this model, or with its default template if the model's is unknown."""
    template = template_for(dialect.name, model)
    return dialect if template in (None, default_template(dialect.name)) else _with_template(dialect.name, template)


@cache
def _with_template(name: str, template: Template | None) -> Dialect:
    dialect = load_dialect(name)
    assert isinstance(dialect, DeclaredDialect)
    return replace(dialect, template=template)


def get_dialect(name: str, *, model: str | None = None, strict_detection: bool = False) -> Dialect:
    """The dialect of this name, in any case, with `-` or `_`, or of the model family of this name (`glm-4.5`).

    - `auto` reads the dialect that a turn is in. With `model` it tries that model's dialect first, and writes it.
    - `model` is a name as hubs and servers write it (`Qwen/Qwen3-Coder-30B`, `qwen3-coder:30b`). The prompt follows
      that model's chat template, if it is known.
    - `strict_detection`: a marker stays text unless a complete, valid call of a known tool follows. The deltas of a
      call wait until its end.

    Raises UnknownDialect for an unknown name, or if no dialect is known for the model of `auto`.
    """
    if strict_detection:
        return dialects.StrictDialect(get_dialect(name, model=model))
    normal = name.lower().replace("_", "-")
    if normal == "auto":
        if model is None:
            return _auto()
        return dialects.AutoDialect(trained_dialect(find_dialect(model, dialects.DIALECTS), model))
    try:
        dialect = load_dialect(normal) if normal in PLACES else _aliases()[normal]
        return dialect if model is None else trained_dialect(dialect, model)
    except KeyError:
        family = named_family(name, dialects.DIALECTS)
        if family is None:
            raise UnknownDialect(f"There is no dialect {name!r}{_suggestion(name)}") from None
        return family if model is None else trained_dialect(family, model)


def _suggestion(name: str) -> str:
    """The rest of the message about an unknown name: what to write instead."""
    listing_hint = "`toolspeak dialects` lists them all."
    if (own := known_dialect(name)) is not None:
        return f"; models of that name write {own.name!r}."
    if (newest := newest_of(name, dialects.DIALECTS)) is not None:
        return f"; the newest models of that name write {newest.name!r}. {listing_hint}"
    candidates = [other for other in (*PLACES, *_aliases(), "auto") if _digits(other) == _digits(name)]
    close = difflib.get_close_matches(name.lower(), candidates, n=1)  # another number is another version, not a typo
    if close:
        return f". Did you mean {close[0]!r}? {listing_hint}"
    return f", and none is known for a model of that name; 'auto' reads the dialect that a turn is in. {listing_hint}"


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))


@cache
def _auto() -> Dialect:
    return dialects.AutoDialect()


@cache
def _aliases() -> Mapping[str, Dialect]:
    return {alias: dialect for dialect in dialects.DIALECTS for alias in dialect.info.aliases}
