"""What models cost, and the cost of a turn.

A model that is not listed has an unknown cost (None), never 0. Set a price of your own with
`Agent(prices={"openai:my-model": Price(1, 4)})` or `toolspeak run --prices FILE`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, cast

from toolspeak.data.messages import JSON, Usage
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError

AS_OF: Mapping[str, str] = {"anthropic": "2026-10-24", "openai": "2026-06-21"}
"""Whose prices are listed, and the day for which they are known to hold."""


_MILLION = 1_000_000


@quick()
class Price:
    """USD per million tokens.

    - `cached`: for input read from a cache; None: as other input.
    - `cache_write`: for input written to a cache; None: as other input.
    - `long`: the price of a turn whose input is more than `long_above` tokens, for all of it.
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None
    long_above: int | None = None
    long: Price | None = None

    def cost(self, usage: Usage) -> float | None:
        """What one turn costs in USD; None if its tokens are unknown.

        Tokens read from and written to a cache are part of the input and counted once; reasoning is part of the output.
        """
        if usage.input is None or usage.output is None:
            return None
        price = self
        if price.long is not None and price.long_above is not None and usage.input > price.long_above:
            price = price.long
        cached_tokens = min(usage.cached or 0, usage.input)
        cache_writes = min(usage.cache_write or 0, usage.input - cached_tokens)
        cached_price = price.input if price.cached is None else price.cached
        write = price.input if price.cache_write is None else price.cache_write
        plain = usage.input - cached_tokens - cache_writes
        return (
            plain * price.input + cached_tokens * cached_price + cache_writes * write + usage.output * price.output
        ) / _MILLION


def _claude(input_price: float, output: float, cached_price: float) -> Price:
    # Writes to the cache for five minutes, the only ones we ask for, are 1.25 times the input on every model.
    return Price(input_price, output, cached_price, round(1.25 * input_price, 6))


# https://platform.claude.com/docs/en/about-claude/pricing
_ANTHROPIC = {
    "claude-fable-5-1": _claude(10, 50, 0.25),
    "claude-fable-5": _claude(10, 50, 1),
    "claude-opus-5-5": _claude(4, 20, 0.2),
    "claude-opus-5": _claude(5, 25, 0.5),
    "claude-opus-4-8": _claude(5, 25, 0.5),
    "claude-opus-4-7": _claude(5, 25, 0.5),
    "claude-opus-4-6": _claude(5, 25, 0.5),
    "claude-opus-4-5": _claude(5, 25, 0.5),
    "claude-sonnet-5-5": _claude(2, 10, 0.1),
    "claude-sonnet-5": _claude(2, 10, 0.2),
    "claude-haiku-5-5": replace(_claude(0.1, 0.5, 0.01), long_above=100_000, long=_claude(0.5, 2.5, 0.05)),
    "claude-haiku-4-5": _claude(1, 5, 0.1),
}

# https://platform.openai.com/docs/pricing (standard tier)
_OPENAI = {
    "gpt-5.1": Price(1.25, 10, 0.125),
    "gpt-5": Price(1.25, 10, 0.125),
    "gpt-5-mini": Price(0.25, 2, 0.025),
    "gpt-5-nano": Price(0.05, 0.4, 0.005),
    "gpt-4.1": Price(2, 8, 0.5),
    "gpt-4.1-mini": Price(0.4, 1.6, 0.1),
    "gpt-4.1-nano": Price(0.1, 0.4, 0.025),
    "gpt-4o": Price(2.5, 10, 1.25),
    "gpt-4o-mini": Price(0.15, 0.6, 0.075),
    "o3": Price(2, 8, 0.5),
    "o4-mini": Price(1.1, 4.4, 0.275),
}

PRICES: Mapping[str, Price] = {
    **{f"anthropic:{name}": price for name, price in _ANTHROPIC.items()},
    **{f"{api}:{name}": price for api in ("openai", "openai-responses") for name, price in _OPENAI.items()},
}
"""By `provider:model`, as a run names its model."""

_DATE_SUFFIX = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2}|latest)$")


def price_of(model: str, prices: Mapping[str, Price] = PRICES) -> Price | None:
    """The price of a model (`provider:model`), None if unknown. A name with a date or `-latest` has the price of the
    name without."""
    return prices.get(model) or prices.get(_DATE_SUFFIX.sub("", model))


def read_prices(value: JSON, where: str) -> dict[str, Price]:
    """Prices from JSON: `{"openai:my-model": {"input": 1, "output": 4, "cached": 0.1}}`, fields as in `Price`. Raises
    ConfigurationError naming the place; `where` names the file."""
    if not isinstance(value, dict):
        raise ConfigurationError(f'{where}: expected an object like {{"openai:my-model": {{"input": 1, "output": 4}}}}')
    return {name: _price(entry, f"{where}: {name}") for name, entry in cast("dict[str, JSON]", value).items()}


def _price(value: Any, place: str) -> Price:
    field_names = [field.name for field in fields(Price)]
    if not isinstance(value, dict):
        raise ConfigurationError(f"{place}: expected an object with input and output, in USD per million tokens")
    entries = cast("dict[str, Any]", value)
    for name, amount in entries.items():
        if name not in field_names:
            raise ConfigurationError(f"{place}: unknown field {name!r}; known: {', '.join(field_names)}")
        if name != "long" and not _is_amount(amount):
            raise ConfigurationError(f"{place}.{name}: expected a number from 0 up, not {amount!r}")
    for name in ("input", "output"):
        if name not in entries:
            raise ConfigurationError(f"{place}.{name}: missing; USD per million tokens")
    long = _price(entries["long"], f"{place}.long") if "long" in entries else None
    if (long is None) != ("long_above" not in entries):
        raise ConfigurationError(f"{place}: long and long_above go together")
    return replace(Price(**entries), long=long)


def _is_amount(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
