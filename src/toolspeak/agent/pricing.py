"""What a limit in USD needs."""

from __future__ import annotations

from collections.abc import Mapping

from toolspeak.data.events import Limits
from toolspeak.data.prices import Price, price_of
from toolspeak.errors import ConfigurationError


def check_priced(limits: Limits, model: str, prices: Mapping[str, Price]) -> None:
    """Raises ConfigurationError for a limit that cannot be held, because nobody knows what the model costs."""
    if limits.cost is not None and price_of(model, prices) is None:
        raise ConfigurationError(
            f"a limit of {limits.cost:g} US dollars cannot be held: the price of {model!r} is not known. Give it, in "
            f"USD per million tokens, with Agent(prices={{{model!r}: Price(input=…, output=…)}}) or --prices FILE, or "
            "limit the tokens"
        )
