"""Which driver reaches a model."""

from __future__ import annotations

import difflib
import os
from functools import lru_cache
from typing import Any, get_args

from toolspeak import dialects
from toolspeak.agent.drivers.base import Driver
from toolspeak.agent.drivers.native import NativeDriver
from toolspeak.agent.drivers.probing import ProbingDriver
from toolspeak.agent.drivers.react import ReActDriver
from toolspeak.agent.drivers.server_prompt import ServerPromptDriver
from toolspeak.agent.drivers.text import TextDriver
from toolspeak.dialects import Dialect, Section
from toolspeak.dialects.base import PromptListing
from toolspeak.errors import ConfigurationError, UnknownDialect, suggest
from toolspeak.providers import get_provider
from toolspeak.providers.base import Provider

_SECTIONS = get_args(Section)
DEFAULT_DIALECT = "cogency-json"
"""The dialect for a model whose own dialect is unknown: JSON between plain tags, which every server passes."""


def choose_driver(
    model: str | Provider | Driver,
    dialect: str | Dialect,
    starts_in: Section,
    *,
    grace: float = 0.0,
    late_leaks: bool = False,
    probes_server: bool = False,
    listing: PromptListing | None = None,
) -> tuple[Driver, Dialect | None]:
    """The driver of a model, and the dialect it reads if its calls are text.

    `grace` as in `TextDriver`, `late_leaks` as in `NativeDriver`. `probes_server`: probes a server
    of which it is unknown whether it accepts tools. `listing` None is "server" if the API is known to write prompts
    (`Capabilities.server_prompt`) and the dialect is the model's own, else "trained".

    "auto" is native where the model has calls of its own, else the dialect of the model's family, else
    `cogency-json`; whatever dialect a turn is in is read. "native" is native whatever is known of the model, "react"
    asks for decisions in JSON. Raises UnknownDialect, UnknownProvider, ConfigurationError.
    """
    if listing is not None and listing not in get_args(PromptListing):
        raise ConfigurationError(f"there is no listing {suggest(str(listing), get_args(PromptListing))}")
    if starts_in not in _SECTIONS:
        raise ConfigurationError(f"starts_in is {' or '.join(map(repr, _SECTIONS))}, not {starts_in!r}")
    if isinstance(model, type):
        raise ConfigurationError(f"model is the class {model.__name__}; give an instance of it")
    if not isinstance(model, str) and hasattr(model, "open"):
        if dialect != "auto":
            raise ConfigurationError("a Driver has its own way to write calls; leave `dialect` out")
        return model, None  # pyright: ignore[reportReturnType] - told apart by its one method
    provider: Any = get_provider(model, os.environ) if isinstance(model, str) else model
    if not hasattr(provider, "stream"):
        raise ConfigurationError(
            f"a model is a name like 'openai:gpt-5', a Provider (`stream`) or a Driver (`open`), not {provider!r}"
        )
    if not isinstance(dialect, str) and not hasattr(dialect, "parser"):
        raise ConfigurationError(f"`dialect` is a name (`toolspeak dialects` lists them) or a Dialect, not {dialect!r}")
    if dialect == "auto" or dialect == "native":
        trained_dialect, text = dialects_of(model_name_for_lookup(provider))
        text_driver = _text_driver(provider, text, trained_dialect, trained_dialect, listing, starts_in, grace)
        if dialect == "auto" and not provider.capabilities.tools:
            if probes_server and getattr(provider, "is_unknown", False):
                return ProbingDriver(provider, NativeDriver(provider, fallback=text_driver), text_driver), text
            return text_driver, text
        return NativeDriver(provider, fallback=text_driver if dialect == "auto" else None, late_leaks=late_leaks), None
    if dialect == "react":
        return ReActDriver(provider), None
    dialect_of_model = _get_dialect(dialect, model_name_for_lookup(provider)) if isinstance(dialect, str) else dialect
    trained_dialect = dialects.known_dialect(model_name_for_lookup(provider))
    return _text_driver(
        provider, dialect_of_model, dialect_of_model, trained_dialect, listing, starts_in, grace
    ), dialect_of_model


def model_name_for_lookup(provider: Provider) -> str:
    """The name of a provider and its model that tells the model's family."""
    return getattr(provider, "api_name", provider.name)


@lru_cache(maxsize=256)  # as `known_dialect`
def dialects_of(model: str) -> tuple[Dialect | None, Dialect]:
    """The dialect that a model of this name was trained on, if it is known, and one that reads whatever a turn is in
    and writes the prompt."""
    trained_dialect = dialects.known_dialect(model)
    default = None if trained_dialect else dialects.get_dialect(DEFAULT_DIALECT)
    return trained_dialect, dialects.AutoDialect(trained_dialect, default)


def _text_driver(
    provider: Provider,
    read: Dialect,
    requested_dialect: Dialect | None,
    trained_dialect: Dialect | None,
    listing: PromptListing | None,
    starts_in: Section,
    grace: float,
) -> TextDriver:
    """The driver of turns in text, which are `read`. A server writes its prompt in the dialect that the model was
    trained on: if another is requested, it would teach one thing while we read another."""
    own = (
        requested_dialect is not None and trained_dialect is not None and requested_dialect.name == trained_dialect.name
    )
    if listing == "server" or (listing is None and own and provider.capabilities.server_prompt):
        return ServerPromptDriver(provider, read, starts_in=starts_in, grace=grace)
    return TextDriver(provider, read, starts_in=starts_in, grace=grace, listing=listing or "trained")


def _get_dialect(name: str, model: str) -> Dialect:
    try:
        return dialects.get_dialect(name, model=model)
    except UnknownDialect:
        driver = difflib.get_close_matches(name.lower(), ("native", "react"), n=1, cutoff=0.7)
        if not driver:
            raise
        raise UnknownDialect(f"There is no dialect {name!r}. Did you mean {driver[0]!r}?") from None
