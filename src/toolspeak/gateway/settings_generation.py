"""Settings with the routes and tools made from them. A reload makes the next generation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from toolspeak import mcp
from toolspeak.gateway.observability import Metrics
from toolspeak.gateway.server_tools.tool_servers import ServerTools
from toolspeak.gateway.settings.gateway_settings import Settings
from toolspeak.gateway.stored.response_store import open_store
from toolspeak.gateway.upstreams.routing import Router
from toolspeak.gateway.usage.usage_store import open_usage

_FIXED_SETTINGS = ("host", "port", "workers", "responses", "usage")
"""Settings that a process cannot change while it runs."""


_OF_ROUTES = ("upstreams", "grace_seconds", "aside_seconds")
"""Settings that the routes to the models depend on."""


@dataclass(eq=False, slots=True)
class SettingsGeneration:
    """Settings, routes and tools. A request keeps its generation to its end."""

    settings: Settings
    router: Router
    tools: ServerTools | None


def first_generation(settings: Settings, environ: Mapping[str, str], metrics: Metrics) -> SettingsGeneration:
    """Raises ConfigurationError for invalid settings."""
    return SettingsGeneration(settings, Router(settings, environ, metrics), _tools(settings, metrics))


def check_settings(settings: Settings, environ: Mapping[str, str]) -> None:
    """Raises ConfigurationError for invalid settings."""
    Router(settings, environ)
    if settings.responses is not None:
        open_store(settings.responses.store, settings.responses.seconds)
    if settings.usage is not None:
        open_usage(settings.usage.store)
    if settings.tools is not None:
        mcp.McpServers.from_file(settings.tools.file)


def next_generation(
    old: SettingsGeneration, settings: Settings, environ: Mapping[str, str], metrics: Metrics
) -> tuple[SettingsGeneration, ServerTools | None]:
    """The generation after `old`, and its tools. It has the tools of `old` until the new ones are connected.

    Unchanged parts are taken over with their connections. Raises ConfigurationError for invalid settings.
    """
    settings, _ = with_fixed_settings(old.settings, settings)
    same = all(getattr(settings, name) == getattr(old.settings, name) for name in _OF_ROUTES)
    tools = _tools(settings, metrics)
    if tools is not None and old.tools is not None and tools.same_as(old.tools):
        tools = old.tools
    return SettingsGeneration(settings, old.router if same else Router(settings, environ, metrics), old.tools), tools


def with_fixed_settings(old: Settings, new: Settings) -> tuple[Settings, tuple[str, ...]]:
    """The new settings, except for those that only a restart changes, and the names of those exceptions that differ."""
    usage = old.usage or new.usage  # a store that is there stays; the first one may come at any time
    changed_names = [name for name in _FIXED_SETTINGS if getattr(old, name) != getattr(new, name)]
    if old.usage is None and usage is not None:
        changed_names.remove("usage")
    bounds = replace(new.bounds, header_bytes=old.bounds.header_bytes)
    if bounds != new.bounds:
        changed_names.append("header_bytes")
    settings = replace(
        new, host=old.host, port=old.port, workers=old.workers, bounds=bounds, responses=old.responses, usage=usage
    )
    return settings, tuple(changed_names)


def _tools(settings: Settings, metrics: Metrics) -> ServerTools | None:
    return None if settings.tools is None else ServerTools(settings.tools, metrics)
