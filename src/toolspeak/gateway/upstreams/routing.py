"""From the model a client names to the driver that reaches it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from toolspeak.agent.drivers.choose import choose_driver
from toolspeak.agent.drivers.native import NativeDriver
from toolspeak.agent.drivers.text import TextDriver
from toolspeak.errors import ConfigurationError, FormatError, suggest
from toolspeak.gateway.observability import Metrics
from toolspeak.gateway.settings.gateway_settings import Settings
from toolspeak.gateway.settings.upstream_settings import Upstream, labels_of
from toolspeak.gateway.upstreams.load_balancing import LONGEST_WAIT, Pool, UpstreamRequest
from toolspeak.providers import get_provider
from toolspeak.providers.base import Provider
from toolspeak.providers.configured_providers import environment_for
from toolspeak.providers.families import capabilities_of
from toolspeak.providers.provider_failures import Clock
from toolspeak.providers.server_probe import probe

MAX_MODELS = 256
"""Names of models that one process keeps connections for, if an upstream serves any name."""

_FORMATS = ("anthropic", "gemini", "ollama", "openai-responses")


@dataclass(frozen=True, slots=True)
class Route:
    """The way to a model through one of its upstreams, the one with this `number`.

    `driver` is for turns with tools, `plain` for turns without. `wire` is the upstream's format. `holds`: the dialect
    decides at the end of the turn which calls count, so calls leave only then.
    """

    upstream: Upstream
    provider: Provider
    driver: TextDriver | NativeDriver
    plain: NativeDriver
    wire: str
    holds: bool
    number: int = 0

    @property
    def dialect(self) -> str:
        """The dialect's name, for metrics."""
        return self.driver.dialect.name if isinstance(self.driver, TextDriver) else "native"

    @property
    def is_text(self) -> bool:
        return isinstance(self.driver, TextDriver)


@dataclass(frozen=True, slots=True)
class Routes:
    """The routes to a model, one for each of its upstreams that may answer."""

    pool: Pool
    routes: Sequence[Route]

    @property
    def most_tools(self) -> int | None:
        """The most tools of a request of which the model reads the definitions; None for all."""
        return self.routes[0].upstream.defer_tools

    def serve(
        self,
        ask: Callable[[Route, Callable[[], None]], Awaitable[None]],
        prefix: str = "",
        has_left: Callable[[], bool] = lambda: False,
        failures: list[tuple[str, str]] | None = None,
        last: Route | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Sends the request to the upstreams until one answers: see `Pool.serve`. `last`: the route of the previous
        turn."""
        routes = {route.number: route for route in self.routes}

        def ask_member(number: int, on_answer: Callable[[], None]) -> Awaitable[None]:
            return ask(routes[number], on_answer)

        failures = [] if failures is None else failures
        first = None if last is None else last.number
        return self.pool.serve(UpstreamRequest(tuple(routes), ask_member, has_left, prefix, failures, first))

    def healthy_first(self) -> Sequence[Route]:
        """The routes, with those to upstreams aside at the end."""
        routes = {route.number: route for route in self.routes}
        return [routes[number] for number in self.pool.healthy_first(tuple(routes))]

    def label(self, route: Route) -> str | None:
        """The name of a route's upstream in logs; None if the model has only one."""
        return self.pool.labels[route.number] if len(self.pool.labels) > 1 else None

    async def aclose(self) -> None:
        for route in self.routes:
            await route.provider.aclose()


@dataclass(slots=True)
class _OpenRoutes:
    """The routes of a model, and the number of requests that use them. `dropped`: the last of them closes the
    routes."""

    routes: Routes
    users: int = 0
    dropped: bool = False


class UnknownModel(ConfigurationError):
    """No upstream serves a model of this name."""


class Router:
    """The routes of one process; each is made at its first request."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        metrics: Metrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._metrics = metrics
        self._clock = clock
        self._open: OrderedDict[str, _OpenRoutes] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._probing = 0
        self._is_retired = False
        # Made now, so that a wrong key or address is an error at the start.
        self._probes = [
            (upstream, _provider(upstream, upstream.model or (upstream.exact or ("any",))[0], environ))
            for upstream in settings.upstreams
        ]
        groups: dict[tuple[str, ...], list[tuple[Upstream, Provider]]] = {}
        for upstream, provider in self._probes:
            groups.setdefault(upstream.names, []).append((upstream, provider))
        self._groups = [_Group(group, self._pool(group)) for group in groups.values()]
        self._exact = {name: group for group in self._groups for name in group.first.exact}

    def _pool(self, group: Sequence[tuple[Upstream, Provider]]) -> Pool:
        upstreams = [upstream for upstream, _ in group]
        first, labels = upstreams[0], labels_of(upstreams)
        retries = max(each.retries for each in upstreams)

        async def problem(number: int) -> str:
            return (await probe(group[number][1]))[1]

        aside = self._settings.aside_seconds
        return Pool(first.names[0], labels, first.policy, retries, aside, problem, self._metrics, self._clock)

    @contextmanager
    def probes(self) -> Generator[Sequence[tuple[Upstream, Provider]]]:
        """Each upstream with a provider that reaches it. The providers stay open during the context."""
        self._probing += 1
        try:
            yield self._probes
        finally:
            self._probing -= 1
            if self._is_retired and not self._probing:
                self._close_probes()

    @property
    def names(self) -> tuple[str, ...]:
        """The configured names that are no globs."""
        return tuple(self._exact)

    @contextmanager
    def routes(self, model: str, allows: Callable[[str], bool] = lambda _: True) -> Generator[Routes]:
        """The routes to a model, which stay open during the context. `allows`: whether the client may know a name.

        Raises UnknownModel, and ConfigurationError for an upstream whose configuration does not work.
        """
        if not allows(model):
            raise self._unknown_model(model, allows)
        entry = self._open.get(model)
        if entry is None:
            group = self._exact.get(model) or self._matching(model, allows)
            entry = self._open[model] = _OpenRoutes(self._new_routes(group, model))
        self._open.move_to_end(model)
        entry.users += 1
        if len(self._open) > MAX_MODELS + len(self._exact):
            self._drop_one()
        try:
            yield entry.routes
        finally:
            entry.users -= 1
            if entry.dropped and not entry.users:
                self._close(entry.routes)

    def show(self) -> None:
        """Writes to the metrics which upstreams are up, and starts the counters of the models at 0."""
        for group in self._groups:
            group.pool.show()
        if self._metrics is None:
            return
        for name in self._exact:
            with suppress(ConfigurationError), self.routes(name) as routes:  # a request for the model reports it
                for route in routes.routes:
                    self._metrics.show_route(name, route.dialect)

    def take_over(self, other: Router) -> None:
        """Keeps the upstreams aside that `other` has put aside, if the configuration of their model is the same."""
        for group in self._groups:
            for theirs in other._groups:
                if [upstream for upstream, _ in group.upstreams] == [upstream for upstream, _ in theirs.upstreams]:
                    group.pool.take_over(theirs.pool)

    def retire(self) -> None:
        """Closes unused connections now, and each other one after the last request that uses it. Call it in the event
        loop."""
        self._is_retired = True
        for entry in self._open.values():
            entry.dropped = True
            if not entry.users:
                self._close(entry.routes)
        self._open.clear()
        for group in self._groups:
            group.pool.retire()
        if not self._probing:
            self._close_probes()

    def _close_probes(self) -> None:
        for _, provider in self._probes:
            self._close(provider)

    def _drop_one(self) -> None:
        """Drops the least recently used model of a glob. If turns are under way, the last of them closes the
        connections."""
        entry = self._open.pop(next(name for name in self._open if name not in self._exact))
        entry.dropped = True
        if not entry.users:
            self._close(entry.routes)

    def _close(self, resource: Routes | Provider) -> None:
        closing = asyncio.get_running_loop().create_task(resource.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _matching(self, model: str, allows: Callable[[str], bool]) -> _Group:
        for group in self._groups:
            if group.first.serves(model):
                return group
        raise self._unknown_model(model, allows)

    def _unknown_model(self, model: str, allows: Callable[[str], bool]) -> UnknownModel:
        return UnknownModel(f"there is no model {suggest(model, filter(allows, self._exact))}")

    def _new_routes(self, group: _Group, model: str) -> Routes:
        grace, is_one = self._settings.grace_seconds, len(group.upstreams) == 1
        routes: list[Route] = []
        for number, (upstream, _) in enumerate(group.upstreams):
            # Among several upstreams, the pool tries the next one instead of a retry: see `Pool.serve`.
            upstream_settings = upstream if is_one else replace(upstream, retries=0)
            provider = _provider(upstream_settings, upstream.model or model, self._environ)
            routes.append(_route(upstream, provider, grace, number))
        return Routes(group.pool, routes)

    async def aclose(self) -> None:
        for group in self._groups:
            group.pool.retire()
        for _, provider in self._probes:
            await provider.aclose()
        for entry in self._open.values():
            await entry.routes.aclose()
        await asyncio.gather(*self._closing)


def sole_model(settings: Settings) -> str:
    """The model of a request that names none: the only one. Raises FormatError if there are more."""
    names = {name for upstream in settings.upstreams for name in upstream.names}
    if len(names) != 1:
        raise FormatError("model: missing; several are served here, so the request has to name one")
    return names.pop()


@dataclass(frozen=True, slots=True)
class _Group:
    """The upstreams of the same models, each with the provider that probes it."""

    upstreams: Sequence[tuple[Upstream, Provider]]
    pool: Pool

    @property
    def first(self) -> Upstream:
        return self.upstreams[0][0]


def _route(upstream: Upstream, provider: Provider, grace: float, number: int) -> Route:
    driver, dialect = choose_driver(
        provider, upstream.dialect, upstream.starts_in, grace=grace, late_leaks=True, listing=upstream.listing
    )
    assert isinstance(driver, TextDriver | NativeDriver), "a configuration names no other driver"
    wire = upstream.provider if upstream.provider in _FORMATS else "openai-chat"
    holds = dialect is not None and dialect.batch.counts == "last_call"
    return Route(upstream, provider, driver, NativeDriver(provider, leaks=None), wire, holds, number)


def _provider(upstream: Upstream, model: str, environ: Mapping[str, str]) -> Provider:
    name = upstream.provider
    settings: dict[str, Any] = {}
    if name != "scripted":
        settings = {"timeout": upstream.timeouts, "retries": upstream.retries, "longest_wait": LONGEST_WAIT}
        if upstream.options:
            settings["options"] = upstream.options
        if upstream.capabilities:
            settings["capabilities"] = replace(_known_capabilities(upstream, model), **upstream.capabilities)
    return get_provider(f"{name}:{model}", _environment(upstream, environ), **settings)


def _known_capabilities(upstream: Upstream, model: str) -> Any:
    provider_name = "" if upstream.provider == "openai" and upstream.url else upstream.provider
    return capabilities_of(provider_name, model, own_server=bool(upstream.url))


def _environment(upstream: Upstream, environ: Mapping[str, str]) -> Mapping[str, str]:
    """The environment for the provider. An address from the configuration gets only the key that the configuration
    names."""
    if upstream.provider == "scripted":
        return environ
    what = f"the upstream's key for {upstream.names[0]!r}"
    return environment_for(upstream.provider, upstream.url, upstream.key_variable, environ, what)
