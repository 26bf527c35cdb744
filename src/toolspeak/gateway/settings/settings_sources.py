"""The sources of the settings: the command line and the files that it names, read again for each reload."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from toolspeak.errors import ConfigurationError
from toolspeak.gateway.settings.api_keys import keys_of, read_keys
from toolspeak.gateway.settings.gateway_settings import (
    FileSettings,
    ResponseSettings,
    Settings,
    ToolSettings,
    approved_names,
    checked_settings,
    read_config,
    with_server,
)
from toolspeak.gateway.settings.upstream_settings import Upstream
from toolspeak.sandbox.base import SandboxMode

Stamp: TypeAlias = tuple[int, int, int] | None
"""Identifies the content of a file: inode, size and time of the last change. None if there is no file."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What the command line says, and the files that it names.

    `upstreams` are those of the command line, `config` is the file that lists them in their place. `server` holds
    fields of `[server]`; they come before the file's. `api_keys`, `tools`, `approve_tools`, `sandbox` and
    `responses` do so too. `pins` is the file of the
    pinned definitions of tools, unless the configuration names one.
    """

    upstreams: tuple[Upstream, ...] = ()
    config: str | None = None
    server: Mapping[str, Any] = field(default_factory=dict[str, Any])
    api_keys: str | None = None
    tools: str | None = None
    approve_tools: str | None = None
    responses: str | None = None
    sandbox: SandboxMode | None = None
    pins: str = ""

    def load(self, environ: Mapping[str, str], stamps: dict[str, Stamp]) -> Settings:
        """Reads the settings. `stamps` receives the stamp of every file, taken before the file is read, also for
        invalid settings. Raises ConfigurationError naming the place and the remedy."""
        if self.config is None:
            file_settings = FileSettings(self.upstreams, {})
        else:
            stamps[self.config] = stamp(self.config)
            file_settings = read_config(self.config, environ)
        settings = with_server(
            Settings(file_settings.upstreams), {k: v for k, v in file_settings.server.items() if k != "api_keys"}
        )
        settings = with_server(settings, self.server)
        file = self.api_keys or file_settings.server.get("api_keys")
        if file:
            stamps[file] = stamp(file)
        keys = (*file_settings.keys, *keys_of(environ), *(read_keys(file) if file else ()))
        tools = self._tools(file_settings.tools)
        if tools is not None:
            stamps[tools.file] = stamp(tools.file)
        responses = file_settings.responses
        if self.responses is not None:
            response_settings = ResponseSettings(self.responses)
            responses = response_settings if responses is None else replace(responses, store=self.responses)
        return checked_settings(
            replace(settings, keys=keys, tools=tools, responses=responses, usage=file_settings.usage)
        )

    def _tools(self, tools: ToolSettings | None) -> ToolSettings | None:
        """The file's settings of tools, replaced by those of the command line."""
        if self.tools is not None:
            tools = ToolSettings(self.tools) if tools is None else replace(tools, file=self.tools)
        if self.sandbox is not None:
            if tools is None:
                raise ConfigurationError("--sandbox needs --tools FILE, whose programs it is about")
            tools = replace(tools, sandbox=self.sandbox)
        if tools is not None and not tools.pins:
            tools = replace(tools, pins=self.pins)
        if self.approve_tools is None:
            return tools
        if tools is None:
            raise ConfigurationError("--approve-tools needs --tools FILE, whose tools it approves")
        return replace(tools, approve=approved_names(self.approve_tools))


def stamp(path: str) -> Stamp:
    """The stamp of a file, or of a link's target."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
