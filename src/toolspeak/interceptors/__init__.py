"""Ready interceptors: retries, a cache, a rate limit, a time limit, and what a person says. Pass them to an agent.

    Agent(model, tools, interceptors=[Retry(), Cache(seconds=600), RateLimit(10, tools=["search"]), ModelRetry()])

Their priorities give an order that makes sense, the outermost first: `HumanFeedback`, `Cache`, `Retry`, `RateLimit`,
`Timeout`. So a cached answer takes no token, and each attempt of a retry has a time limit and takes a token of its own.
"""

from __future__ import annotations

from toolspeak.interceptors.human_feedback import AskPerson, HumanFeedback
from toolspeak.interceptors.ready_interceptors import (
    Cache,
    ModelRateLimit,
    ModelRetry,
    RateLimit,
    Retry,
    Timeout,
    is_temporary,
)

__all__ = [
    "AskPerson",
    "Cache",
    "HumanFeedback",
    "ModelRateLimit",
    "ModelRetry",
    "RateLimit",
    "Retry",
    "Timeout",
    "is_temporary",
]
