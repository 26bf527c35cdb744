"""From the model a client names to the driver that reaches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolspeak.agent.choose import choose_driver
from toolspeak.agent.driver import Driver, TextDriver
from toolspeak.agent.native import NativeDriver
from toolspeak.errors import UsageError, suggest
from toolspeak.gateway.config import Settings, Upstream
from toolspeak.providers import get_provider
from toolspeak.providers.base import Provider
from toolspeak.providers.capabilities import capabilities_of
from toolspeak.providers.compatible import COMPATIBLE

MAX_MODELS = 256
"""Names that one process keeps connections for, where an upstream serves whatever it is asked for."""

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
    driver: Driver
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


class UnknownModel(UsageError):
    """No upstream serves a model of this name."""


class Router:
    """The routes of one process; each is made when it is first asked for."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        self._exact = {name: upstream for upstream in settings.upstreams for name in upstream.exact}
        self._routes: dict[str, Route] = {}
        # A wrong key or address is told at once.
        self._probes = [
            (upstream, _provider(upstream, upstream.model or (upstream.exact or ("any",))[0], environ))
            for upstream in settings.upstreams
        ]

    @property
    def probes(self) -> Sequence[tuple[Upstream, Provider]]:
        """Each upstream with a provider that reaches it."""
        return self._probes

    @property
    def names(self) -> tuple[str, ...]:
        """The names that are configured without a glob."""
        return tuple(self._exact)

    def route(self, model: str) -> Route:
        """Raises UnknownModel; UsageError if the upstream cannot be asked as it is configured."""
        found = self._routes.get(model)
        if found is None:
            upstream = self._exact.get(model) or self._matching(model)
            found = _made(upstream, upstream.model or model, self._environ, self._settings.grace_seconds)
            if len(self._routes) >= MAX_MODELS:
                # Turns may be under way there: what is dropped closes its connections when the last of them ends.
                self._routes.pop(next(name for name in self._routes if name not in self._exact))
            self._routes[model] = found
        return found

    def _matching(self, model: str) -> Upstream:
        for upstream in self._settings.upstreams:
            if upstream.serves(model):
                return upstream
        raise UnknownModel(f"there is no model {suggest(model, self._exact)}")

    async def aclose(self) -> None:
        for _, provider in self._probes:
            await provider.aclose()
        for route in self._routes.values():
            await route.provider.aclose()


def _made(upstream: Upstream, model: str, environ: Mapping[str, str], grace: float) -> Route:
    provider = _provider(upstream, model, environ)
    driver, dialect = choose_driver(provider, upstream.dialect, upstream.starts_in, grace=grace, late_leaks=True)
    wire = upstream.provider if upstream.provider in _FORMATS else "openai-chat"
    holds = dialect is not None and dialect.batch.counts == "last_call"
    return Route(upstream, provider, driver, NativeDriver(provider), wire, holds)


def _provider(upstream: Upstream, model: str, environ: Mapping[str, str]) -> Provider:
    name = upstream.provider
    settings: dict[str, Any] = {}
    if name != "scripted":
        settings = {"timeout": upstream.timeouts, "retries": upstream.retries}
        if upstream.options:
            settings["options"] = {**_own_options(name), **upstream.options}
        if upstream.capabilities:
            settings["capabilities"] = replace(_known(upstream, model), **upstream.capabilities)
    return get_provider(f"{name}:{model}", _environment(upstream, environ), **settings)


def _known(upstream: Upstream, model: str) -> Any:
    known = "" if upstream.provider == "openai" and upstream.url else upstream.provider
    return capabilities_of(known, model, own_server=bool(upstream.url))


def _own_options(provider: str) -> Mapping[str, Any]:
    return COMPATIBLE[provider].options if provider in COMPATIBLE else {}


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
