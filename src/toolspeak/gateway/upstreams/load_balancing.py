"""The upstreams of one model: which of them gets a request, and which is tried next after a failure."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import itertools
import json
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from toolspeak.data.messages import JSON
from toolspeak.errors import ProviderError, ToolspeakError
from toolspeak.gateway.observability import Metrics, log
from toolspeak.gateway.settings.upstream_settings import BalancingPolicy
from toolspeak.gateway.upstreams.upstream_health import (
    FAULTS,
    HEALTH_STATES,
    HEALTHY,
    Health,
    allows_failover,
    answered_by,
    is_fault,
)
from toolspeak.providers.provider_failures import Clock, SystemClock, delay_before

LONGEST_WAIT = 2.0
"""The longest Retry-After, in seconds, that the gateway waits for. A longer one goes to the client as an error at
once."""

AskUpstream: TypeAlias = Callable[[int, Callable[[], None]], Awaitable[None]]
"""Sends a request to an upstream, by its number. Calls the second argument once the upstream begins to answer."""

Probe: TypeAlias = Callable[[int], Awaitable[str]]
"""The problem of an upstream, by its number: empty if it answers."""


_INSTRUCTIONS = ("system", "instructions", "tools", "functions")
"""Fields of a request that servers put in front of its messages."""


class MonotonicClock(SystemClock):
    """Seconds of a monotonic clock."""

    def now(self) -> float:
        return time.monotonic()


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """One request to the upstreams of a model.

    `members`: the numbers of the upstreams that may answer. `ask`: sends the request to one of them. `has_left`:
    whether part of the answer has left for the client. `prefix`: a digest of the beginning of the request. `failures`
    receives each upstream that failed, with the error's code. `first`: the upstream of the previous turn, which is
    tried first.
    """

    members: Sequence[int]
    ask: AskUpstream
    has_left: Callable[[], bool]
    prefix: str
    failures: list[tuple[str, str]]
    first: int | None = None


def in_order(
    policy: BalancingPolicy, labels: Sequence[str], members: Sequence[int], turn: int, prefix: str
) -> list[int]:
    """The members in the order in which a request tries them. `turn` counts the requests. `prefix` is a digest of the
    beginning of the request; if it is empty, `sticky` works like `round_robin`.

    `sticky` is rendezvous hashing (Thaler, Ravishankar: "A Name-Based Mapping Scheme for Rendezvous", 1996): if a
    member goes, only its own requests move to others.
    """
    if policy == "sticky" and prefix:
        return sorted(members, key=lambda member: _score(prefix, labels[member]), reverse=True)
    first = turn % len(members) if members else 0
    return [*members[first:], *members[:first]]


def _score(prefix: str, label: str) -> bytes:
    return hashlib.blake2b(f"{prefix} {label}".encode(), digest_size=8).digest()


def prefix_of(fields: Mapping[str, JSON]) -> str:
    """A digest of the beginning of a conversation, up to the first user message, which the cache of a server that
    answered it holds. Takes a request in any of the three APIs."""
    messages = fields.get("messages", fields.get("input"))
    beginning = [fields.get(name) for name in _INSTRUCTIONS]
    for message in cast("list[JSON]", messages) if isinstance(messages, list) else [messages]:
        beginning.append(message)
        if isinstance(message, dict) and cast("Mapping[str, JSON]", message).get("role") == "user":
            break
    return hashlib.blake2b(json.dumps(beginning).encode(), digest_size=16).hexdigest()


def best_client_error(errors: Sequence[ToolspeakError]) -> ToolspeakError:
    """The error that the client gets if several upstreams failed: a retryable one if there is one, and of those the one
    with the shortest wait."""

    def rank(error: ToolspeakError) -> tuple[bool, bool, bool, float]:
        if not isinstance(error, ProviderError):
            return True, True, True, 0.0
        return False, not error.retryable, error.code == "connection", error.retry_after or 0.0

    return min(errors, key=rank)


class Pool:
    """The upstreams of one model, in one process. `labels` are their names in logs and metrics, `model` is the model's.
    `retries`: further rounds after all of them failed. `aside`: seconds without requests for an upstream that fails,
    the first time."""

    def __init__(
        self,
        model: str,
        labels: Sequence[str],
        policy: BalancingPolicy,
        retries: int,
        aside: float,
        probe: Probe,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.labels = tuple(labels)
        self.policy: BalancingPolicy = policy
        self._model = model
        self._retries = retries
        self._aside = aside
        self._probe = probe
        self._metrics = metrics
        self._clock = MonotonicClock() if clock is None else clock
        self._health = [HEALTHY] * len(self.labels)
        self._turns = 0
        self._probing: set[asyncio.Task[None]] = set()

    def serve(self, asking: UpstreamRequest) -> Coroutine[Any, Any, None]:
        """Sends the request to the upstreams until one answers.

        If an upstream fails before part of the answer has left, the next one is tried, unless it would fail alike.
        After all have failed there are further rounds, as for retries: after a pause, unless the upstreams ask for a
        longer one. Upstreams aside come last. Raises ToolspeakError.
        """
        return self._only(asking) if len(self.labels) == 1 else self._any(asking)

    async def _any(self, asking: UpstreamRequest) -> None:
        turn, self._turns = self._turns, self._turns + 1

        def order_of(members: Sequence[int]) -> list[int]:
            order = in_order(self.policy, self.labels, members, turn, asking.prefix)
            return sorted(order, key=lambda member: member != asking.first)

        for attempt in itertools.count(1):
            self._probe_due()
            up = [member for member in asking.members if self._health[member].is_asked]
            candidates, errors = order_of(up or asking.members), list[ToolspeakError]()
            if await self._one_of(candidates, asking, errors):
                return
            delay = self._delay(attempt, best_client_error(errors))
            if delay is None:
                rest = [member for member in asking.members if member not in candidates]
                if await self._one_of(order_of(rest), asking, errors):
                    return
                raise best_client_error(errors)
            await self._clock.sleep(delay)

    def healthy_first(self, members: Sequence[int]) -> list[int]:
        """The members, with those aside at the end."""
        return sorted(members, key=lambda member: not self._health[member].is_asked)

    def take_over(self, other: Pool) -> None:
        """Takes over the health of the upstreams from another pool of the same ones."""
        for member, health in enumerate(other._health):
            self._set(member, health.handed_over())

    def show(self) -> None:
        """Writes to the metrics which upstreams are up."""
        for member, health in enumerate(self._health):
            self._show(self.labels[member], is_up=health.state == "up")
            self._show_health(member, health)

    def retire(self) -> None:
        """Ends the pool's probes and gauges. Call it in the event loop, when no request uses the pool any more."""
        for task in self._probing:
            task.cancel()
        for member, label in enumerate(self.labels):
            self._show(label, is_up=True)
            self._show_health(member, None)
        self._metrics = None

    def _delay(self, attempt: int, error: ToolspeakError) -> float | None:
        if attempt > self._retries or not isinstance(error, ProviderError):
            return None
        return delay_before(attempt, error, self._clock.random(), LONGEST_WAIT)

    async def _only(self, asking: UpstreamRequest) -> None:
        """Asks the only upstream, which retries on its own. Its health decides nothing, but log and metrics show it."""
        self._count(0)
        try:
            with self._under_way(0):
                await asking.ask(0, _nothing)
            self._becomes(0, HEALTHY)
        except ToolspeakError as error:
            if is_fault(error):
                self._count(0, error)
                self._note_failure(0, error, decides=False)
            elif answered_by(error):
                self._becomes(0, HEALTHY)
            raise

    async def _one_of(self, members: Sequence[int], asking: UpstreamRequest, errors: list[ToolspeakError]) -> bool:
        """Whether one of the members answered. `errors` receives the errors of those that failed."""
        for member in members:
            try:
                await self._ask(member, asking)
            except ToolspeakError as error:
                if asking.has_left() or not allows_failover(error):
                    raise
                errors.append(error)
            else:
                return True
        return False

    async def _ask(self, member: int, asking: UpstreamRequest) -> None:
        is_trial = self._health[member].state == "answers"
        self._set(member, self._health[member].after_request())
        self._count(member)
        if asking.failures and self._metrics is not None:
            self._metrics.failovers.labels(self._model, self.labels[member]).inc()
        has_begun = False

        def answers() -> None:
            nonlocal has_begun
            if not has_begun:
                has_begun = True
                self._becomes(member, self._health[member].after_first_piece())

        try:
            with self._under_way(member):
                await asking.ask(member, answers)
            self._becomes(member, HEALTHY)
        except ToolspeakError as error:
            asking.failures.append((self.labels[member], _code(error)))
            if is_fault(error):
                self._count(member, error)
                self._note_failure(member, error, decides=is_trial and not has_begun)
            elif answered_by(error):
                self._becomes(member, HEALTHY)
            raise
        finally:
            if is_trial and not has_begun:
                self._set(member, self._health[member].after_abandoned_trial())

    def _note_failure(self, member: int, error: ToolspeakError, *, decides: bool) -> None:
        is_only = len(self.labels) == 1
        wait = error.retry_after if isinstance(error, ProviderError) and not is_only else None
        chance, now = self._clock.random(), self._clock.now()
        health = self._health[member].after_failure(now, self._aside, chance, wait, decides=decides)
        if health.state == "aside" and health is not self._health[member]:
            fields = {"model": self._model, "upstream": self.labels[member], "problem": str(error)}
            seconds = None if is_only else round(health.until - now, 2)
            log("upstream_aside", {**fields, "seconds": seconds}, level=logging.WARNING)
        self._becomes(member, health)

    def _becomes(self, member: int, health: Health) -> None:
        before = self._health[member]
        self._set(member, health)
        if (before.state == "up") != (health.state == "up"):
            self._show(self.labels[member], is_up=health.state == "up")
            if health.state == "up":
                log("upstream_back", {"model": self._model, "upstream": self.labels[member]})

    def _set(self, member: int, health: Health) -> None:
        before, self._health[member] = self._health[member], health
        if (before.state, before.until) != (health.state, health.until):
            self._show_health(member, health)

    def _probe_due(self) -> None:
        """Probes the upstreams whose time aside is over, so that no client waits for one that is still down. A probe
        belongs to no request, so it has neither a request id nor a trace."""
        now = self._clock.now()
        for member, health in enumerate(self._health):
            if health.is_due(now):
                self._set(member, health.probing())
                task = asyncio.get_running_loop().create_task(self._run_probe(member), context=contextvars.Context())
                self._probing.add(task)
                task.add_done_callback(self._probing.discard)

    async def _run_probe(self, member: int) -> None:
        problem = "the probe was cancelled"
        try:
            problem = await self._probe(member)
        finally:
            health = self._health[member]
            if problem and health.state == "probing":
                self._note_failure(member, ProviderError(problem, code="connection"), decides=True)
            else:
                self._set(member, health.after_probe())

    def _count(self, member: int, error: ToolspeakError | None = None) -> None:
        if self._metrics is None:
            return
        labels = (self._model, self.labels[member])
        if error is None:
            self._metrics.upstream_requests.labels(*labels).inc()
        else:
            self._metrics.upstream_failures.labels(*labels, _code(error)).inc()

    @contextmanager
    def _under_way(self, member: int) -> Generator[None]:
        """Counts a request that is under way at an upstream."""
        gauge = (
            None if self._metrics is None else self._metrics.upstream_active.labels(self._model, self.labels[member])
        )
        if gauge is not None:
            gauge.inc()
        try:
            yield
        finally:
            if gauge is not None:
                gauge.dec()

    def _show_health(self, member: int, health: Health | None) -> None:
        """Writes the state of an upstream to the metrics; None: it is no longer in use."""
        if self._metrics is not None:
            states = {state: health is not None and state == health.state for state in HEALTH_STATES}
            is_aside = health is not None and health.state == "aside"
            until = time.time() + health.until - self._clock.now() if health is not None and is_aside else 0.0
            self._metrics.show_health(self._model, self.labels[member], states, until)

    def _show(self, label: str, *, is_up: bool) -> None:
        if self._metrics is not None:
            self._metrics.show_upstream(self._model, label, FAULTS, is_up=is_up)


def _code(error: ToolspeakError) -> str:
    return error.code if isinstance(error, ProviderError) else "unable"


def _nothing() -> None:
    pass
