"""Which projects' configurations the user trusts: each by the digest of all that it says."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from toolspeak.data.protected_files import protect
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.project.configuration.config_file import ConfigFile
from toolspeak.project.configuration.config_table import ConfigTable
from toolspeak.project.folders import project_folders
from toolspeak.project.user_files.string_file import change_strings, read_strings
from toolspeak.project.user_files.user_folders import NO_FOLDER, data_folder, home_folder, user_folder
from toolspeak.tools.files.text_format import visible

_REFERENCE = re.compile(r"\$\{(?:env:)?(\w+)")


@quick()
class ProjectConfig:
    """A project's configuration as a person decides about it.

    - `digest`: of the file and of the files that it names. Another content is another configuration.
    - `effects`: what it does beyond the choice of a model, a sentence each.
    - `named_files`: the text of each file that it names, by path.
    """

    file: ConfigFile
    table: ConfigTable
    named_files: Mapping[str, str]
    digest: str
    effects: tuple[str, ...]


def user_config_file(environ: Mapping[str, str]) -> str | None:
    """The path of the user's file of configuration; None without a home folder."""
    if path := environ.get("TOOLSPEAK_CONFIG"):
        return os.path.abspath(path)
    folder = user_folder()
    return None if folder == NO_FOLDER else str(folder / "config.toml")


def project_config_file(folder: str) -> tuple[str, str] | None:
    """The path of the project's file of configuration, and the project's folder: the nearest `.toolspeak/config.toml`
    from `folder` up to the git root, or up to below the home folder. Outside of both only `folder` counts."""
    for each in _project_folders(folder):
        path = each / ".toolspeak" / "config.toml"
        if os.path.lexists(path):
            return str(path), str(each)
    return None


def project_root(folder: str) -> str:
    """The folder for a new configuration of the project: its git root, or `folder`."""
    folders = _project_folders(folder)
    return str(folders[-1] if folders and (folders[-1] / ".git").exists() else Path(os.path.realpath(folder)))


def _project_folders(folder: str) -> Sequence[Path]:
    """The folders that may hold a project's configuration, the nearest first; the home folder holds the user's."""
    return [each for each in project_folders(Path(folder)) if each != home_folder()]


def project_config(file: ConfigFile, table: ConfigTable, named_files: Mapping[str, str]) -> ProjectConfig:
    """What a person decides about for a project's file."""
    content = json.dumps([file.path, file.text, sorted(named_files.items())])
    digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
    return ProjectConfig(
        file, table, named_files, digest, tuple(visible(each).replace("\n", "⏎") for each in _effects(table))
    )


def _effects(table: ConfigTable) -> Iterator[str]:
    if table.approve in ("all", "all+repaired"):
        yield f"it approves calls without asking you (approve = {table.approve!r})"
    assert not isinstance(table.mcp, str), "the file of servers has been read"
    servers = table.mcp
    for name, entry in servers.items():
        server = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        if "command" in server:
            arguments = server.get("args")
            words = [server["command"], *(cast("list[Any]", arguments) if isinstance(arguments, list) else [])]
            yield f"it starts the MCP server {name}: {' '.join(map(str, words))}"
        else:
            yield f"it connects to the MCP server {name} at {server.get('url')}"
        yield from _sent_variables(f"the MCP server {name}", server)
    for event, hooks in table.hooks.items():
        yield from (f"it runs on {event}: {command}" for command in _commands(hooks))
    yield from (f"it imports the Python tools {place}" for place in table.tools)
    for name, provider in table.providers.items():
        key = f", with the key in {provider.key_env}" if provider.key_env else ""
        yield f"the provider {name} sends conversations to {provider.base_url or provider.api}{key}"
        yield from _sent_variables(f"the provider {name}", provider.headers)
    if table.env:
        yield f"commands of the model get the environment variables {', '.join(table.env)}"
    if table.instructions:
        yield "it adds instructions for the model"


def _sent_variables(what: str, settings: Mapping[str, Any]) -> Iterator[str]:
    """The environment variables that the texts of the settings refer to."""
    names = sorted(set(_REFERENCE.findall(json.dumps(dict(settings)))) - {"workspaceFolder"})
    if names:
        yield f"{what} gets the environment variables {', '.join(names)}"


def _commands(hooks: Any) -> Iterator[str]:
    """Every `command` in the table of an event."""
    if isinstance(hooks, dict):
        for name, value in cast("dict[str, Any]", hooks).items():
            if name == "command":
                yield str(value)
            else:
                yield from _commands(value)
    elif isinstance(hooks, list):
        for each in cast("list[Any]", hooks):
            yield from _commands(each)


# --- the file that remembers -----------------------------------------------------------------------------------------


def trust_file() -> Path:
    """Where the digests of trusted configurations are stored."""
    return data_folder() / "trusted.json"


def is_trusted(config: ProjectConfig) -> bool:
    """Whether the user has trusted just this content at just this path."""
    file = trust_file()
    protect(file, "the list of trusted configurations")
    return read_strings(file).get(config.file.path) == config.digest


def set_trust(path: str, digest: str | None) -> bool:
    """Stores that the user trusts this content of the file at `path`; None: that they trust none. Returns whether that
    changed anything. Raises ConfigurationError if it cannot be stored."""
    file = trust_file()
    if file.parent == NO_FOLDER:
        raise ConfigurationError("there is no home folder to remember trusted files in; set HOME or XDG_DATA_HOME")
    try:
        return change_strings(
            file, lambda digests: digests.pop(path, None) if digest is None else digests.update({path: digest})
        )
    except OSError as error:
        raise ConfigurationError(f"{file}: the trust was not stored: {error.strerror or error}") from None
