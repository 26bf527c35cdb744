"""The keys of a file of configuration, and the checks of their values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import msgspec

from toolspeak.data.messages import JSON, no_extra
from toolspeak.data.prices import read_prices
from toolspeak.data.run_values import Limits
from toolspeak.data.values import evolve, quick
from toolspeak.dialects import Section, get_dialect
from toolspeak.dialects.base import PromptListing
from toolspeak.errors import ConfigurationError, suggest
from toolspeak.execute import AfterWeb, ScheduleName
from toolspeak.project.configuration.config_file import ConfigFile, KeyPath, inner_path, read_bounded, user_path
from toolspeak.project.configuration.sandbox_settings import host_rules
from toolspeak.project.hook_settings import hooks_of_claude, read_hooks
from toolspeak.project.run_setup import ApproveOption
from toolspeak.providers.configured_providers import API_NAMES, ConfiguredProvider
from toolspeak.sandbox.base import SandboxMode

MOST_INSTRUCTIONS = 64 * 1024
"""The most bytes of a file of instructions."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN_HEADERS = frozenset(("host", "content-length", "transfer-encoding", "connection"))
_SECRET_NAME = re.compile("auth|key|token|secret|cookie|password", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{[^}]*\}")
_KEY = re.compile(
    r"\b(?:sk|pk|gsk|xai|hf|r8|ghp|gho|xox[a-z]|glpat)[-_][\w-]{8,}|\bAIza[\w-]{10,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|[Bb]earer\s+[\w.~+/-]{8,}|\beyJ[\w-]{8,}\.[\w-]+"
)
"""Keys in the form of common services, and tokens."""


@quick()
class SandboxTable:
    """The table `[sandbox]`: fields of `Setup`, under shorter names."""

    mode: SandboxMode | None = None
    allow_net: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    unasked_reads: bool = False


@quick()
class WebTable:
    """The table `[web]`: fields of `Setup`, under shorter names."""

    fetch: bool = False
    search: str = ""
    allow: tuple[str, ...] = ()
    robots: bool = False
    after: AfterWeb | None = None


@quick()
class ConfigTable:
    """What one file says; None and empty where it says nothing. `toolspeak.project.configuration.config.Config`
    describes the fields."""

    model: str | None = None
    dialect: str | None = None
    listing: PromptListing | None = None
    starts_in: Section | None = None
    repair: bool | None = None
    approve: ApproveOption | None = None
    schedule: ScheduleName | Literal["native"] | None = None
    window: int | None = None
    env: tuple[str, ...] = ()
    limits: Mapping[str, int | float] = field(default_factory=no_extra)
    prices: str | Mapping[str, JSON] = field(default_factory=no_extra)
    aliases: Mapping[str, str] = field(default_factory=no_extra)
    providers: Mapping[str, ConfiguredProvider] = field(default_factory=no_extra)
    instructions: str | Mapping[str, str] = ""
    rules: str | None = None
    mcp: str | Mapping[str, JSON] = field(default_factory=no_extra)
    tools: tuple[str, ...] = ()
    defer: str | None = None
    memory: bool | None = None
    code_mode: bool | None = None
    surroundings: bool | None = None
    theme: Mapping[str, str] = field(default_factory=no_extra)
    hooks: Mapping[str, JSON] = field(default_factory=no_extra)
    sandbox: SandboxTable | None = None
    web: WebTable | None = None


LIMITS = ("steps", "calls", "seconds", "tokens", "cost")
"""The keys of `[limits]`: fields of `Limits`."""

_COUNTS = ("steps", "calls", "tokens")

_OF_THE_USER = {
    "rules": "they would approve calls without a question",
    "sandbox": "a project's file could open the sandbox",
    "memory": "the remembered facts are about you",
    "web": "a project's file could reach your network",
    "theme": "it could hide what a question is about",
}
"""Keys that a project's file may not set, and why."""

_PROVIDER_KEYS = tuple(each.name for each in fields(ConfiguredProvider))


def table_of(file: ConfigFile) -> ConfigTable:
    """The checked content of a file, with absolute paths. Raises ConfigurationError with the place, the key and the
    remedy."""
    _check_keys(file, file.table, (), [each.name for each in fields(ConfigTable)])
    for name, reason in _OF_THE_USER.items():
        if file.of_project and name in file.table:
            raise file.error((name,), f"only your own file may set it: {reason}")
    raw = dict(file.table)
    for name, kind in (("sandbox", SandboxTable), ("web", WebTable)):
        if isinstance(raw.get(name), dict):
            _check_keys(file, raw[name], (name,), [each.name for each in fields(kind)])
    for name, entry in _tables(file, "providers"):
        _check_keys(file, entry, ("providers", name), _PROVIDER_KEYS)
        if "api" not in entry:
            raise file.error(("providers", name), f"'api' is missing; write one of {', '.join(API_NAMES)}")
    try:
        table = msgspec.convert(raw, ConfigTable)
    except msgspec.ValidationError as error:
        raise _type_error(file, str(error)) from None
    _check_model(file, table)
    for name, provider in table.providers.items():
        _check_provider(file, ("providers", name), provider)
    _check_limits(file, table.limits)
    try:
        read_hooks({name: value for name, value in table.hooks.items() if name != "file"})
    except ConfigurationError as error:
        raise file.error(("hooks",), str(error)) from None
    for name, price in (no_extra() if isinstance(table.prices, str) else table.prices).items():
        read_prices({name: price}, file.place(("prices", name)))
    for variable in table.env:
        _check_variable(file, ("env",), variable)
    if not isinstance(table.mcp, str):
        check_servers(file, table.mcp)
    return _with_paths(file, table)


def _check_keys(file: ConfigFile, table: Mapping[str, Any], key: KeyPath, names: Iterable[str]) -> None:
    for name in table:
        if name not in names:
            raise file.error((*key, name), f"unknown key {suggest(name, names)}")


def _tables(file: ConfigFile, name: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """The tables `[name.*]`."""
    tables = file.table.get(name, {})
    if not isinstance(tables, dict):
        raise file.error((name,), f"expected tables [{name}.NAME]")
    for each, entry in cast("dict[str, Any]", tables).items():
        if not isinstance(entry, dict):
            raise file.error((name, each), f"expected a table [{name}.{each}]")
        yield each, cast("dict[str, Any]", entry)


def _type_error(file: ConfigFile, message: str) -> ConfigurationError:
    """The error for msgspec's message, which names the place as `$.limits[...].steps`."""
    problem, _, path = message.partition(" - at `$.")
    key = tuple(path.rstrip("`").split(".")) if path else ()
    key = tuple(part.split("[")[0] for part in key if not part.startswith("["))
    return file.error(key, problem[:1].lower() + problem[1:])


def _check_model(file: ConfigFile, table: ConfigTable) -> None:
    if table.model is not None and not table.model.strip():
        raise file.error(("model",), "it is empty; write PROVIDER:NAME, or an alias")
    if table.dialect is not None and table.dialect not in ("auto", "native", "react"):
        try:
            get_dialect(table.dialect)
        except ConfigurationError as error:
            raise file.error(("dialect",), f"{error} Besides them: auto, native, react.") from None
    if table.window is not None and table.window < 1:
        raise file.error(("window",), f"expected a number of tokens from 1 up, found {table.window}")
    for name, model in table.aliases.items():
        if not _NAME.fullmatch(name):
            raise file.error(("aliases", name), "an alias has letters, digits, '.', '_' and '-' only")
        if not model.strip():
            raise file.error(("aliases", name), "it is empty; write PROVIDER:NAME")


def _check_provider(file: ConfigFile, key: KeyPath, provider: ConfiguredProvider) -> None:
    name = key[-1]
    if not _NAME.fullmatch(name) or name == "scripted":
        raise file.error(key, "a provider's name has letters, digits, '.', '_' and '-' only, and is not 'scripted'")
    if provider.api not in API_NAMES:
        raise file.error((*key, "api"), f"there is no API {suggest(provider.api, API_NAMES)}")
    if provider.base_url:
        try:
            url = urlsplit(provider.base_url)
            is_address = url.scheme in ("http", "https") and bool(url.hostname)
        except ValueError:
            is_address, url = False, urlsplit("")
        if "@" in url.netloc:
            raise file.error(
                (*key, "base_url"), "it holds a user name or a password; name the key's variable in key_env"
            )
        if not is_address:
            raise file.error((*key, "base_url"), "expected an address that begins with http:// or https://")
        _refuse_key(file, (*key, "base_url"), provider.base_url)
    if provider.key_env:
        _check_variable(file, (*key, "key_env"), provider.key_env)
    _check_headers(file, (*key, "headers"), provider.headers)


def _check_headers(file: ConfigFile, key: KeyPath, headers: Mapping[str, str]) -> None:
    for header, value in headers.items():
        at = (*key, header)
        if not _HEADER.fullmatch(header) or header.lower() in _OWN_HEADERS:
            raise file.error(at, "no header of this name can be set")
        if not value.isascii() or not value.isprintable():
            raise file.error(at, "a header must be one line of ASCII")
        _refuse_key(file, at, value)
        if _SECRET_NAME.search(header) and not _REFERENCE.search(value):
            problem = "a secret belongs in an environment variable; write ${NAME} for the variable NAME"
            raise file.error(at, problem)


def _check_variable(file: ConfigFile, key: KeyPath, name: str) -> None:
    is_mixed = bool(re.search("[a-z]", name)) and bool(re.search("[A-Z]", name)) and bool(re.search("[0-9]", name))
    if _KEY.search(name) or (len(name) >= 20 and is_mixed):
        raise file.error(key, "this looks like a key; write the name of the environment variable that holds it")
    if not _VARIABLE.fullmatch(name):
        raise file.error(key, "expected the name of an environment variable (letters, digits and '_')")


def _refuse_key(file: ConfigFile, key: KeyPath, value: str) -> None:
    if _KEY.search(value):
        raise file.error(key, "it looks like it holds a key; write ${NAME} for the environment variable NAME")


def _check_limits(file: ConfigFile, limits: Mapping[str, float]) -> None:
    _check_keys(file, limits, ("limits",), LIMITS)
    for name, amount in limits.items():
        if name in _COUNTS and amount != int(amount):
            raise file.error(("limits", name), f"expected a whole number, found {amount:g}")
        if amount <= 0:
            raise file.error(("limits", name), f"expected a number above 0, found {amount:g}")


def limits_of(limits: Mapping[str, float]) -> Limits:
    """The limits of a table `[limits]`; the others are as usual."""
    whole = {name: int(amount) for name, amount in limits.items() if name in _COUNTS}
    amounts: dict[str, Any] = {**limits, **whole}
    return Limits(**amounts)


def check_servers(file: ConfigFile, servers: Mapping[str, JSON]) -> None:
    """Refuses keys that stand in the entries of MCP servers. `read_servers` says what else is wrong with an entry."""
    for name, entry in servers.items():
        server = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        for part, value in server.items():
            at = ("mcp", name, part)
            if isinstance(value, dict):
                for variable, each in cast("dict[str, Any]", value).items():
                    if not isinstance(each, str):
                        continue
                    _refuse_key(file, (*at, variable), each)
                    if part == "headers" and _SECRET_NAME.search(variable) and not _REFERENCE.search(each):
                        raise file.error((*at, variable), "write ${NAME} for the environment variable NAME")
            texts: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
            for text in texts:
                if isinstance(text, str):
                    _refuse_key(file, at, text)


def _with_paths(file: ConfigFile, table: ConfigTable) -> ConfigTable:
    """The table with absolute paths, and with what its files hold."""
    changes: dict[str, Any] = {}
    if table.web is not None:
        _check_hosts(file, ("web", "allow"), table.web.allow)
        _refuse_key(file, ("web", "search"), table.web.search)
    if table.sandbox is not None:
        _check_hosts(file, ("sandbox", "allow_net"), table.sandbox.allow_net)
        places = {
            name: tuple(absolute_path(file, ("sandbox", name), path) for path in getattr(table.sandbox, name))
            for name in ("writable", "readable")
        }
        changes["sandbox"] = evolve(table.sandbox, **places)
    for name in ("rules", "prices", "mcp"):
        value = getattr(table, name)
        if isinstance(value, str):
            changes[name] = absolute_path(file, (name,), value)
    if not isinstance(table.instructions, str):
        if set(table.instructions) != {"file"}:
            raise file.error(("instructions",), "write the text, or { file = 'PATH' }")
        key = ("instructions", "file")
        path = absolute_path(file, key, table.instructions["file"])
        changes["instructions"] = text_of(file, key, path, MOST_INSTRUCTIONS)
    if "file" in table.hooks:
        changes["hooks"] = _with_hooks_of_file(file, table.hooks)
    changes["tools"] = tuple(_absolute_tools(file, place) for place in table.tools)
    changes["providers"] = {
        name: evolve(each, ca_file=absolute_path(file, ("providers", name, "ca_file"), each.ca_file))
        if each.ca_file
        else each
        for name, each in table.providers.items()
    }
    return evolve(table, **changes)


def hook_file(file: ConfigFile, value: JSON) -> tuple[str, str]:
    """The path and the text of the file that the table of hooks names."""
    key = ("hooks", "file")
    if not isinstance(value, str):
        raise file.error(key, "write the path of a settings.json of Claude Code")
    path = absolute_path(file, key, value)
    return path, text_of(file, key, path, MOST_INSTRUCTIONS)


def _with_hooks_of_file(file: ConfigFile, hooks: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """The table of hooks, with those of the file that it names after its own."""
    own = {name: value for name, value in hooks.items() if name != "file"}
    path, text = hook_file(file, hooks["file"])
    try:
        others = hooks_of_claude(text)
        read_hooks(others)
    except ConfigurationError as error:
        raise file.error(("hooks", "file"), f"{path}: {error}") from None
    entries = {event: [*cast("list[JSON]", own.get(event, [])), *others.get(event, ())] for event in {**own, **others}}
    return cast("Mapping[str, JSON]", entries)


def _absolute_tools(file: ConfigFile, place: str) -> str:
    """A place of tools with the absolute path of its file; unchanged if it names a module."""
    module, colon, name = place.rpartition(":")
    return f"{absolute_path(file, ('tools',), module)}{colon}{name}" if module.endswith(".py") else place


def _check_hosts(file: ConfigFile, key: KeyPath, texts: Iterable[str]) -> None:
    try:
        host_rules([*texts])
    except ConfigurationError as error:
        raise file.error(key, str(error)) from None


def text_of(file: ConfigFile, key: KeyPath, path: str, most_bytes: int) -> str:
    """The text of the file at an absolute path, which the key names. Raises ConfigurationError naming the key."""
    try:
        text = read_bounded(path, most_bytes)
    except ConfigurationError as error:
        raise file.error(key, str(error)) from None
    if text is None:
        raise file.error(key, f"there is no file {path}")
    return text


def absolute_path(file: ConfigFile, key: KeyPath, path: str) -> str:
    """The absolute path for a path in a file. Raises ConfigurationError for an empty one, and for one that leads out of
    a project."""
    if not path.strip():
        raise file.error(key, "it is empty; name a file")
    if not file.of_project:
        return user_path(path, file.folder)
    inner = inner_path(path, file.folder)
    if inner is None:
        raise file.error(key, f"the path {path!r} leads out of the project {file.folder}; name a file in it")
    return inner
