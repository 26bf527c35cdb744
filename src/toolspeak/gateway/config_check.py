"""Checks a configuration: what each model gets, and why (`toolspeak serve --check`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from toolspeak.agent.drivers.choose import DEFAULT_DIALECT
from toolspeak.agent.drivers.server_prompt import ServerPromptDriver, writes_tools
from toolspeak.agent.drivers.text import TextDriver
from toolspeak.dialects import known_dialect
from toolspeak.errors import ConfigurationError, JournalError, ProviderError, suggest
from toolspeak.gateway.listening_socket import PortInUse, listen
from toolspeak.gateway.settings.gateway_settings import Settings
from toolspeak.gateway.settings.upstream_settings import Upstream
from toolspeak.gateway.settings_generation import check_settings
from toolspeak.gateway.stored.response_store import ResponseStore, open_store
from toolspeak.gateway.upstreams.routing import Route, Router
from toolspeak.gateway.usage.usage_store import UsageStore, open_usage
from toolspeak.providers.base import Provider
from toolspeak.providers.server_probe import probe, served_window

MOST_MODELS = 50
"""The most models that are checked for one glob."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one model gets.

    `calls`, `prompt`, `required_call` and `window` are sentences.

    - `model`: its name for clients.
    - `upstream`: the provider, the model's name there and the address.
    - `calls`: how its calls are written.
    - `prompt`: who writes the prompt.
    - `required_call`: how a required call is enforced.
    - `window`: how many tokens it reads.
    - `problems`: what keeps it from answering.
    - `warnings`: what may be wrong and does not keep it from answering.
    - `has_substitute`: whether another upstream of the model answers instead.
    """

    model: str
    upstream: str
    calls: str = ""
    prompt: str = ""
    required_call: str = ""
    window: str = ""
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    has_substitute: bool = False


@dataclass(frozen=True, slots=True)
class ConfigReport:
    """The findings for each model, and for the gateway as a whole: `problems` keep it from starting, `warnings` do not,
    and `notes` may be intended."""

    models: Sequence[Finding]
    problems: Sequence[str]
    warnings: Sequence[str]
    notes: Sequence[str]


async def check(settings: Settings, environ: Mapping[str, str]) -> ConfigReport:
    """Requests the list of models of every upstream, and two answers of one token from a server that may write prompts.
    Checks that the stores can be opened, and creates none.

    Raises ConfigurationError if the settings of an upstream or a store are wrong.
    """
    check_settings(settings, environ)
    findings = await _models(settings, environ)
    problems, notes = await _stores(settings), list[str]()
    try:
        listen(settings.host, settings.port, backlog=1).close()
    except PortInUse:
        notes.append(f"port {settings.port} is in use: a second gateway could not serve there (is one running?)")
    except ConfigurationError as error:
        problems.append(str(error))
    warnings = [
        f"the key {key.name!r} has expired on {datetime.fromtimestamp(key.expires, UTC):%Y-%m-%d}"
        for key in settings.keys
        if key.expires is not None and key.expires <= time.time()
    ]
    return ConfigReport(findings, problems, warnings, notes)


async def _stores(settings: Settings) -> list[str]:
    """The problems of the stores of usage and of responses."""
    stores: list[UsageStore | ResponseStore] = []
    if settings.usage is not None:
        stores.append(open_usage(settings.usage.store))
    if settings.responses is not None:
        stores.append(open_store(settings.responses.store, settings.responses.seconds))
    problems: list[str] = []
    for store in stores:
        try:
            await store.check()
        except JournalError as error:
            problems.append(str(error))
        finally:
            await store.aclose()
    return problems


async def _models(settings: Settings, environ: Mapping[str, str]) -> Sequence[Finding]:
    router = Router(settings, environ)
    try:
        with router.probes() as probes:
            by_upstream = await asyncio.gather(*(_of_upstream(router, *each) for each in probes))
            names = [upstream.names for upstream, _ in probes]
    finally:
        await router.aclose()
    rows = [(own, finding) for own, findings in zip(names, by_upstream, strict=True) for finding in findings]
    working = {(own, finding.model) for own, finding in rows if not finding.problems}
    return [replace(finding, has_substitute=_has_substitute(own, finding, working)) for own, finding in rows]


def _has_substitute(names: tuple[str, ...], finding: Finding, working: Collection[tuple[tuple[str, ...], str]]) -> bool:
    """`working`: the models that answer, each with the names of its row. An upstream that lists no model at all has any
    other upstream of its row as a substitute."""
    if not finding.problems:
        return False
    return (names, finding.model) in working or (not finding.calls and any(names == own for own, _ in working))


async def _of_upstream(router: Router, upstream: Upstream, provider: Provider) -> Sequence[Finding]:
    rows, problem = await probe(provider, thorough=True)
    names = list(upstream.exact)
    if len(names) != len(upstream.names):
        names += [upstream.model] if upstream.model else [name for name in rows or () if upstream.serves(name)]
    if not names:
        why = problem or f"it lists no model that fits {', '.join(upstream.names)}"
        where = f"{upstream.provider} at {upstream.url}" if upstream.url else upstream.provider
        return [Finding(", ".join(upstream.names), where, problems=(why,))]
    checked_names = list(dict.fromkeys(names))[:MOST_MODELS]
    findings = await asyncio.gather(*(_of_model(router, upstream, name, rows, problem) for name in checked_names))
    return [finding for finding in findings if finding is not None]


async def _of_model(
    router: Router, upstream: Upstream, name: str, rows: Mapping[str, Mapping[str, Any]] | None, problem: str
) -> Finding | None:
    """None if the name belongs to another upstream, which comes before this one's glob."""
    with router.routes(name) as routes:
        route = next((route for route in routes.routes if route.upstream is upstream), None)
        if route is None:
            return None
        there = upstream.model or name
        problems, warnings = [problem] if problem else [], list[str]()
        if rows and there not in rows and not any(row.startswith(f"{there}:") for row in rows):
            warnings.append(f"the server lists no model {suggest(there, rows)} (set `model` to its name there)")
        if route.is_text and upstream.dialect not in ("auto", "native"):
            own = known_dialect(route.provider.name)
            if own is not None and own.name != route.dialect:
                warnings.append(f"by its name, the model was trained on {own.name}, not on {route.dialect}")
        return Finding(
            name,
            f"{route.provider.name} at {upstream.url}" if upstream.url else route.provider.name,
            _calls(upstream, route),
            "" if problem and route.is_text else await _prompt(upstream, route),
            _required_call(route),
            await _window(route, rows),
            tuple(problems),
            tuple(warnings),
        )


def _calls(upstream: Upstream, route: Route) -> str:
    if not route.is_text:
        why = "as configured" if upstream.dialect == "native" else f"{upstream.provider} is known to have calls"
        return f"native: the server reads and writes them ({why})"
    if upstream.dialect not in ("auto", "native"):
        return f"in text, in {route.dialect} (as configured)"
    own = known_dialect(route.provider.name)
    if own is not None:
        return f"in text, in {own.name} (by the model's name); every other dialect is read, too"
    return f"in text, in {DEFAULT_DIALECT} (no known family has the model's name); every other dialect is read, too"


async def _prompt(upstream: Upstream, route: Route) -> str:
    driver = route.driver
    if not isinstance(driver, TextDriver):
        return "the server writes it"
    fallback = _ours(upstream, driver)
    if not isinstance(driver, ServerPromptDriver):
        return fallback
    try:
        async with asyncio.timeout(upstream.timeouts.first_byte):
            writes = await writes_tools(route.provider)
    except (TimeoutError, ProviderError) as error:
        return f"{fallback}, unless the server writes tools if the tool choice is none: {error or 'it said nothing'}"
    if writes:
        return "the server writes it with the chat template (a tool makes it longer), and toolspeak reads the reply"
    return f"{fallback}; the server does not write tools if the tool choice is none"


def _ours(upstream: Upstream, driver: TextDriver) -> str:
    if upstream.listing not in (None, "trained", "server"):
        return f"toolspeak writes it, with the tools as {upstream.listing}"
    own = getattr(driver.dialect, "renderer", driver.dialect)
    if getattr(own, "chat_template", None) is not None:
        return f"toolspeak writes it like the chat template of {own.name}'s models"
    return "toolspeak writes it in its own words (`prose`)"


def _required_call(route: Route) -> str:
    capabilities = route.provider.capabilities
    if not route.is_text:
        return "enforced by the API" if capabilities.tool_choice else "requested in words, once more if no call comes"
    if capabilities.grammar is not None:
        return f"enforced by a grammar ({capabilities.grammar})"
    return "requested in words, once more if no call comes: no grammar of this server is known (`capabilities`)"


async def _window(route: Route, rows: Mapping[str, Mapping[str, Any]] | None) -> str:
    tokens, source = (0, "") if rows is None else await served_window(route.provider, rows)
    if tokens:
        return f"{tokens:,} tokens ({source})"
    context = route.provider.capabilities.context
    return f"{context:,} tokens" if context else "unknown: the server does not report it"
