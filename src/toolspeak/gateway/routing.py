"""From the model a client names to the driver that reaches it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from toolspeak.agent.choose import choose_driver
from toolspeak.agent.driver import TextDriver
from toolspeak.agent.native import NativeDriver
from toolspeak.errors import FormatError, UsageError, suggest
from toolspeak.gateway.config import Settings
from toolspeak.gateway.upstream import Upstream
from toolspeak.providers import get_provider
from toolspeak.providers.base import Provider
from toolspeak.providers.compatible import COMPATIBLE
from toolspeak.providers.families import capabilities_of

MAX_MODELS = 256
"""Names that one process keeps connections for, where an upstream serves whatever it is asked for."""

LONGEST_WAIT = 2.0
"""Seconds that an upstream may ask the gateway to wait (Retry-After) before it is asked again; the client is told of a
longer wait at once."""

_VARIABLES: Mapping[str, tuple[str, str]] = {
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    "gemini": ("GEMINI_BASE_URL", "GEMINI_API_KEY"),
    "ollama": ("OLLAMA_HOST", "OLLAMA_API_KEY"),
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "openai-responses": ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
    **{name: (each.url_variable, each.key_variable) for name, each in COMPATIBLE.items()},
}
"""The environment variables of each provider's address and key."""

_FORMATS = ("anthropic", "gemini", "ollama", "openai-responses")


@dataclass(frozen=True, slots=True)
class Route:
    """A model as clients name it, ready to be asked.

    `driver` is for turns with tools; `plain` asks without any, and passes on what it is told. `wire` is the format
    that the upstream speaks. `holds`: calls may be known not to count only at the turn's end, so they leave then.
    """

    upstream: Upstream
    provider: Provider
    driver: TextDriver | NativeDriver
    plain: NativeDriver
    wire: str
    holds: bool

    @property
    def dialect(self) -> str:
        """The dialect's name, for metrics."""
        return self.driver.dialect.name if isinstance(self.driver, TextDriver) else "native"

    @property
    def is_text(self) -> bool:
        return isinstance(self.driver, TextDriver)


@dataclass(slots=True)
class _Kept:
    """A route, and how many requests use it. `dropped`: it is used by them alone."""

    route: Route
    users: int = 0
    dropped: bool = False


class UnknownModel(UsageError):
    """No upstream serves a model of this name."""


class Router:
    """The routes of one process; each is made when it is first asked for."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        self._exact = {name: upstream for upstream in settings.upstreams for name in upstream.exact}
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._probing = 0
        self._retired = False
        # A wrong key or address is told at once.
        self._probes = [
            (upstream, _provider(upstream, upstream.model or (upstream.exact or ("any",))[0], environ))
            for upstream in settings.upstreams
        ]

    @contextmanager
    def probes(self) -> Generator[Sequence[tuple[Upstream, Provider]]]:
        """Each upstream with a provider that reaches it, open at least as long as the context."""
        self._probing += 1
        try:
            yield self._probes
        finally:
            self._probing -= 1
            if self._retired and not self._probing:
                self._close_probes()

    @property
    def names(self) -> tuple[str, ...]:
        """The names that are configured without a glob."""
        return tuple(self._exact)

    @contextmanager
    def route(self, model: str, allows: Callable[[str], bool] = lambda _: True) -> Generator[Route]:
        """The route to a model, open at least as long as the context. `allows`: which names the client may know of.

        Raises UnknownModel; UsageError if the upstream cannot be asked as it is configured.
        """
        if not allows(model):
            raise self._unknown(model, allows)
        kept = self._kept.get(model)
        if kept is None:
            upstream = self._exact.get(model) or self._matching(model, allows)
            made = _made(upstream, upstream.model or model, self._environ, self._settings.grace_seconds)
            kept = self._kept[model] = _Kept(made)
        self._kept.move_to_end(model)
        kept.users += 1
        if len(self._kept) > MAX_MODELS + len(self._exact):
            self._drop_one()
        try:
            yield kept.route
        finally:
            kept.users -= 1
            if kept.dropped and not kept.users:
                self._close(kept.route.provider)

    def retire(self) -> None:
        """Closes what no request uses, and all else with the last request that does. To be called in the event loop."""
        self._retired = True
        for kept in self._kept.values():
            kept.dropped = True
            if not kept.users:
                self._close(kept.route.provider)
        self._kept.clear()
        if not self._probing:
            self._close_probes()

    def _close_probes(self) -> None:
        for _, provider in self._probes:
            self._close(provider)

    def _drop_one(self) -> None:
        """Forgets the model of a glob that was asked for longest ago. Where turns are under way, the last of them
        closes its connections."""
        kept = self._kept.pop(next(name for name in self._kept if name not in self._exact))
        kept.dropped = True
        if not kept.users:
            self._close(kept.route.provider)

    def _close(self, provider: Provider) -> None:
        closing = asyncio.get_running_loop().create_task(provider.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _matching(self, model: str, allows: Callable[[str], bool]) -> Upstream:
        for upstream in self._settings.upstreams:
            if upstream.serves(model):
                return upstream
        raise self._unknown(model, allows)

    def _unknown(self, model: str, allows: Callable[[str], bool]) -> UnknownModel:
        return UnknownModel(f"there is no model {suggest(model, filter(allows, self._exact))}")

    async def aclose(self) -> None:
        for _, provider in self._probes:
            await provider.aclose()
        for kept in self._kept.values():
            await kept.route.provider.aclose()
        await asyncio.gather(*self._closing)


def sole_model(settings: Settings) -> str:
    """What a request asks for that names no model: the one that there is. Raises FormatError where there are more."""
    names = [name for upstream in settings.upstreams for name in upstream.names]
    if len(names) != 1:
        raise FormatError("model: missing; several are served here, so the request has to name one")
    return names[0]


def _made(upstream: Upstream, model: str, environ: Mapping[str, str], grace: float) -> Route:
    provider = _provider(upstream, model, environ)
    driver, dialect = choose_driver(
        provider, upstream.dialect, upstream.starts_in, grace=grace, late_leaks=True, listing=upstream.listing
    )
    assert isinstance(driver, TextDriver | NativeDriver), "no other is asked for in a configuration"
    wire = upstream.provider if upstream.provider in _FORMATS else "openai-chat"
    holds = dialect is not None and dialect.batch.counts == "last_call"
    return Route(upstream, provider, driver, NativeDriver(provider, leaks=None), wire, holds)


def _provider(upstream: Upstream, model: str, environ: Mapping[str, str]) -> Provider:
    name = upstream.provider
    settings: dict[str, Any] = {}
    if name != "scripted":
        settings = {"timeout": upstream.timeouts, "retries": upstream.retries, "longest_wait": LONGEST_WAIT}
        if upstream.options:
            settings["options"] = upstream.options
        if upstream.capabilities:
            settings["capabilities"] = replace(_known(upstream, model), **upstream.capabilities)
    return get_provider(f"{name}:{model}", _environment(upstream, environ), **settings)


def _known(upstream: Upstream, model: str) -> Any:
    known = "" if upstream.provider == "openai" and upstream.url else upstream.provider
    return capabilities_of(known, model, own_server=bool(upstream.url))


def _environment(upstream: Upstream, environ: Mapping[str, str]) -> Mapping[str, str]:
    """The environment as the provider is to see it. A key goes to an address of one's own only by name."""
    if upstream.provider == "scripted":
        return environ
    url, key = _VARIABLES[upstream.provider]
    seen = dict(environ)
    if upstream.url:
        seen[url] = upstream.url
        seen.pop(key, None)
    if upstream.key_variable:
        value = environ.get(upstream.key_variable, "").strip()
        if not value:
            raise UsageError(f"the key of {upstream.names[0]!r}: the variable {upstream.key_variable} is not set")
        seen[key] = value
    return seen
