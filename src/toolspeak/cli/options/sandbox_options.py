"""The options for what commands may touch, and the settings that they stand for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])

NAMES = ("sandbox", "allow_net", "sandbox_write", "sandbox_read", "unasked_reads")


def sandbox_options(command: _CommandT) -> _CommandT:
    """The parameters of `sandbox_fields`."""
    mode = (
        "Whether commands run in a sandbox. required: none starts without one (the default if nobody can be asked);"
        " auto: in the best sandbox that this system has (the default at a terminal); off: with all your rights."
    )
    network = (
        "Let commands reach this host: api.example.com:443, *.example.com:443, or `all` for every host (default: no"
        " network). Repeatable."
    )
    for option in (
        click.option("--unasked-reads", is_flag=True, help="In a sandbox, run commands that only read without asking."),
        click.option(
            "--sandbox-read",
            multiple=True,
            metavar="PATH",
            help="Let commands read this file or folder, which the sandbox would hide (such as ~/.npmrc). Repeatable.",
        ),
        click.option(
            "--sandbox-write",
            multiple=True,
            metavar="PATH",
            help="Let commands change this file or folder besides the workspace (such as ~/.cache). Repeatable.",
        ),
        click.option("--allow-net", multiple=True, metavar="HOST:PORT", help=network),
        click.option("--sandbox", type=click.Choice(["required", "auto", "off"]), default=None, help=mode),
    ):
        command = option(command)
    return command


def sandbox_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a run's settings that these options of the command line set. Paths become absolute: the run may be
    resumed from another folder."""
    fields = {name: setting for name, setting in options.items() if name in NAMES and setting}
    for name in {"sandbox_write", "sandbox_read"} & fields.keys():
        fields[name] = tuple(os.path.abspath(os.path.expanduser(path)) for path in fields[name])
    if "unasked_reads" in fields:
        fields["unasked_reads"] = "yes"
    return fields
