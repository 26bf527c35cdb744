"""The user's own agents and functions, by a place in a module: `shop.agents:support`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import click

from toolspeak.agent import Agent
from toolspeak.cli.options.command_options import CommandT
from toolspeak.errors import ConfigurationError
from toolspeak.project.python_places import attribute_at, module_at


def engine_option(command: CommandT) -> CommandT:
    return click.option(
        "--engine",
        envvar="TOOLSPEAK_ENGINE",
        metavar="URL",
        help="The engine of the workers (default: embedded:, which needs nothing but the journal).",
    )(command)


def load_agents(place: str) -> list[Agent[Any, Any]]:
    """The agents at `module:attribute` or `file.py:attribute`: an agent, several, a dict of agents, or a function that
    returns one of these. Without an attribute: all agents that the module names.

    Raises ConfigurationError if there are none.
    """
    module_name, _, attribute = place.rpartition(":") if _has_attribute(place) else (place, "", "")
    module = _module(module_name)
    if not attribute:
        names: Mapping[str, object] = vars(module)
        value: Any = [each for name, each in names.items() if name[0] != "_" and isinstance(each, Agent)]
    else:
        value = attribute_at(module, attribute)
        if callable(value) and not isinstance(value, Agent):
            value = value()
    if isinstance(value, Mapping):
        value = cast("Mapping[Any, Any]", value).values()
    values: list[Any] = [*cast("Iterable[Any]", value)] if isinstance(value, Iterable) else [value]
    agents = {
        id(each): each for each in cast("list[Agent[Any, Any]]", values) if isinstance(cast("object", each), Agent)
    }
    if not agents:
        raise ConfigurationError(f"{place} names no agents: write MODULE:ATTRIBUTE of an Agent, or of a list of Agents")
    return list(agents.values())


def load_function(place: str) -> Callable[..., Any]:
    """The function at `module:attribute`. Raises ConfigurationError if there is none."""
    module, _, attribute = place.rpartition(":")
    function = attribute_at(_module(module), attribute) if module else None
    if not callable(function):
        raise ConfigurationError(f"{place!r} names no function: write MODULE:FUNCTION")
    return function


def _has_attribute(place: str) -> bool:
    # On Windows a path has a colon of its own: C:\agents.py
    return ":" in place and not place.endswith(".py")


def _module(name: str) -> ModuleType:
    """The module, looked for in the working folder first, as Python does for a script."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return module_at(name)
