"""The facts about interceptors: what they set, how they fail, and what they or a provider try again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from toolspeak.data.messages import JSON, no_extra
from toolspeak.data.values import value

MOST_ERROR_CHARACTERS = 1000
"""The most characters of the error of a `RetryScheduled`."""


@value()
class MetadataSet:
    """An interceptor set metadata of the run.

    - `values`: what is added.
    - `by`: the interceptor.
    - `call_id`: the call at which it did, None outside of calls.
    """

    values: Mapping[str, JSON]
    by: str = ""
    call_id: str | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class InterceptorFailed:
    """An interceptor failed: it raised, or returned what it must not. What it wraps fails.

    - `interceptor`: its name.
    - `level`: what it wraps.
    - `hook`: where it failed.
    - `error`: what failed, in words.
    - `call_id`: the call's id, None outside of calls.
    """

    interceptor: str
    level: Literal["call", "model", "step", "run", "message", "compaction"]
    hook: Literal["before", "around", "after"]
    error: str
    call_id: str | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class RetryScheduled:
    """A call or a request for a turn failed and is tried again after a wait.

    - `error`: what failed, in words.
    - `seconds`: the wait.
    - `attempt`: the number of the attempt that failed, from 1.
    - `by`: the interceptor that tries again; "" is the model's provider.
    - `call_id`: the call's id, None for a turn. What `ModelTextReceived` records have of the turn until here is that of
      the failed attempt.
    - `status`: the HTTP status, None without a response.
    """

    error: str
    seconds: float
    attempt: int = 1
    by: str = ""
    call_id: str | None = None
    status: int | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)
