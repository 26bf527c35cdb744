"""Retries, a cache, rate limits and a time limit."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import TypeAlias

from toolspeak.agent import ModelInterceptor, TurnRequest
from toolspeak.data.messages import ToolCall, ToolResult, failure, no_extra
from toolspeak.data.tools import NO_VERSION, Effects
from toolspeak.dialects import ParsedTurn
from toolspeak.errors import ConfigurationError, ProviderError
from toolspeak.execute import HookContext, Interceptor, Proceed
from toolspeak.execute.approval.approvers import definition_digest
from toolspeak.execute.concurrency.schedule import Conflicts
from toolspeak.providers.provider_failures import SYSTEM_CLOCK, Clock

_Read: TypeAlias = tuple[asyncio.AbstractEventLoop, str, Effects, int]
"""What makes two calls one: their event loop, name, definition and arguments, effects, and the writes before them."""
_IS_INSIDE: ContextVar[bool] = ContextVar("toolspeak_cached_read", default=False)
"""Whether a cached call runs around this one, which must not wait for it."""
_CRASH = re.compile(r"[A-Za-z_][\w.]*(: |$)")


def is_temporary(result: ToolResult) -> bool:
    """Whether a call failed in a way that may pass: its time limit, or an exception that is no `ToolError` (the message
    of such a failure begins with the exception's type). Not for a call that still runs in its thread."""
    if result.status != "failure" or "still_running" in result.extra:
        return False
    return result.code == "timeout" or (result.code == "exception" and _CRASH.match(result.text) is not None)


def _positive(name: str, value: float) -> None:
    if isinstance(value, bool) or not value > 0:
        raise ConfigurationError(f"{name} must be a number above 0, not {value!r}")


class _Backoff:
    """The waits between attempts. Raises ConfigurationError for numbers that are not above 0."""

    def __init__(self, attempts: int, base_seconds: float, max_seconds: float, clock: Clock) -> None:
        for name, value in (("attempts", attempts), ("base_seconds", base_seconds), ("max_seconds", max_seconds)):
            _positive(name, value)
        self.attempts, self.max_seconds = attempts, max_seconds
        self._base, self._clock = base_seconds, clock

    def seconds(self, attempt: int) -> float:
        """The wait after this attempt, the first of which is 1."""
        # Full jitter: AWS Architecture Blog, "Exponential Backoff And Jitter".
        return self._clock.random() * min(self.max_seconds, self._base * 2.0 ** min(attempt - 1, 30))

    async def wait(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


class Retry(Interceptor):
    """Runs a call again that failed, if its effects say that it may run twice: it is `idempotent`, or it only reads and
    stays on this machine.

    The n-th retry waits a random time up to `base_seconds` * 2 ** (n - 1), and up to `max_seconds`. Each failed attempt
    is recorded (`RetryScheduled`).

    - `attempts`: how often a call runs at most.
    - `when`: whether a result is worth a retry.
    - `tools`: the names of the tools; all without them.
    - `clock`: the time and random numbers, for tests.

    Raises ConfigurationError for numbers that are not above 0.
    """

    priority = 20

    def __init__(
        self,
        attempts: int = 3,
        *,
        base_seconds: float = 0.5,
        max_seconds: float = 8.0,
        when: Callable[[ToolResult], bool] = is_temporary,
        tools: Collection[str] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._backoff = _Backoff(attempts, base_seconds, max_seconds, clock)
        self._when = when
        self._tools = frozenset(tools)

    async def around(self, call: ToolCall, proceed: Proceed, context: HookContext) -> ToolResult:
        """Proceeds until the call succeeds or no attempt is left."""
        result, effects = await proceed(call), context.effects
        if effects is None or (self._tools and call.name not in self._tools):
            return result
        if not effects.may_run_twice:
            return result
        for attempt in range(1, self._backoff.attempts):
            if not self._when(result):
                break
            seconds = self._backoff.seconds(attempt)
            await context.retry(result.text, seconds, attempt)
            await self._backoff.wait(seconds)
            result = await proceed(call)
        return result


class ModelRetry(ModelInterceptor):
    """Asks the model again after a failure of its API that may pass, also in the middle of a turn. What came of the
    turn until then does not count (`TurnRestarted` in a stream).

    A provider sends a request again that failed before its first piece; this is for what comes after that.

    - `attempts`: how often a turn is requested at most.
    - `when`: whether a failure is worth a retry.
    - `base_seconds`, `max_seconds`, `clock`: as of `Retry`. The wait that a server requests is added; a failure that
      requests more than `max_seconds` is raised at once.

    Raises ConfigurationError for numbers that are not above 0.
    """

    def __init__(
        self,
        attempts: int = 3,
        *,
        base_seconds: float = 0.5,
        max_seconds: float = 30.0,
        when: Callable[[ProviderError], bool] = lambda error: error.retryable,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._backoff = _Backoff(attempts, base_seconds, max_seconds, clock)
        self._when = when

    async def around(
        self, request: TurnRequest, proceed: Callable[[TurnRequest], Awaitable[ParsedTurn]], context: HookContext
    ) -> ParsedTurn:
        """Proceeds until the turn comes or no attempt is left."""
        attempt = 1
        while True:
            try:
                return await proceed(request)
            except ProviderError as error:
                requested_seconds = error.retry_after or 0.0
                backoff = self._backoff
                if attempt >= backoff.attempts or requested_seconds > backoff.max_seconds or not self._when(error):
                    raise
                seconds = requested_seconds + backoff.seconds(attempt)
                await context.retry(str(error), seconds, attempt, error.status)
                await backoff.wait(seconds)
                attempt += 1


class Cache(Interceptor):
    """Answers a call from an earlier result of the same call: of the same tool, definition, arguments and
    `Effects.version`. It holds for all runs of its agents, beside what a run remembers itself.

    Only calls that declare to write nothing are answered, and not those that poll (`polls`) or read what may change
    unnoticed (`NO_VERSION`). A result is forgotten when a call of any agent with this cache writes what was read. What
    other programs change is seen by `version` and `seconds` alone. Agents that share a cache share its results:
    give agents with other `deps` or secrets a cache each.

    Equal calls that run at the same time, in one event loop, run once: the others wait, and get the same result, also
    the failure of a tool that raised. If the one that runs is cut off, another one runs.

    - `seconds`: how long a result holds; None is without an end.
    - `max_results`: how many results are kept; those used least recently go first.
    - `external`: whether calls that leave the machine are answered, if they are `idempotent`.
    - `tools`: the names of the tools; all without them. Writes of any tool count.
    - `clock`: the time, for tests.

    Raises ConfigurationError for numbers that are not above 0.
    """

    priority = 30

    def __init__(
        self,
        *,
        seconds: float | None = None,
        max_results: int = 1024,
        external: bool = False,
        tools: Collection[str] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        _positive("max_results", max_results)
        if seconds is not None:
            _positive("seconds", seconds)
        self._seconds = seconds
        self._max_results = max_results
        self._external = external
        self._tools = frozenset(tools)
        self._clock = clock
        self._results: dict[str, tuple[float, Effects, ToolResult]] = {}
        self._running: dict[_Read, asyncio.Future[ToolResult | None]] = {}
        self._changes = 0  # writes that began or ended: a read beside one may have seen what was there before

    async def around(self, call: ToolCall, proceed: Proceed, context: HookContext) -> ToolResult:
        """Returns the earlier result, or proceeds and keeps the result."""
        effects, tool = context.effects, context.tool
        if effects is None or tool is None:
            return await proceed(call)
        if not self._answers(call, effects):
            self._forget(effects)
            try:
                return await proceed(call)
            finally:
                self._forget(effects)
        key = json.dumps([call.name, definition_digest(tool), effects.version, call.arguments], sort_keys=True)
        while True:
            now, earlier = self._clock.now(), self._results.pop(key, None)
            if (
                earlier is not None
                and earlier[1] == effects
                and (self._seconds is None or now < earlier[0] + self._seconds)
            ):
                self._results[key] = earlier
                return earlier[2]
            read = (asyncio.get_running_loop(), key, effects, self._changes)
            running = self._running.get(read)
            if running is None or _IS_INSIDE.get():
                break
            shared_result = await asyncio.shield(running)
            if shared_result is not None:
                return shared_result
        return await self._run(call, proceed, read, now)

    async def _run(self, call: ToolCall, proceed: Proceed, read: _Read, now: float) -> ToolResult:
        """Proceeds, keeps the result, and hands it to the equal calls that wait for it."""
        loop, key, effects, changes = read
        shared_result: ToolResult | None = None
        future = self._running.setdefault(read, loop.create_future())
        token = _IS_INSIDE.set(True)
        try:
            result = await proceed(call)
            if result.status == "success" or result.code == "exception":
                shared_result = result
        finally:
            _IS_INSIDE.reset(token)
            if self._running.pop(read, None) is future and not future.done():
                future.set_result(shared_result)
        if result.status == "success" and changes == self._changes:
            self._results[key] = (now, effects, result)
            while len(self._results) > self._max_results:
                del self._results[next(iter(self._results))]
        return result

    def _answers(self, call: ToolCall, effects: Effects) -> bool:
        return (
            effects.declared
            and effects.read_only
            and not effects.polls
            and effects.version != NO_VERSION
            and (not effects.external or (self._external and effects.idempotent))
            and (not self._tools or call.name in self._tools)
        )

    def _forget(self, effects: Effects) -> None:
        """Forgets what a call with these effects may change."""
        sends = (effects.external or not effects.declared) and not effects.idempotent
        if not sends and effects.read_only:
            return
        self._changes += 1
        write = Conflicts()
        write.add(0, effects)
        for key, (_, read, _) in tuple(self._results.items()):
            if write.any_with(read) or (sends and read.external):
                del self._results[key]


class _Bucket:
    """A token bucket. A caller takes a token at once, and waits until it would have been there."""

    def __init__(self, calls: int, seconds: float, clock: Clock) -> None:
        self._calls, self._rate, self._clock = calls, calls / seconds, clock
        self._tokens, self._at = float(calls), clock.now()

    async def take(self) -> None:
        now = self._clock.now()
        self._tokens = min(self._calls, self._tokens + max(0.0, now - self._at) * self._rate) - 1
        self._at = now
        if self._tokens < 0:
            try:
                await self._clock.sleep(-self._tokens / self._rate)
            except asyncio.CancelledError:
                self._tokens += 1
                raise


class RateLimit(Interceptor):
    """Lets so many calls start in so many seconds (a token bucket); the others wait for their turn. It holds for all
    runs of its agents. The wait counts towards the run's time limit, not the tool's.

    - `calls`, `seconds`: as many calls as `calls` at once, then `calls` in each `seconds`.
    - `each`: whether each tool has a bucket of its own.
    - `tools`: the names of the tools; all without them.
    - `clock`: the time, for tests.

    Raises ConfigurationError for numbers that are not above 0.
    """

    priority = 10

    def __init__(
        self,
        calls: int,
        *,
        seconds: float = 1.0,
        each: bool = False,
        tools: Collection[str] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        _positive("calls", calls)
        _positive("seconds", seconds)
        self._calls, self._seconds, self._clock = calls, seconds, clock
        self._each = each
        self._tools = frozenset(tools)
        self._buckets: dict[str, _Bucket] = {}

    async def around(self, call: ToolCall, proceed: Proceed, context: HookContext) -> ToolResult:
        """Waits for the call's turn, then proceeds."""
        if not self._tools or call.name in self._tools:
            key = call.name if self._each else ""
            if key not in self._buckets:
                self._buckets[key] = _Bucket(self._calls, self._seconds, self._clock)
            await self._buckets[key].take()
        return await proceed(call)


class ModelRateLimit(ModelInterceptor):
    """Lets so many requests to the model start in so many seconds, over all runs of its agents. Parameters as of
    `RateLimit`."""

    def __init__(self, requests: int, *, seconds: float = 60.0, clock: Clock = SYSTEM_CLOCK) -> None:
        _positive("requests", requests)
        _positive("seconds", seconds)
        self._bucket = _Bucket(requests, seconds, clock)

    async def around(
        self, request: TurnRequest, proceed: Callable[[TurnRequest], Awaitable[ParsedTurn]], context: HookContext
    ) -> ParsedTurn:
        """Waits for the request's turn, then proceeds."""
        await self._bucket.take()
        return await proceed(request)


class Timeout(Interceptor):
    """Ends a call after some seconds, for tools to which you cannot give a `timeout`. The time that interceptors inside
    of it wait counts, too. The model reads that the call did not finish; a synchronous tool may continue in its thread.

    - `seconds`: of every call; or by tool name, and then other tools have no limit.

    Raises ConfigurationError for seconds that are not above 0.
    """

    priority = 0

    def __init__(self, seconds: float | Mapping[str, float]) -> None:
        for each in seconds.values() if isinstance(seconds, Mapping) else (seconds,):
            _positive("seconds", each)
        self._seconds = seconds

    async def around(self, call: ToolCall, proceed: Proceed, context: HookContext) -> ToolResult:
        """Proceeds, for as long as the call may take."""
        seconds = self._seconds.get(call.name) if isinstance(self._seconds, Mapping) else self._seconds
        result: ToolResult | None = None
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                result = await proceed(call)
        except TimeoutError:
            if not limit.expired():
                raise
        if result is not None and (result.status == "success" or not limit.expired()):
            return result
        extra = no_extra() if result is None else result.extra
        how = "; it may still be running" if extra else ""
        late = failure(call, "timeout", f"{call.name} did not finish within {seconds:g} seconds{how}")
        return replace(late, extra=extra)
