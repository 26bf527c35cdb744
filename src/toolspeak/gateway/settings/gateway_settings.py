"""The gateway's settings as values, from a TOML file and the command line."""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast, get_args

from toolspeak.data.protected_files import protect
from toolspeak.errors import ConfigurationError
from toolspeak.gateway.settings.api_keys import Key, checked_keys, key_of_table
from toolspeak.gateway.settings.config_tables import check_fields, checked_kind
from toolspeak.gateway.settings.upstream_settings import Upstream, upstreams_of_table
from toolspeak.gateway.settings.usage_settings import UsageSettings, usage_for, usage_of_table
from toolspeak.sandbox.base import SandboxMode

LOOPBACK = ("127.0.0.1", "::1", "localhost")

ANY_ORIGIN = "*"
"""The value of `cors` that allows every origin."""

_ORIGIN = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that each process of the gateway accepts.

    - `body_bytes`, `header_bytes`: the size of a request and of its headers.
    - `depth`, `json_values`: how deep the JSON of a request may be nested, and how many values it may hold.
    - `messages`, `tool_definitions`: the messages and tools of a request.
    - `name_chars`: the characters of a name.
    - `streams`: the concurrent answers.
    - `queue`, `queue_seconds`: how many requests may wait for a free stream, and how long.
    """

    body_bytes: int = 32 * 1024 * 1024
    header_bytes: int = 32 * 1024
    depth: int = 200
    json_values: int = 200_000
    messages: int = 10_000
    tool_definitions: int = 1_000
    name_chars: int = 256
    streams: int = 1024
    queue: int = 256
    queue_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """Tools that the gateway runs itself.

    - `file`: the file that lists their MCP servers.
    - `approve`: the names, or globs, of tools that may run although they do more than read, or leave the machine
      (`*`: all).
    - `steps`, `calls`, `seconds`: the most turns with such calls, calls, and seconds for all calls of one request.
    - `timeout`: the seconds of one call.
    - `web_search`: the tool (`server__tool`) that runs for `web_search` of OpenAI Responses.
    - `sandbox`: which servers that are programs run in a sandbox. "required": all, unless their entry is `"sandbox":
      false`; "auto": those whose entry asks for it; "off": none.
    - `pins`: the file of pinned definitions; "" for none. A tool whose definition changed is not offered and does not
      run.
    """

    file: str
    approve: tuple[str, ...] = ()
    steps: int = 16
    calls: int = 64
    seconds: float = 300.0
    timeout: float = 60.0
    web_search: str = ""
    sandbox: SandboxMode = "required"
    pins: str = ""


@dataclass(frozen=True, slots=True)
class ResponseSettings:
    """Where responses are stored that clients may name.

    - `store`: the path of a SQLite file, or a `postgresql://` URL.
    - `retention_days`: how long a response is stored after its last use.
    - `background`: whether clients may request answers in the background, and fetch them later.
    - `responses`, `key_bytes`: the most responses of a key, and the bytes of all of them. The least recently used one
      is deleted first.
    - `response_bytes`: the largest response that is stored.
    - `seconds`: how long an answer waits for the database.
    """

    store: str
    retention_days: float = 30.0
    background: bool = False
    responses: int = 10_000
    response_bytes: int = 4 * 1024 * 1024
    key_bytes: int = 1024 * 1024 * 1024
    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a gateway.

    - `upstreams`: where the models are.
    - `host`, `port`: where it listens.
    - `keys`: the clients' keys; without any, every client on this machine is served.
    - `workers`: the number of processes.
    - `drain_seconds`: how long open streams may continue after SIGTERM.
    - `ping_seconds`: the silence after which a stream sends a ping.
    - `stall_seconds`: how long a client may stop reading while data waits for it.
    - `grace_seconds`: how long to wait for the end of a turn whose calls are complete, because it has the usage.
    - `aside_seconds`: how long an upstream gets no requests after repeated failures, the first time.
    - `cors`: the origins of web pages that may call the gateway.
    - `log_content`: whether the log holds the content of requests and answers.
    """

    upstreams: tuple[Upstream, ...]
    host: str = "127.0.0.1"
    port: int = 8665
    keys: tuple[Key, ...] = ()
    bounds: Bounds = Bounds()
    workers: int = 1
    drain_seconds: float = 30.0
    ping_seconds: float = 15.0
    stall_seconds: float = 120.0
    grace_seconds: float = 0.5
    aside_seconds: float = 5.0
    cors: tuple[str, ...] = ()
    log_content: bool = False
    tools: ToolSettings | None = None
    responses: ResponseSettings | None = None
    usage: UsageSettings | None = None


def changed_keys(old: Settings, new: Settings) -> list[str]:
    """The keys of the configuration in which two settings differ: `server.cors`, `tools.approve`, or `model.NAME` and
    `key.NAME` for whole tables."""
    before, after = _by_key(old), _by_key(new)
    return sorted(key for key in {*before, *after} if before.get(key) != after.get(key))


def _by_key(settings: Settings) -> dict[str, Any]:
    """The settings by their keys in a configuration file."""
    values = {f"server.{name}": _server_value(settings, name) for name in _SERVER_FIELDS}
    for table in ("tools", "responses", "usage"):
        section = getattr(settings, table)
        if section is not None:
            values |= {f"{table}.{each.name}": getattr(section, each.name) for each in fields(section)}
    values |= {f"key.{key.name}": key for key in settings.keys}
    for upstream in settings.upstreams:
        values.setdefault(f"model.{upstream.names[0]}", []).append(upstream)
    return values


def _server_value(settings: Settings, name: str) -> Any:
    return getattr(settings.bounds if hasattr(settings.bounds, name) else settings, name)


_RANGES = (
    ("port", 0, 65535),
    ("workers", 1, math.inf),
    ("streams", 1, math.inf),
    *((name, 1, math.inf) for name in ("json_values", "messages", "tool_definitions", "name_chars")),
    ("body_bytes", 1, math.inf),
    ("header_bytes", 1, math.inf),
    ("depth", 1, math.inf),
    ("ping_seconds", 0.01, math.inf),
    ("stall_seconds", 0.01, math.inf),
    ("aside_seconds", 0.01, 3600),
)


def checked_settings(settings: Settings) -> Settings:
    """The settings, with keys and origins checked. Raises ConfigurationError."""
    if settings.host not in LOOPBACK and not settings.keys:
        raise ConfigurationError(
            f"the gateway would listen on {settings.host}, where others can reach it, without API keys: name a file "
            "of keys (--api-keys FILE), set TOOLSPEAK_API_KEYS, or listen on 127.0.0.1"
        )
    for name, least, most in _RANGES:
        value: float = _server_value(settings, name)
        if not least <= value <= most:
            allowed_range = f"from {least} to {most}" if math.isfinite(most) else f"{least} or more"
            raise ConfigurationError(f"{name}: {value} is out of range; expected {allowed_range}")
    _check_names([name for names in {each.names: None for each in settings.upstreams} for name in names])
    keys = checked_keys(settings.keys, lambda model: any(each.serves(model) for each in settings.upstreams))
    cors = _checked_origins(settings.cors, has_keys=bool(keys))
    return replace(settings, keys=keys, cors=cors, usage=usage_for(settings.usage, keys))


def _checked_origins(origins: Sequence[str], *, has_keys: bool) -> tuple[str, ...]:
    """The origins as browsers write them. Raises ConfigurationError for an invalid one, and for `*` without keys."""
    checked_origins: list[str] = []
    for origin in origins:
        if origin == ANY_ORIGIN:
            if not has_keys:
                raise ConfigurationError(
                    "cors: '*' lets every web page call the gateway, which has no API keys: name the origins, or give "
                    "clients keys (--api-keys FILE)"
                )
            checked_origins.append(origin)
            continue
        lower = origin.lower()
        if not _ORIGIN.fullmatch(lower):
            raise ConfigurationError(
                f"cors: {origin!r} is not an origin; write scheme, host and port alone, for instance https://app.example"
            )
        checked_origins.append(lower.removesuffix(_DEFAULT_PORTS[lower.partition(":")[0]]))
    return tuple(checked_origins)


def _check_names(names: Sequence[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ConfigurationError(
                f"two upstreams serve the model name {name!r}: give each its own, or list both as `upstreams` of one "
                "[[model]]"
            )


# --- the file ----------------------------------------------------------------------------------------------------

_SERVER_FIELDS = {each.name for each in (*fields(Settings), *fields(Bounds))} - {
    *("upstreams", "keys", "bounds", "tools", "responses", "usage")
}
_RESPONSE_FIELDS = {each.name for each in fields(ResponseSettings)}
_TOOL_FIELDS = {each.name for each in fields(ToolSettings)}


@dataclass(frozen=True, slots=True)
class FileSettings:
    """What a configuration file says: the upstreams, of `[server]` what it holds, `[tools]`, each `[[key]]`,
    `[responses]` and `[usage]`."""

    upstreams: tuple[Upstream, ...]
    server: Mapping[str, Any]
    tools: ToolSettings | None = None
    keys: tuple[Key, ...] = ()
    responses: ResponseSettings | None = None
    usage: UsageSettings | None = None


def read_config(path: str | Path, environ: Mapping[str, str] = MappingProxyType({})) -> FileSettings:
    """The settings of a TOML file; the keys that it names by a variable are those of `environ`. Raises
    ConfigurationError naming file, key and remedy."""
    protect(path, "the gateway's configuration")
    table = read_toml(path)
    try:
        check_fields(table, {"server", "model", "tools", "key", "responses", "usage"}, "")
        models: Any = table.get("model")
        if not isinstance(models, list) or not models:
            raise ConfigurationError("model: write a table [[model]] for each upstream, with name and upstream")
        by_model = [upstreams_of_table(row, f"model[{i}]") for i, row in enumerate(cast("list[Any]", models))]
        _check_names([name for upstreams in by_model for name in upstreams[0].names])
        upstreams = tuple(upstream for upstreams in by_model for upstream in upstreams)
        folder = Path(path).parent
        tools = _tools(table["tools"], folder) if "tools" in table else None
        rows: Any = table.get("key", [])
        if not isinstance(rows, list):
            raise ConfigurationError("key: write a table [[key]] for each key, with name and sha256")
        keys = tuple(_key(row, f"key[{i}]", environ) for i, row in enumerate(cast("list[Any]", rows)))
        responses = _responses(table["responses"], folder) if "responses" in table else None
        usage = usage_of_table(table["usage"], folder) if "usage" in table else None
        return FileSettings(upstreams, _server(table.get("server", {}), folder), tools, keys, responses, usage)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def _key(row: Any, place: str, environ: Mapping[str, str]) -> Key:
    try:
        return key_of_table(row, place, environ)
    except ConfigurationError as error:
        name: Any = cast("dict[str, Any]", row).get("name") if isinstance(row, dict) else None
        raise ConfigurationError(f"{error} (the key {name!r})" if isinstance(name, str) else str(error)) from None


def read_toml(path: str | Path) -> dict[str, Any]:
    """What a configuration file holds. Raises ConfigurationError."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"the configuration {path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the configuration {path} is not TOML: {error}") from error


def with_server(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """The settings with what `[server]`, or the command line, says besides."""
    bounds = {name: value for name, value in values.items() if name in {each.name for each in fields(Bounds)}}
    others = {name: value for name, value in values.items() if name not in bounds and name != "api_keys"}
    return replace(settings, bounds=replace(settings.bounds, **bounds), **others)


def _server(value: Any, folder: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError("server: expected a table [server]")
    table = cast("dict[str, Any]", value)
    check_fields(table, {*_SERVER_FIELDS, "api_keys"}, "server")
    kinds = {each.name: each.type for each in (*fields(Settings), *fields(Bounds))}
    out: dict[str, Any] = {}
    for name, value in table.items():
        if name == "cors":
            origins = cast("list[Any]", value if isinstance(value, list) else [value])
            out[name] = tuple(checked_kind(each, "str", f"server.{name}") for each in origins)
            continue
        out[name] = checked_kind(value, "str" if name == "api_keys" else str(kinds[name]), f"server.{name}")
    if "api_keys" in out:
        out["api_keys"] = str(folder / out["api_keys"])  # as seen from the file, wherever the server is started
    return out


def approved_names(text: str) -> tuple[str, ...]:
    """The names, or globs, of `--approve-tools`: `all`, or some with commas between them."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    return ("*",) if names == ("all",) else names


def _tools(value: Any, folder: Path) -> ToolSettings:
    if not isinstance(value, dict):
        raise ConfigurationError("tools: expected a table [tools]")
    table = cast("dict[str, Any]", value)
    check_fields(table, _TOOL_FIELDS, "tools")
    kinds = {each.name: str(each.type) for each in fields(ToolSettings)}
    values: dict[str, Any] = {}
    for name, field in table.items():
        if name == "approve":
            names = cast("list[Any]", field if isinstance(field, list) else [field])
            values[name] = tuple(
                pattern for each in names for pattern in approved_names(checked_kind(each, "str", f"tools.{name}"))
            )
        elif name == "sandbox":
            values[name] = checked_kind(field, "str", "tools.sandbox")
            if field not in get_args(SandboxMode):
                raise ConfigurationError(f"tools.sandbox: {field!r}: write one of {', '.join(get_args(SandboxMode))}")
        else:
            values[name] = checked_kind(field, kinds[name], f"tools.{name}")
    if not values.get("file"):
        raise ConfigurationError("tools.file: missing; name the file that lists the MCP servers")
    for name in ("file", "pins"):
        if values.get(name):
            values[name] = str(folder / values[name])
    return ToolSettings(**values)


def _responses(value: Any, folder: Path) -> ResponseSettings:
    if not isinstance(value, dict):
        raise ConfigurationError("responses: expected a table [responses]")
    table = cast("dict[str, Any]", value)
    check_fields(table, _RESPONSE_FIELDS, "responses")
    kinds = {each.name: str(each.type) for each in fields(ResponseSettings)}
    values = {name: checked_kind(field, kinds[name], f"responses.{name}") for name, field in table.items()}
    if not values.get("store"):
        raise ConfigurationError("responses.store: missing; write the path of a file, or a postgresql:// URL")
    if "://" not in values["store"]:
        values["store"] = str(folder / values["store"])  # as seen from the file
    for name in ("retention_days", "responses", "response_bytes", "key_bytes", "seconds"):
        if values.get(name) == 0:
            raise ConfigurationError(
                f"responses.{name}: nothing would be kept; write more than 0, or leave [responses] out"
            )
    return ResponseSettings(**values)
