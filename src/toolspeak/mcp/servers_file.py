"""Reads lists of MCP servers in the formats of other programs: `.mcp.json` and VS Code's `mcp.json`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from toolspeak.data.protected_files import protect
from toolspeak.errors import ConfigurationError
from toolspeak.sandbox.host_rules import HostRule

_VARIABLE = re.compile(r"\$\{(?P<kind>env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<otherwise>[^}]*))?\}")
"""`${NAME}`, VS Code's `${env:NAME}`, and `${NAME:-default}` as in shells."""

_REFERENCE = re.compile(r"\$\{[^}]*\}")


def _no_values() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class ServerSandbox:
    """What a server's program may touch: `writable` files and folders, `readable` ones that a sandbox would hide, and
    the `hosts` that it may reach; None is every host."""

    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    hosts: tuple[HostRule, ...] | None = ()


@dataclass(frozen=True, slots=True)
class StdioServer:
    """A server that is started as a program, and used over its standard input and output.

    Its environment is `env` and, from this program's, only what every program needs (PATH, HOME and the like).

    `sandbox`: what it may touch. It does not start without a sandbox then. "off": it has all rights of the user; None:
    the entry does not say.
    """

    name: str
    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=_no_values, repr=False)
    cwd: str | None = None
    sandbox: ServerSandbox | Literal["off"] | None = None


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server at an address. `transport`: "http" is MCP's streamable HTTP, "sse" the older HTTP+SSE."""

    name: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=_no_values, repr=False)
    transport: Literal["http", "sse"] = "http"


Server: TypeAlias = StdioServer | HttpServer
"""A server of the file."""


def read_servers(path: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> tuple[Server, ...]:
    """The servers in a file, under `mcpServers` (`.mcp.json`) or `servers` (VS Code), in the file's order.

    A server is `{"command", "args", "env", "cwd", "sandbox"}` or `{"url", "headers", "type"}`. Servers with
    `"disabled": true` are left out; unknown keys are ignored. `${NAME}`, `${env:NAME}` and `${NAME:-default}` in a
    string are variables of `environ` (default: the process's). `${workspaceFolder}` is the folder that the file belongs
    to.

    Raises ConfigurationError with the file, the key and the remedy.
    """
    place = Path(path)
    protect(place, "the configuration of the MCP servers")
    server_entries = _load(place)
    if not isinstance(server_entries, dict):
        raise ConfigurationError(
            f'{place}: expected an object {{"mcpServers": {{…}}}}, found {_excerpt(server_entries)}'
        )
    entries = cast("dict[str, Any]", server_entries)
    keys = [key for key in ("mcpServers", "servers") if key in entries]
    if len(keys) != 1:
        problem = "both" if keys else f"neither, but: {', '.join(entries) or 'nothing'}"
        raise ConfigurationError(
            f"{place}: list the servers under 'mcpServers' or (VS Code) under 'servers'; the file has {problem}"
        )
    listing = entries[keys[0]]
    if not isinstance(listing, dict):
        raise ConfigurationError(f'{place}: {keys[0]}: expected {{"name": {{…}}}}, found {_excerpt(listing)}')
    folder = place.resolve().parent
    workspace = str(folder.parent if folder.name == ".vscode" else folder)
    return servers_of(cast("dict[str, Any]", listing), f"{place}: {keys[0]}", workspace, environ)


def servers_of(
    entries: Mapping[str, Any], place: str, workspace: str, environ: Mapping[str, str] | None = None
) -> tuple[Server, ...]:
    """The servers of the object under `mcpServers`, as `read_servers`. `place` names it in errors; `workspace` is the
    folder that it belongs to."""
    variables = {**(os.environ if environ is None else environ)}
    servers: list[Server] = []
    for name, entry in entries.items():
        server = _server(name, entry, _SessionTip(f"{place}.{name}", variables, workspace))
        if server is not None:
            servers.append(server)
    return tuple(servers)


def _load(place: Path) -> Any:
    try:
        return json.loads(place.read_text("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigurationError(f"{place}: there is no such file; name one that lists MCP servers") from None
    except (ValueError, RecursionError) as error:
        message = f"{place}: not JSON ({error}); JSON has no comments and no trailing commas"
        raise ConfigurationError(message) from None
    except OSError as error:
        raise ConfigurationError(f"{place}: {error.strerror or error}") from None


@dataclass(frozen=True, slots=True)
class _SessionTip:
    """A server's place in the file, for errors, and the variables."""

    at: str
    variables: Mapping[str, str]
    workspace: str

    def error(self, key: str, problem: str) -> ConfigurationError:
        return ConfigurationError(f"{self.at}{'.' if key else ''}{key}: {problem}")

    def text(self, key: str, value: Any) -> str:
        """A string with its variables replaced."""
        if not isinstance(value, str):
            raise self.error(key, f"expected a string, found {_excerpt(value)}")
        if "\0" in value:
            raise self.error(key, "a NUL character is not allowed; remove it")
        return _REFERENCE.sub(lambda match: self._resolve(key, match[0]), value)

    def texts(self, key: str, value: Any) -> Mapping[str, str]:
        if not isinstance(value, dict):
            raise self.error(key, f'expected {{"NAME": "text"}}, found {_excerpt(value)}')
        return {name: self.text(f"{key}.{name}", each) for name, each in cast("dict[str, Any]", value).items()}

    def _resolve(self, key: str, reference: str) -> str:
        if reference == "${workspaceFolder}":
            return self.workspace
        variable = _VARIABLE.fullmatch(reference)
        if variable is None:
            problem = f"unknown reference {reference}; write ${{NAME}} for the environment variable NAME"
            raise self.error(key, problem)
        value = self.variables.get(variable["name"])
        if value is None or (not value and variable["otherwise"] is not None):
            value = variable["otherwise"]
        if value is None:
            name = variable["name"]
            raise self.error(key, f"the environment variable {name} is not set; set it, or write ${{{name}:-value}}")
        return value


def _server(name: str, entry: Any, at: _SessionTip) -> Server | None:
    if not isinstance(entry, dict):
        raise at.error("", f'expected {{"command": …}} or {{"url": …}}, found {_excerpt(entry)}')
    settings = cast("dict[str, Any]", entry)
    if settings.get("disabled") is True:
        return None
    if ("command" in settings) == ("url" in settings):
        problem = "both" if "url" in settings else f"neither, but: {', '.join(settings) or 'nothing'}"
        raise at.error("", f"write 'command' (a program to start) or 'url' (its address); the entry has {problem}")
    if "envFile" in settings:
        raise at.error("envFile", "toolspeak does not read this file; write its variables under 'env'")
    if "url" in settings:
        return _http(name, settings, at)
    args = settings.get("args", [])
    if not isinstance(args, Sequence) or isinstance(args, str):
        raise at.error("args", f"expected an array of strings, found {_excerpt(args)}")
    command = at.text("command", settings["command"])
    if not command.strip():
        raise at.error("command", "it is empty; name the program to start")
    return StdioServer(
        name,
        command,
        tuple(at.text(f"args[{index}]", each) for index, each in enumerate(cast("Sequence[Any]", args))),
        at.texts("env", settings.get("env", {})),
        at.text("cwd", settings["cwd"]) if settings.get("cwd") is not None else None,
        _sandbox(settings.get("sandbox"), at),
    )


def confine_servers(servers: Iterable[Server]) -> tuple[Server, ...]:
    """The servers. Those whose entry says nothing about a sandbox have one, in which they change nothing and have no
    network."""
    return tuple(
        replace(server, sandbox=ServerSandbox())
        if isinstance(server, StdioServer) and server.sandbox is None
        else server
        for server in servers
    )


def _sandbox(entry: Any, at: _SessionTip) -> ServerSandbox | Literal["off"] | None:
    if entry is None:
        return None
    if isinstance(entry, bool):
        return ServerSandbox() if entry else "off"
    if not isinstance(entry, dict):
        raise at.error("sandbox", f"expected true, false or {{…}}, found {_excerpt(entry)}")
    settings = cast("dict[str, Any]", entry)
    lists: dict[str, tuple[str, ...]] = {}
    for key, value in settings.items():
        if key not in _SANDBOX_KEYS:
            raise at.error(f"sandbox.{key}", f"there is no such key; write one of {', '.join(_SANDBOX_KEYS)}")
        if not isinstance(value, list):
            raise at.error(f"sandbox.{key}", f"expected an array of strings, found {_excerpt(value)}")
        lists[key] = tuple(at.text(f"sandbox.{key}", each) for each in cast("list[Any]", value))
    texts = lists.get("allowNet", ())
    try:
        hosts = None if "all" in texts else tuple(map(HostRule.parse, texts))
    except ConfigurationError as error:
        raise at.error("sandbox.allowNet", str(error)) from None
    paths = {
        key: tuple(
            os.path.realpath(os.path.join(at.workspace, os.path.expanduser(path))) for path in lists.get(key, ())
        )
        for key in ("writable", "readable")
    }
    return ServerSandbox(paths["writable"], paths["readable"], hosts)


_SANDBOX_KEYS = ("allowNet", "writable", "readable")


def _http(name: str, settings: Mapping[str, Any], at: _SessionTip) -> HttpServer:
    url = at.text("url", settings["url"])
    if not url.startswith(("http://", "https://")):
        raise at.error("url", f"expected an address that begins with http:// or https://, found {_excerpt(url)}")
    headers = at.texts("headers", settings.get("headers", {}))
    for header, value in headers.items():
        if not value.isascii() or "\n" in value or "\r" in value:
            raise at.error(f"headers.{header}", "a header must be one line of ASCII; encode other characters")
    return HttpServer(name, url, headers, "sse" if settings.get("type") == "sse" else "http")


def _excerpt(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:60]
