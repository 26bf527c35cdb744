"""Options that several commands share, and reading what a user hands in."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from platformdirs import user_data_path

from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import PROTOCOLS
from toolspeak.errors import UsageError
from toolspeak.journal import Journal, MemoryJournal, open_journal

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
_NAMES = ", ".join(dialect.name for dialect in PROTOCOLS)


def dialect_option(command: CommandT) -> CommandT:
    text = f"How the reply writes calls: {_NAMES}, … (`toolspeak dialects` lists all)."
    return click.option("--dialect", required=True, metavar="NAME", help=text)(command)


def workspace_option(command: CommandT) -> CommandT:
    return click.option(
        "--workspace",
        default=".",
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False),
        help="The folder the tools are confined to (default: the current one).",
    )(command)


def journal_option(command: CommandT) -> CommandT:
    return click.option(
        "--journal",
        envvar="TOOLSPEAK_JOURNAL",
        metavar="FILE|URL",
        help="Where runs are recorded: a file, a postgresql:// URL, or `none` (default: toolspeak.db in your data"
        " folder).",
    )(command)


def journal_of(where: str | None) -> Journal:
    """The journal an option names."""
    if where == "none":
        return MemoryJournal()
    return open_journal(where or user_data_path("toolspeak", appauthor=False) / "toolspeak.db")


def finish_option(command: CommandT) -> CommandT:
    return click.option(
        "--finish",
        type=click.Choice(["stop", "length"]),
        default="stop",
        help="How the turn ended: by itself, or cut by the token limit.",
    )(command)


def starts_in_option(command: CommandT) -> CommandT:
    return click.option(
        "--starts-in",
        type=click.Choice(["text", "reasoning"]),
        default="text",
        help="Where a reply starts: `reasoning` if the model's chat template opens it in the prompt.",
    )(command)


def read_reply() -> str:
    """Standard input as UTF-8 text. Raises UsageError naming the byte that is none."""
    if cast("object", sys.stdin) is None:  # `<&-`
        raise UsageError("standard input is closed; hand the reply in through it")
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"standard input is not UTF-8: byte {data[error.start]:#04x} at offset {error.start}; convert it first"
        ) from None


def read_tools(path: str | None) -> tuple[ToolSpec, ...]:
    """Tools from a JSON file: an array of `{"name", "description", "parameters"}`, bare or in OpenAI's
    `{"type": "function", "function": …}`. Raises UsageError naming the file and the place."""
    if path is None:
        return ()
    try:
        listed: Any = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from None
    if not isinstance(listed, list):
        raise UsageError(f"{path}: expected a JSON array of tools, found {type(listed).__name__}")
    return tuple(_tool(entry, f"{path}[{i}]") for i, entry in enumerate(cast("list[Any]", listed)))


def _tool(entry: Any, where: str) -> ToolSpec:
    if isinstance(entry, dict) and isinstance(entry.get("function"), dict):  # pyright: ignore[reportUnknownMemberType] - JSON
        entry = cast("dict[str, Any]", entry)["function"]
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):  # pyright: ignore[reportUnknownMemberType] - JSON
        raise UsageError(f'{where}: a tool is {{"name": …, "description": …, "parameters": {{…}}}}')
    tool = cast("dict[str, Any]", entry)
    parameters = tool.get("parameters", {"type": "object", "properties": {}})
    if not isinstance(parameters, dict):
        raise UsageError(f"{where}.parameters: expected a JSON Schema object")
    return ToolSpec(tool["name"], str(tool.get("description", "")), cast("dict[str, Any]", parameters))


def write_json(value: Any) -> None:
    """Prints JSON, indented, as UTF-8; a lone surrogate, which UTF-8 cannot carry, leaves as its escape."""
    text = json.dumps(value, ensure_ascii=False, indent=2) + "\n"
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()


def write_text(text: str) -> None:
    """Prints text as UTF-8, whatever the locale."""
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
