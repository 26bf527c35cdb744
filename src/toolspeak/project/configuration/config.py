"""What the user and the project configure, merged: each value with its origin."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, cast

from toolspeak.data.messages import JSON, no_extra
from toolspeak.data.protected_files import protect
from toolspeak.data.run_values import Limits
from toolspeak.data.values import evolve, quick
from toolspeak.dialects import Section
from toolspeak.dialects.base import PromptListing
from toolspeak.errors import ConfigurationError
from toolspeak.execute import ScheduleName
from toolspeak.project.configuration.config_file import ConfigFile, KeyPath, read_config_file
from toolspeak.project.configuration.config_table import (
    ConfigTable,
    SandboxTable,
    WebTable,
    absolute_path,
    check_servers,
    hook_file,
    limits_of,
    table_of,
    text_of,
)
from toolspeak.project.configuration.config_trust import (
    ProjectConfig,
    is_trusted,
    project_config,
    project_config_file,
    set_trust,
    user_config_file,
)
from toolspeak.project.run_setup import ApproveOption
from toolspeak.providers.configured_providers import ConfiguredProvider

_MOST_NAMED = 256 * 1024
"""The most bytes of a file of MCP servers, prices or tools that a project names."""

_SCALARS = (
    "model",
    "dialect",
    "listing",
    "starts_in",
    "repair",
    "approve",
    "schedule",
    "window",
    "rules",
    "defer",
    "memory",
    "code_mode",
    "surroundings",
)
_TABLES = ("limits", "aliases", "providers", "theme")
_LISTS = ("env", "tools")


@quick()
class ValueOrigin:
    """Where a value comes from: a key of a file, or an environment variable."""

    value: JSON
    file: ConfigFile | None = None
    key: KeyPath = ()
    variable: str = ""

    @property
    def place(self) -> str:
        """`path:line`, or the variable's name."""
        return self.variable if self.file is None else self.file.place(self.key)


@quick()
class Config:
    """What is configured: the defaults, then the user's file, the project's file and the environment. Later ones come
    first; `instructions`, `env`, `tools` and `hooks` are those of both files.

    - `model`: a model string or an alias; "" if none is configured.
    - `dialect`, `listing`, `starts_in`, `repair`, `approve`, `schedule`, `window`, `env`: as the options of `run`.
    - `limits`: when a run must wrap up.
    - `prices`: by `provider:model`, as `data.prices.read_prices` reads them. `prices_file`: a file of them.
    - `aliases`: short names of model strings.
    - `providers`: the user's own, by name.
    - `instructions`: what the model reads besides toolspeak's own.
    - `rules`: the file of rules that approve calls.
    - `mcp`: a file that lists MCP servers. `mcp_servers`: those of the tables `[mcp.NAME]`, as in such a file.
    - `tools`: places of the user's own Python tools.
    - `code_mode`: whether the model calls tools from programs (`Setup.code_mode`).
    - `surroundings`: whether models read of the folder, the system and the date.
    - `memory`: whether models read and keep facts about the user.
    - `defer`: the tools of which the model reads the names alone (`Setup.defer`).
    - `theme`: styles of the terminal by name.
    - `hooks`: the tables of each event.
    - `sandbox`: what commands may touch. `web`: the tools for the web, and what may change after them.
    - `origins`: where each value comes from, by its key; the first origin counts, of lists and texts all of them.
    - `project_folder`: the folder of the project's file; "" without one that is trusted.
    - `warnings`: what the person should know.
    """

    model: str = ""
    dialect: str = "auto"
    listing: PromptListing | None = None
    starts_in: Section = "text"
    repair: bool = False
    approve: ApproveOption = "ask"
    schedule: ScheduleName | Literal["native"] = "serializable"
    window: int | None = None
    env: tuple[str, ...] = ()
    limits: Limits = Limits()
    prices: Mapping[str, JSON] = field(default_factory=no_extra)
    prices_file: str = ""
    aliases: Mapping[str, str] = field(default_factory=no_extra)
    providers: Mapping[str, ConfiguredProvider] = field(default_factory=no_extra)
    instructions: str = ""
    rules: str = ""
    mcp: str = ""
    mcp_servers: Mapping[str, JSON] = field(default_factory=no_extra)
    tools: tuple[str, ...] = ()
    defer: str = "auto"
    memory: bool = False
    code_mode: bool = False
    surroundings: bool = True
    theme: Mapping[str, str] = field(default_factory=no_extra)
    hooks: Mapping[str, Sequence[JSON]] = field(default_factory=no_extra)
    sandbox: SandboxTable = SandboxTable()
    web: WebTable = WebTable()
    origins: Mapping[str, tuple[ValueOrigin, ...]] = field(default_factory=no_extra)
    project_folder: str = ""
    warnings: tuple[str, ...] = ()


def read_config(
    folder: str,
    *,
    environ: Mapping[str, str] | None = None,
    ask: Callable[[ProjectConfig], bool] | None = None,
) -> Config:
    """The configuration for work in a folder.

    `ask`: asks the person about a project's configuration that they have not trusted; a yes is remembered. None:
    nobody can be asked, and such a file has no effect. Raises ConfigurationError with the place and the remedy.
    """
    variables = os.environ if environ is None else environ
    files: list[tuple[ConfigFile, ConfigTable]] = []
    warnings: list[str] = []
    if path := user_config_file(variables):
        protect(path, "the configuration of toolspeak")
        file = read_config_file(path, os.path.dirname(path))
        if file is None and variables.get("TOOLSPEAK_CONFIG"):
            raise ConfigurationError(f"TOOLSPEAK_CONFIG: there is no file {path}")
        if file is not None:
            files.append((file, table_of(file)))
    project_folder = ""
    try:
        project = find_project_config(folder)
        if project is not None and _may_count(project, ask, warnings):
            files.append((project.file, project.table))
            project_folder = project.file.folder
    except ConfigurationError as error:
        if ask is not None:
            raise
        # A file that nobody trusts has no effect: it does not end the run either.
        warnings.append(f"{error}; the project's configuration is ignored")
    config = evolve(_merge(files, variables), project_folder=project_folder, warnings=tuple(warnings))
    for name in (config.model, *config.aliases):
        resolved_model(config, name)
    return config


def find_project_config(folder: str) -> ProjectConfig | None:
    """The configuration of the project that a folder belongs to, trusted or not; None if there is none. Raises
    ConfigurationError for one that cannot be read."""
    place = project_config_file(folder)
    file = None if place is None else read_config_file(*place, of_project=True)
    if file is None:
        return None
    table = table_of(file)
    named_files: dict[str, str] = {}
    if isinstance(table.mcp, str):
        named_files[table.mcp], servers = _servers_in(file, table.mcp)
        table = evolve(table, mcp=servers)
    table = evolve(table, mcp=_in_folder(table.mcp, file.folder))
    if isinstance(table.prices, str):
        named_files[table.prices] = text_of(file, ("prices",), table.prices, _MOST_NAMED)
    for tools in table.tools:
        module = tools.rpartition(":")[0]
        if module.endswith(".py"):
            named_files[module] = text_of(file, ("tools",), module, _MOST_NAMED)
    if isinstance(file.table.get("instructions"), dict):
        named_files[absolute_path(file, (), file.table["instructions"]["file"])] = str(table.instructions)
    if "file" in file.table.get("hooks", {}):
        path, text = hook_file(file, file.table["hooks"]["file"])
        named_files[path] = text
    return project_config(file, table, named_files)


def resolved_model(config: Config, name: str) -> str:
    """The model string of an alias; any other name is one already. Raises ConfigurationError for aliases in a
    circle."""
    seen_names: list[str] = []
    while name in config.aliases:
        if name in seen_names:
            where = config.origins[f"aliases.{name}"][0].place
            raise ConfigurationError(f"{where}: aliases.{name}: the alias leads back to itself; name a model")
        seen_names.append(name)
        name = config.aliases[name]
    return name


def _may_count(project: ProjectConfig, ask: Callable[[ProjectConfig], bool] | None, warnings: list[str]) -> bool:
    if is_trusted(project):
        return True
    if ask is None:
        warnings.append(
            f"{project.file.place(())} is ignored, because you have not trusted its content; read it, and run "
            "`toolspeak config trust` in its folder"
        )
        return False
    if not ask(project):
        return False
    try:
        set_trust(project.file.path, project.digest)
    except ConfigurationError as error:
        warnings.append(f"{error}; it counts this time only")
    return True


def _servers_in(file: ConfigFile, path: str) -> tuple[str, Mapping[str, JSON]]:
    """The text and the servers of the file that a project names: what the person trusts is what will be started."""
    text = text_of(file, ("mcp",), path, _MOST_NAMED)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise file.error(("mcp",), f"{path} is not JSON: {error}") from None
    table = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    servers: Any = table.get("mcpServers", table.get("servers"))
    if not isinstance(servers, dict):
        raise file.error(("mcp",), f"{path} lists no servers under 'mcpServers' or 'servers'")
    check_servers(file, cast("dict[str, Any]", servers))
    return text, cast("dict[str, Any]", servers)


def _in_folder(servers: str | Mapping[str, JSON], folder: str) -> Mapping[str, JSON]:
    """The servers of a project as they are started from any folder: programs run in the project's folder."""
    assert not isinstance(servers, str), "a project's file of servers has been read"
    folder_servers: dict[str, JSON] = json.loads(
        json.dumps(dict(servers)).replace("${workspaceFolder}", json.dumps(folder)[1:-1])
    )
    for entry in folder_servers.values():
        if isinstance(entry, dict) and "command" in entry:
            server = cast("dict[str, Any]", entry)
            cwd = server.get("cwd")
            server["cwd"] = os.path.join(folder, cwd) if isinstance(cwd, str) else folder
    return folder_servers


def _merge(files: Sequence[tuple[ConfigFile, ConfigTable]], environ: Mapping[str, str]) -> Config:
    values: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {name: {} for name in (*_TABLES, "prices", "mcp")}
    hooks: dict[str, list[JSON]] = {}
    instructions: list[str] = []
    origins: dict[str, tuple[ValueOrigin, ...]] = {}

    def note(key: KeyPath, value: JSON, file: ConfigFile) -> None:
        name = ".".join(key)
        origins[name] = (ValueOrigin(value, file, key), *origins.get(name, ()))

    for file, table in files:
        for name in (*_SCALARS, "prices", "mcp"):
            value = getattr(table, name)
            if value is not None and not isinstance(value, Mapping):
                values[{"prices": "prices_file"}.get(name, name)] = value
                note((name,), value, file)
        for name, merged_table in tables.items():
            value = getattr(table, name)
            entries = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else no_extra()
            for key, entry in entries.items():
                merged_table[key] = entry
                note((name, key), entry, file)
        for name in _LISTS:
            if getattr(table, name):
                values[name] = (*values.get(name, ()), *getattr(table, name))
                note((name,), getattr(table, name), file)
        for name in ("sandbox", "web"):
            if getattr(table, name) is not None:
                values[name] = getattr(table, name)
                for key, entry in cast("Mapping[str, JSON]", file.table[name]).items():
                    note((name, key), entry, file)
        for event, entries in table.hooks.items():
            hooks.setdefault(event, []).extend(cast("list[JSON]", entries) if isinstance(entries, list) else [entries])
            note(("hooks", event), entries, file)
        if table.instructions:
            instructions.append(str(table.instructions).strip())
            note(("instructions",), table.instructions, file)
    if model := environ.get("TOOLSPEAK_MODEL", "").strip():
        values["model"] = model
        origins["model"] = (ValueOrigin(model, variable="TOOLSPEAK_MODEL"), *origins.get("model", ()))
    values["limits"] = limits_of(tables.pop("limits"))
    values["mcp_servers"] = tables.pop("mcp")
    values |= {**tables, "instructions": "\n\n".join(instructions), "hooks": hooks, "origins": origins}
    return Config(**values)
