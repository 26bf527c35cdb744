"""Looks at what a run needs, and says what is wrong and what to do: configuration, model, MCP servers, journal."""

from __future__ import annotations

import asyncio
import difflib
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from toolspeak import mcp
from toolspeak.agent.drivers.choose import DEFAULT_DIALECT, choose_driver, model_name_for_lookup
from toolspeak.agent.drivers.native import NativeDriver
from toolspeak.agent.drivers.probing import ProbingDriver
from toolspeak.agent.drivers.server_prompt import ServerPromptDriver
from toolspeak.data.values import evolve, quick
from toolspeak.dialects import known_dialect
from toolspeak.errors import ConfigurationError, JournalError, McpError, ToolspeakError
from toolspeak.journal import Journal, MemoryJournal, SqliteJournal
from toolspeak.journal.maintenance import MaintainedJournal
from toolspeak.mcp.servers_file import Server
from toolspeak.project.configuration.config import Config
from toolspeak.project.configuration.configured_servers import servers_of_run
from toolspeak.project.configuration.sandbox_settings import mode_of_environment
from toolspeak.project.run_setup import Setup
from toolspeak.providers import get_provider
from toolspeak.providers.api import ApiProvider
from toolspeak.providers.base import Provider
from toolspeak.providers.configured_providers import API_NAMES, variables_of
from toolspeak.providers.model_strings import CONFIGURED_PROVIDERS, DEFAULT
from toolspeak.providers.server_probe import probe, served_window
from toolspeak.sandbox.opening import BETTER, open_sandbox
from toolspeak.version import __version__

CONNECT_SECONDS = 30.0
"""The longest time for an MCP server to be ready."""

JOURNAL_SECONDS = 20.0
"""The longest time for the check of the journal's file."""

_SHORT_LISTS = ("anthropic", "gemini")
"""APIs that list their models a page at a time."""

_ANY_NAME = ("llamacpp", "lmstudio")
"""Servers that answer for any name of a model."""


@quick()
class Diagnosis:
    """One finding: about what, whether it works, and what to do."""

    subject: str
    state: Literal["ok", "warning", "problem"]
    text: str
    remedy: str = ""


async def diagnose(setup: Setup, config: Config, journal: Journal) -> Sequence[Diagnosis]:
    """What a run with these settings would find. It asks the model's server for its list of models, starts each MCP
    server and ends it, reads the journal, and asks no model. Each part has a limit of seconds."""
    parts = await asyncio.gather(_model(setup), _sandbox(setup), _mcp_servers(setup), _journal(journal))
    return [
        Diagnosis("toolspeak", "ok", f"{__version__}, Python {platform.python_version()}, {platform.system()}"),
        *_configuration(config),
        *(each for part in parts for each in part),
        _extras(setup),
    ]


def _configuration(config: Config) -> Iterator[Diagnosis]:
    files = sorted({origin.file.path for origins in config.origins.values() for origin in origins if origin.file})
    yield Diagnosis("configuration", "ok", ", ".join(files) or "none; the defaults apply")
    for warning in config.warnings:
        yield Diagnosis("configuration", "warning", warning)


# --- the model and its server ----------------------------------------------------------------------------------------


async def _model(setup: Setup) -> Sequence[Diagnosis]:
    if not setup.model:
        remedy = "write --model PROVIDER:NAME, set TOOLSPEAK_MODEL, or write `model` with `toolspeak config edit`"
        return [Diagnosis("model", "problem", "none is named", remedy)]
    CONFIGURED_PROVIDERS.set(setup.providers)
    try:
        provider = get_provider(setup.model, os.environ)
    except ToolspeakError as error:
        is_key = any(name in str(error) for name in _key_variables(setup))
        return [Diagnosis("key" if is_key else "model", "problem", f"{setup.model}: {error}")]
    try:
        if not isinstance(provider, ApiProvider):
            return [Diagnosis("model", "ok", f"{provider.name}; it has no server"), *_dialect(setup, provider)]
        rows, problem = await probe(provider, thorough=True)
        findings = [*_server(provider, rows, problem, _key(setup))]
        if not problem:
            findings += _model_in_list(setup, provider, rows or {})
        tokens, source = await served_window(provider, rows or {})
        findings += [*_dialect(setup, provider), *_window(setup, provider, tokens, source)]
        return [
            evolve(each, text=_hide_key(each.text, provider), remedy=_hide_key(each.remedy, provider))
            for each in findings
        ]
    finally:
        await provider.aclose()


def _hide_key(text: str, provider: ApiProvider) -> str:
    """The text without the key: a server may repeat it in any field."""
    for secret in provider.secrets:
        text = text.replace(secret, "[API key]")
    return text


def _key(setup: Setup) -> Diagnosis:
    """Whether the variable of the key is set."""
    names = _key_variables(setup)
    variable = next((name for name in names if os.environ.get(name, "").strip()), "")
    if variable:
        return Diagnosis("key", "ok", f"{variable} is set")
    return Diagnosis("key", "ok", f"none is sent ({' or '.join(names)} is not set)" if names else "none is sent")


def _key_variables(setup: Setup) -> Sequence[str]:
    """The environment variables that may hold the key of the model's provider."""
    prefix = _prefix(setup)
    provider_settings = setup.providers.get(prefix)
    if provider_settings is None:
        return variables_of(prefix)[1]
    if provider_settings.key_env:
        return (provider_settings.key_env,)
    return () if provider_settings.base_url else variables_of(provider_settings.api)[1]


def _prefix(setup: Setup) -> str:
    """The provider's name in the model string."""
    prefix, colon, _ = setup.model.partition(":")
    return prefix if colon and (prefix in API_NAMES or prefix in setup.providers) else DEFAULT


def _server(
    provider: ApiProvider, rows: Mapping[str, Mapping[str, Any]] | None, problem: str, key: Diagnosis
) -> Iterator[Diagnosis]:
    is_refusal = "HTTP 401" in problem or "HTTP 403" in problem
    if problem and not is_refusal:
        yield Diagnosis("server", "problem", f"{provider.address}: {problem}")
    else:
        owners = {str(row["owned_by"]) for row in (rows or {}).values() if row.get("owned_by")}
        kind = f" ({', '.join(sorted(owners)[:3])})" if 0 < len(owners) <= 3 else ""
        yield Diagnosis("server", "ok", f"{provider.address} answers{kind}")
    if is_refusal:
        yield Diagnosis("key", "problem", f"{key.text}, and the server refuses it: {problem}")
    else:
        is_accepted = key.text.endswith("is set") and not problem
        yield Diagnosis("key", key.state, f"{key.text}, and the server accepts it" if is_accepted else key.text)


def _model_in_list(setup: Setup, provider: ApiProvider, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[Diagnosis]:
    """Whether the server has the model, and which names are near."""
    name = provider.name.partition(":")[2]
    if not rows:
        remedy = "run a short task to see whether it answers"
        yield Diagnosis("model", "warning", f"{name}: the server lists no models", remedy)
        return
    if name in rows or any(row.startswith((f"{name}:", f"{name}-", f"{name}@")) for row in rows):
        yield Diagnosis("model", "ok", f"{name} is one of the server's {len(rows):,}")
        return
    near = difflib.get_close_matches(name, rows, n=3, cutoff=0.4) or sorted(rows)[:3]
    provider_settings = setup.providers.get(_prefix(setup))
    api = provider_settings.api if provider_settings is not None else _prefix(setup)
    owners = " ".join(str(row.get("owned_by", "")) for row in rows.values())
    is_open = api in (*_SHORT_LISTS, *_ANY_NAME) or any(each in owners for each in _ANY_NAME)
    remedy = f"the nearest names: {', '.join(near)}" + (f"; or run: ollama pull {name}" if api == "ollama" else "")
    yield Diagnosis("model", "warning" if is_open else "problem", f"the server lists no model {name!r}", remedy)


def _dialect(setup: Setup, provider: Provider) -> Iterator[Diagnosis]:
    """How calls would be written, and why."""
    try:
        driver, dialect = choose_driver(
            provider, setup.dialect, setup.starts_in, probes_server=True, listing=setup.listing
        )
    except ConfigurationError as error:
        yield Diagnosis("dialect", "problem", str(error))
        return
    own = known_dialect(model_name_for_lookup(provider))
    text = f"{own.name}, by the model's name" if own is not None else f"{DEFAULT_DIALECT}: the model's own is not known"
    if setup.dialect == "react":
        yield Diagnosis("dialect", "ok", "react, as you chose")
    elif setup.dialect == "native" or isinstance(driver, NativeDriver):
        why = "as you chose" if setup.dialect == "native" else "the API is known to have them"
        yield Diagnosis("dialect", "ok", f"native calls: {why}")
    elif isinstance(driver, ProbingDriver):
        either = "native calls if the server takes them (the first turn asks)"
        yield Diagnosis("dialect", "ok", f"{either}, else text in {text}")
    elif setup.dialect != "auto" and dialect is not None:
        choice = f"text in {dialect.name}, as you chose"
        if own is None or own.name == dialect.name:
            yield Diagnosis("dialect", "ok", choice)
        else:
            remedy = f"by its name, the model was trained on {own.name}: try --dialect auto"
            yield Diagnosis("dialect", "warning", choice, remedy)
    else:
        writer = "; the server writes the prompt" if isinstance(driver, ServerPromptDriver) else ""
        yield Diagnosis("dialect", "ok", f"text in {text}{writer}")


def _window(setup: Setup, provider: ApiProvider, tokens: int, source: str) -> Iterator[Diagnosis]:
    """`tokens`: what the server gives the model, 0 if it does not say. `source`: where it says so."""
    if not tokens and provider.capabilities.context:
        tokens, source = provider.capabilities.context, "by the model's name"
    if setup.window and tokens and setup.window > tokens:
        text = f"you set {setup.window:,} tokens, and the model has {tokens:,} ({source})"
        yield Diagnosis("window", "warning", text, f"set window = {tokens}")
    elif setup.window:
        yield Diagnosis("window", "ok", f"{setup.window:,} tokens, as you set it")
    elif tokens:
        remedy = f"set window = {tokens}, and conversations are shortened before they fill it"
        yield Diagnosis("window", "warning", f"{tokens:,} tokens ({source}), and none is set", remedy)
    else:
        remedy = "set `window` to the tokens that the server gives the model: long conversations fail otherwise"
        yield Diagnosis("window", "warning", "unknown: the server does not report it", remedy)


# --- the sandbox ------------------------------------------------------------------------------------------------------


async def _sandbox(setup: Setup) -> Sequence[Diagnosis]:
    """What holds commands at a terminal, and why nothing better does."""
    try:
        mode = setup.sandbox or mode_of_environment() or "auto"
        outcome = await open_sandbox(mode, near=setup.workspace)
    except ConfigurationError as error:
        return [Diagnosis("sandbox", "problem", str(error))]
    await outcome.sandbox.aclose()
    text = outcome.line.removeprefix("sandbox: ")
    if mode == "off":
        return [Diagnosis("sandbox", "warning", f"{text}, as you set it", "--sandbox auto uses what this system has")]
    if not outcome.why_no_better:
        return [Diagnosis("sandbox", "ok", text)]
    if outcome.sandbox.level == "none":
        remedy = f"{BETTER}; until then, no run begins if nobody can be asked, unless you give --sandbox off"
        return [Diagnosis("sandbox", "warning", text, remedy)]
    return [Diagnosis("sandbox", "warning", f"{text}; {outcome.why_no_better}", f"{BETTER}: its sandbox is stricter")]


# --- MCP servers, the journal and the installation ------------------------------------------------------------------


async def _mcp_servers(setup: Setup) -> Sequence[Diagnosis]:
    try:
        servers = [server for part in servers_of_run(setup) for server in part]
    except ConfigurationError as error:
        return [Diagnosis("mcp", "problem", str(error))]
    if not servers:
        return [Diagnosis("mcp", "ok", "no servers are configured")]
    return [each for part in await asyncio.gather(*map(_mcp_server, servers)) for each in part]


async def _mcp_server(server: Server) -> Sequence[Diagnosis]:
    subject = f"mcp {server.name}"
    try:
        async with mcp.McpServers([server], connect_timeout=CONNECT_SECONDS) as servers:
            own_tools = servers.listed_tools(server.name)
            others = len(list(servers.tools)) - len(own_tools)
            besides = f", and {others} for its resources and prompts" if others > 0 else ""
            tools = Diagnosis(subject, "ok", f"{len(own_tools)} tool{'s' * (len(own_tools) != 1)}{besides}")
            return [tools, *(Diagnosis(subject, "warning", str(each)) for each in servers.left_out)]
    except (McpError, ConfigurationError) as error:
        return [Diagnosis(subject, "problem", str(error))]


async def _journal(journal: Journal) -> Sequence[Diagnosis]:
    if isinstance(journal, MemoryJournal):
        return [Diagnosis("journal", "warning", "none: a run ends with its process, and cannot be resumed")]
    if isinstance(journal, SqliteJournal):
        problem = _not_writable(journal.path)
        if problem:
            remedy = "make it writable, or name another (--journal)"
            return [Diagnosis("journal", "problem", f"{journal.path}: {problem}", remedy)]
        if not journal.path.exists():
            return [Diagnosis("journal", "ok", f"{journal.path} does not exist yet; the first run makes it")]
    try:
        async with asyncio.timeout(JOURNAL_SECONDS):
            await journal.runs(limit=1)
            faults = [*await journal.faults()] if isinstance(journal, MaintainedJournal) else []
    except TimeoutError:
        text = f"{journal}: its check takes longer than {JOURNAL_SECONDS:g} seconds"
        return [Diagnosis("journal", "warning", text, "run `toolspeak journal check`")]
    except JournalError as error:
        return [Diagnosis("journal", "problem", str(error))]
    damage = [each.text for each in faults if each.kind == "damage"]
    if damage:
        return [Diagnosis("journal", "problem", f"{journal}: {'; '.join(damage[:3])}", "see `toolspeak journal check`")]
    return [Diagnosis("journal", "ok", f"{journal} can be read and written")]


def _not_writable(path: Path) -> str:
    """Why the file cannot be written or made; "" if it can."""
    if path.exists():
        return "" if path.is_file() and os.access(path, os.R_OK | os.W_OK) else "it is not a readable and writable file"
    folder = next(each for each in path.parents if each.exists())
    return "" if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK) else f"no file can be made in {folder}"


def _extras(setup: Setup) -> Diagnosis:
    """Which extras of the package are installed, and whether the settings need another one."""
    packages: dict[str, list[str]] = {}
    for line in metadata.requires("toolspeak") or ():
        requirement, _, condition = line.partition(";")
        extra = re.search(r"""extra == ['"]([\w-]+)['"]""", condition)
        if extra is not None:
            name = re.match(r"[\w.-]+", requirement.strip())
            packages.setdefault(extra[1], []).append(name[0] if name else requirement)
    installed_extras = [extra for extra, names in packages.items() if all(map(_is_installed, names))]
    needs = {"mcp": bool(setup.mcp or setup.mcp_servers), "repair": setup.repair == "yes", "web": setup.web == "yes"}
    needs["code"] = setup.code_mode == "yes"
    missing = [extra for extra, is_needed in needs.items() if is_needed and extra not in installed_extras]
    if missing:
        remedy = f"pip install 'toolspeak[{','.join(missing)}]'"
        return Diagnosis("extras", "problem", f"your settings need {', '.join(missing)}", remedy)
    others = ", ".join(extra for extra in packages if extra not in installed_extras)
    return Diagnosis("extras", "ok", f"{', '.join(installed_extras) or 'none'} (not installed: {others or 'none'})")


def _is_installed(package: str) -> bool:
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True
