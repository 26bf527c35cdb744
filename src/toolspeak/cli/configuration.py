"""The configuration for a command, and what its options choose besides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast, get_type_hints

import click
from click.core import ParameterSource

from toolspeak.cli.signals import run_to_end
from toolspeak.errors import ConfigurationError
from toolspeak.project.configuration.config import Config, read_config
from toolspeak.project.configuration.config_trust import ProjectConfig
from toolspeak.project.configuration.configured_setup import SetupChoices
from toolspeak.ui import printable
from toolspeak.ui.console import style_of
from toolspeak.ui.question import Line, visible_lines
from toolspeak.ui.terminal_approver import confirm_text, has_terminal


def configuration(workspace: str, *, asks: bool = True) -> Config:
    """The configuration for work in a folder. At a terminal the person is asked about a project's configuration that
    they have not trusted, unless `asks` is False. Prints its warnings."""
    config = read_config(workspace, ask=_ask if asks and has_terminal() else None)
    for name, look in config.theme.items():
        try:
            style_of(name, look)
        except ConfigurationError as error:
            raise ConfigurationError(f"{config.origins[f'theme.{name}'][0].place}: {error}") from None
    for warning in config.warnings:
        click.echo(f"toolspeak: {printable(warning)}", err=True)
    return config


def choices_of(context: click.Context) -> SetupChoices:
    """The settings of a run that the command line names, and not a default."""
    names = get_type_hints(SetupChoices).keys() & context.params.keys()
    choices = {
        name: context.params[name]
        for name in names
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE and context.params[name] is not None
    }
    return cast("SetupChoices", choices)


def content_lines(project: ProjectConfig) -> Iterator[Line]:
    """A project's configuration for a person who decides about it: the content of all its files, and what it does."""
    yield f"? {printable(project.file.path)} comes with this project:", "bold yellow"
    yield from ((f"    {line}", "") for line in visible_lines(project.file.text))
    for path, text in project.named_files.items():
        yield f"  It names {printable(path)}:", "bold"
        yield from ((f"    {line}", "") for line in visible_lines(text))
    for effect in project.effects:
        yield f"  {effect}", "yellow"


def _ask(project: ProjectConfig) -> bool:
    is_trusted = run_to_end(confirm_text(content_lines(project), "  Trust it, until its content changes?"))
    if not is_trusted:
        click.echo("toolspeak: it is ignored; `toolspeak config trust` trusts it later", err=True)
    return is_trusted
