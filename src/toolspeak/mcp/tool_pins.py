"""Pinned definitions of MCP servers' tools: what a server said about a tool when it was first used."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from mcp import types

from toolspeak.data.protected_files import protect
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.mcp.servers_file import HttpServer, Server
from toolspeak.tools.files.folder import Folder
from toolspeak.tools.files.text_format import visible

MOST_KEPT = 64 * 1024
"""The longest definition that is kept whole, in characters of JSON. Of a longer one the digest is kept."""

_LOCK_SECONDS = 10.0


@quick()
class Pin:
    """The pinned definition of one tool. `definition` is None if it was too long to keep."""

    digest: str
    definition: Mapping[str, Any] | None


def definition_of(tool: types.Tool) -> dict[str, Any]:
    """All that a server says about a tool, as JSON."""
    return tool.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta", "icons"})


def digest_of(tool: types.Tool) -> str:
    """SHA-256 (hex) of a tool's definition."""
    text = json.dumps(definition_of(tool), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def server_key(server: Server) -> str:
    """Identifies a server by its name and by what it is: the program with its arguments, or the address."""
    place = [server.url] if isinstance(server, HttpServer) else [server.command, *server.args]
    text = json.dumps([server.name, *place])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@quick()
class ChangedTool:
    """A tool whose definition is not the pinned one any more.

    - `tool`: its name at the server.
    - `before`: the pinned definition.
    - `now`: the definition in the server's listing.
    """

    server: str
    tool: str
    before: Pin
    now: types.Tool

    @property
    def reason(self) -> str:
        """Why a call of the tool is asked about."""
        return (
            f"the MCP server {self.server!r} has changed the definition of {visible(self.tool)!r} since it was first "
            "used. `toolspeak mcp diff` shows what changed, and `toolspeak mcp pin` accepts it"
        )


class ToolPins:
    """The file of pinned definitions. A tool is pinned when it is first used. A changed one stays changed until a
    person pins it anew.

    Its methods raise ConfigurationError for a file that does not hold pins, or that cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        protect(self.path, "the pinned definitions of MCP tools")

    def stamp(self) -> tuple[int, int, int] | None:
        """Changes with the file's content; None without a file."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def pins(self, server: Server) -> dict[str, Pin]:
        """The pins of a server, by the tools' names there."""
        return _pins_of(self._read(), server)

    def pin_new(self, server: Server, tools: Sequence[types.Tool]) -> dict[str, Pin]:
        """Pins the tools that are not pinned yet. Returns the pins of the server before."""
        before = self.pins(server)
        new_tools = [tool for tool in tools if tool.name not in before]
        if new_tools:
            self._store(server, new_tools, replaces=False)
        return before

    def pin(self, server: Server, tools: Iterable[types.Tool]) -> None:
        """Pins the tools as they are now."""
        self._store(server, tools, replaces=True)

    def _store(self, server: Server, tools: Iterable[types.Tool], *, replaces: bool) -> None:
        with self._changing() as servers:
            entry = servers.setdefault(server_key(server), {"name": server.name, "tools": {}})
            for tool in tools:
                definition = definition_of(tool)
                is_kept = len(json.dumps(definition)) <= MOST_KEPT
                pin = {"digest": digest_of(tool), "definition": definition if is_kept else None}
                if replaces:
                    entry["tools"][tool.name] = pin
                else:  # another process may have pinned it meanwhile
                    entry["tools"].setdefault(tool.name, pin)

    def _read(self) -> dict[str, Any]:
        try:
            content: Any = json.loads(self.path.read_text("utf-8"))
            servers = content["servers"]
            if all(isinstance(pin["digest"], str) for entry in servers.values() for pin in entry["tools"].values()):
                return cast("dict[str, Any]", servers)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigurationError(f"{self.path}: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        raise ConfigurationError(
            f"{self.path}: it does not hold pinned tools; move it away, and look at the tools with `toolspeak mcp list`"
        )

    @contextmanager
    def _changing(self) -> Generator[dict[str, Any]]:
        """The servers' entries, which are written at the end. Other processes read the old file or the new one."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with Folder.top(os.path.realpath(self.path.parent)) as folder, folder.alone(_LOCK_SECONDS):
                servers = self._read()
                yield servers
                beside = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
                beside.write_text(json.dumps({"servers": servers}, indent=1) + "\n", "utf-8")
                beside.chmod(0o600)
                beside.replace(self.path)
        except OSError as error:
            raise ConfigurationError(f"{self.path}: the pins were not saved: {error}") from error


def _pins_of(servers: Mapping[str, Any], server: Server) -> dict[str, Pin]:
    entry = servers.get(server_key(server), {"tools": {}})
    return {name: Pin(pin["digest"], pin.get("definition")) for name, pin in entry["tools"].items()}
