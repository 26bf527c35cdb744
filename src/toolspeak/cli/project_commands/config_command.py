"""`toolspeak config`: shows what is configured and where each value comes from; trusts or edits a configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import msgspec

from toolspeak.cli.configuration import configuration, content_lines
from toolspeak.cli.exit_codes import NO_ANSWER
from toolspeak.cli.options.command_options import write_json
from toolspeak.cli.options.run_options import workspace_option
from toolspeak.cli.signals import run_to_end
from toolspeak.data.values import JSON
from toolspeak.errors import ConfigurationError
from toolspeak.project.configuration.config import Config, ValueOrigin, find_project_config, resolved_model
from toolspeak.project.configuration.config_file import read_config_file
from toolspeak.project.configuration.config_table import LIMITS, table_of
from toolspeak.project.configuration.config_trust import (
    ProjectConfig,
    is_trusted,
    project_config_file,
    project_root,
    set_trust,
    user_config_file,
)
from toolspeak.project.user_files.chosen_models import chosen_model, chosen_models_file
from toolspeak.ui import printable
from toolspeak.ui.argument_editor import editor
from toolspeak.ui.format import one_line, shorten
from toolspeak.ui.terminal_approver import confirm_text, has_terminal

_WIDTH = 100
"""The most characters of a value on its line."""

_TOGETHER = ("env", "tools", "instructions", "hooks")
"""Keys whose values in several files all count."""

_NEW_FILE = """\
# The configuration of toolspeak: https://toolspeak.readthedocs.io, "Configure". `toolspeak config` shows its values.

# model = "fast"
# approve = "ask"

# [aliases]
# fast = "ollama:qwen3:8b"

# [providers.lab]
# api = "vllm"
# base_url = "https://lab.example/v1"
# key_env = "LAB_KEY"
"""


@click.group("config", invoke_without_command=True)
@workspace_option
@click.option("--json", "as_json", is_flag=True, help="Print an array of values, with `key`, `value` and `origins`.")
@click.pass_context
def config_command(context: click.Context, workspace: str, as_json: bool) -> None:
    """Show each configured value, where it comes from, and what it overrides.

    The order, later ones first: the command line, the environment, the project's file (`.toolspeak/config.toml`, once
    you trust it), your own file, the defaults.
    """
    if context.invoked_subcommand is not None:
        return
    config = configuration(workspace, asks=False)
    if as_json:
        write_json([_row(key, value, origins) for key, value, origins in _values(config)])
    else:
        for file_line in _files(workspace, config.warnings):
            click.echo(f"# {file_line}")
        for key, value, origins in _values(config):
            _print_value(config, key, value, origins)
            if key == "model" and not origins and (model := chosen_model(workspace)):
                place = printable(str(chosen_models_file()))
                click.echo(f"    {_value_text(model)} in conversations, as chosen with /model  # {place}")


@config_command.command("path")
@workspace_option
def path_command(workspace: str) -> None:
    """Print the configuration files, and whether they count."""
    for line in _files(workspace):
        click.echo(line)


@config_command.command("trust")
@workspace_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--revoke", is_flag=True, help="Trust the file no longer.")
def trust_command(workspace: str, yes: bool, revoke: bool) -> None:
    """Show the project's configuration, and trust it until its content changes.

    A project's configuration can name commands, MCP servers and addresses, so it counts only once you trust it. At a
    terminal you are asked; without one, the command trusts it without a question.
    """
    if revoke:
        place = project_config_file(workspace)
        is_new = place is not None and set_trust(place[0], None)
        click.echo("toolspeak: it is no longer trusted" if is_new else "toolspeak: it was not trusted", err=True)
        return
    project = _project(workspace)
    asks = has_terminal() and not yes
    if asks and not run_to_end(confirm_text(content_lines(project), "  Trust it, until its content changes?")):
        raise click.exceptions.Exit(NO_ANSWER)
    if not asks:
        for line, _ in content_lines(project):
            click.echo(line, err=True)
    _trust(project)


@config_command.command("edit")
@workspace_option
@click.option("--project", "of_project", is_flag=True, help="The project's file instead of your own.")
def edit_command(workspace: str, of_project: bool) -> None:
    """Open your configuration file in $VISUAL or $EDITOR, and check it afterwards.

    A project's file that you trust stays trusted after your edit.
    """
    path, folder = _file_to_edit(workspace, of_project)
    if not has_terminal():
        raise ConfigurationError(f"there is no terminal for an editor; edit {printable(path)} itself")
    was_trusted = False
    if of_project and os.path.exists(path):
        with suppress(ConfigurationError):
            before = find_project_config(folder)
            was_trusted = before is not None and is_trusted(before)
    _create(Path(path))
    click.edit(filename=path, editor=editor() or None)
    file = read_config_file(path, folder, of_project=of_project)
    if file is None:
        raise ConfigurationError(f"{printable(path)} is gone")
    table_of(file)
    if was_trusted:
        _trust(_project(folder))
    elif of_project:
        click.echo("toolspeak: `toolspeak config trust` makes it count", err=True)


def _project(workspace: str) -> ProjectConfig:
    project = find_project_config(workspace)
    if project is None:
        raise ConfigurationError(f"there is no .toolspeak/config.toml in {workspace} or above it, up to its git root")
    return project


def _trust(project: ProjectConfig) -> None:
    is_new = set_trust(project.file.path, project.digest)
    click.echo(f"toolspeak: {printable(project.file.path)} {'is' if is_new else 'was already'} trusted", err=True)


def _file_to_edit(workspace: str, of_project: bool) -> tuple[str, str]:
    """The path of the file, and the folder that it belongs to."""
    if of_project:
        place = project_config_file(workspace)
        root = project_root(workspace)
        return place if place is not None else (os.path.join(root, ".toolspeak", "config.toml"), root)
    path = user_config_file(os.environ)
    if path is None:
        raise ConfigurationError("there is no home folder for your configuration; set HOME or TOOLSPEAK_CONFIG")
    return path, os.path.dirname(path)


def _create(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError), path.open("x", encoding="utf-8") as stream:
            stream.write(_NEW_FILE)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}; make its folder writable") from None


def _files(workspace: str, warnings: Sequence[str] = ()) -> Iterator[str]:
    """The files, and whether they count. `warnings` were printed already."""
    path = user_config_file(os.environ)
    state = "there is no such file" if path is None or not os.path.exists(path) else "counts"
    yield f"yours: {printable(path or 'without a home folder there is none')} ({state})"
    place = project_config_file(workspace)
    if place is None:
        path = os.path.join(project_root(workspace), ".toolspeak", "config.toml")
        yield f"the project's: {printable(path)} (there is no such file)"
        return
    try:
        project = find_project_config(workspace)
        state = "counts" if project is not None and is_trusted(project) else "not trusted: `toolspeak config trust`"
    except ConfigurationError as error:
        is_known = any(str(error) in warning for warning in warnings)
        state = "cannot be used; see above" if is_known else f"cannot be used: {error}"
    yield f"the project's: {printable(place[0])} ({printable(state)})"


def _values(config: Config) -> Iterator[tuple[str, JSON, tuple[ValueOrigin, ...]]]:
    """Each key with its value and its origins; a key without origins has its default."""
    by_table = {key.partition(".")[0] for key in config.origins if "." in key}
    for each in fields(Config):
        key = {"prices_file": "prices"}.get(each.name, each.name)
        if key in ("origins", "project_folder", "warnings", "mcp_servers"):
            continue
        if key in config.origins or (key not in by_table and key not in ("prices", "mcp", "limits")):
            origins = config.origins.get(key, ())
            value = getattr(config, each.name) if key != "prices" else config.prices_file
            yield key, msgspec.to_builtins(value), origins
    for name in ("prices", "mcp"):
        if name not in config.origins and name not in by_table:
            yield name, {}, ()
    for name in LIMITS:
        if f"limits.{name}" not in config.origins and getattr(config.limits, name) is not None:
            yield f"limits.{name}", getattr(config.limits, name), ()
    for key, origins in config.origins.items():
        if "." in key:
            yield key, msgspec.to_builtins(origins[0].value), origins


def _row(key: str, value: JSON, origins: tuple[ValueOrigin, ...]) -> dict[str, Any]:
    places = [{"place": each.place, "value": msgspec.to_builtins(each.value)} for each in origins]
    return {"key": key, "value": value, "origins": places or [{"place": "default", "value": value}]}


def _print_value(config: Config, key: str, value: JSON, origins: tuple[ValueOrigin, ...]) -> None:
    meaning = f"  (= {resolved_model(config, value)})" if key == "model" and value in config.aliases else ""
    place = origins[0].place if origins else "default"
    click.echo(f"{one_line(key)} = {_value_text(value)}{one_line(meaning)}  # {one_line(place)}")
    relation = "with" if key.partition(".")[0] in _TOGETHER else "overrides"
    for each in origins[1:]:
        click.echo(f"    {relation} {_value_text(msgspec.to_builtins(each.value))}  # {one_line(each.place)}")


def _value_text(value: JSON) -> str:
    if isinstance(value, dict):
        value = {name: each for name, each in value.items() if each not in ("", {}, None)}  # pyright: ignore
    return one_line(shorten(json.dumps(value, ensure_ascii=False), _WIDTH))
