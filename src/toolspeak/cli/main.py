"""The `toolspeak` command."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import cast

import click

from toolspeak.cli.command_table import LazyCommands
from toolspeak.cli.exit_codes import INTERRUPTION, NO_ANSWER, USAGE
from toolspeak.errors import ConfigurationError, ToolspeakError


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="toolspeak")
@click.option(
    "--telemetry",
    is_flag=True,
    envvar="TOOLSPEAK_TELEMETRY",
    help="Export traces and metrics of runs by OTLP, as the variables OTEL_* say (needs the extra otel).",
)
def cli(*, telemetry: bool) -> None:
    """Any model can use tools.

    Exit codes: 0 answered, 1 ended without an answer, 2 wrong usage, 3 awaiting approval, 4 suspended, 130 interrupted.
    """
    if telemetry:
        room = importlib.import_module("toolspeak.telemetry")  # not at the top: it imports the agent
        room.set_up_sdk()
        room.instrument()


def main() -> None:
    """The entry point. Turns errors into one line on standard error and an exit code."""
    _open_closed_outputs()
    _log()
    try:
        code = cli.main(_arguments(), standalone_mode=False)  # that of `Context.exit`
        if isinstance(code, int):
            sys.exit(code)
    except (click.exceptions.Abort, KeyboardInterrupt):  # click turns KeyboardInterrupt into Abort
        click.echo("toolspeak: interrupted", err=True)
        sys.exit(INTERRUPTION)
    except click.ClickException as error:
        error.show()
        sys.exit(USAGE)
    except ConfigurationError as error:
        click.echo(f"toolspeak: {error}", err=True)
        sys.exit(USAGE)
    except ToolspeakError as error:
        click.echo(f"toolspeak: {error}", err=True)
        sys.exit(NO_ANSWER)
    except OSError as error:
        click.echo(f"toolspeak: {error}; calls that ran before keep their effects", err=True)
        sys.exit(NO_ANSWER)


def _arguments() -> list[str]:
    """The words of the command line. At a terminal they are those of `chat` if there are none, or if they begin with an
    option of it: `toolspeak -c`. A program gets the help."""
    words = sys.argv[1:]
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        return words
    own_options = {"-h", "--help", *(name for each in cli.params for name in each.opts)}
    is_chat = not words or (words[0].startswith("-") and words[0].partition("=")[0] not in own_options)
    return ["chat", *words] if is_chat else words


def _log() -> None:
    """Sends the library's log to the file that TOOLSPEAK_LOG names, and nothing to the terminal."""
    logger, place = logging.getLogger("toolspeak"), os.environ.get("TOOLSPEAK_LOG")
    if not place:
        logger.addHandler(logging.NullHandler())
        return
    try:
        handler = logging.FileHandler(place, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        click.echo(f"toolspeak: TOOLSPEAK_LOG: {error}", err=True)
        sys.exit(USAGE)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)


def _open_closed_outputs() -> None:
    """Opens /dev/null for an output that the shell closed (`>&-`). Otherwise the next file that opens, such as a
    journal, would get the output's descriptor."""
    for name in ("stdout", "stderr"):
        if cast("object", getattr(sys, name)) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open until the process ends
