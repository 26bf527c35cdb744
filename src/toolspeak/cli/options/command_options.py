"""Options that several commands share, and readers of the user's input."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast, get_args

import click

from toolspeak import dialects
from toolspeak.cli.options.run_options import CommandT
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import Dialect, Listing, get_dialect
from toolspeak.dialects.base import PromptListing
from toolspeak.dialects.registry import FAMILIES
from toolspeak.errors import ConfigurationError
from toolspeak.project.user_files.json_file import read_json

STANDARD_INPUT = "-"
_NAMES = ", ".join(FAMILIES["protocols"])


class HyphenChoice(click.Choice[str]):
    """A choice among names with `_`, in which the user may type `-` instead."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(str(value).replace("-", "_"), param, ctx)


def dialect_option(command: CommandT) -> CommandT:
    text = f"How the model writes calls: {_NAMES}, … (`toolspeak dialects` lists all)."
    return click.option("--dialect", required=True, metavar="NAME", help=text)(command)


def dialect_options(command: CommandT) -> CommandT:
    """`--dialect`, `--model` and `--strict`: the parameters of `chosen_dialect`."""
    text = f"How the reply writes calls: {_NAMES}, … (`toolspeak dialects` lists all), or auto, which detects it."
    strict = "Accept only complete, valid calls of known tools; everything else stays text."
    model = "The model that wrote the reply, by its name on a hub: auto tries its dialect first."
    for option in (
        click.option("--strict", is_flag=True, help=strict),
        click.option("--model", metavar="MODEL", help=model),
        click.option("--dialect", metavar="NAME", help=text),
    ):
        command = option(command)
    return command


def env_option(command: CommandT) -> CommandT:
    text = "Pass the environment variable NAME to `shell` commands, in addition to PATH, HOME, LANG and the like."
    return click.option("--env", "env", multiple=True, metavar="NAME", help=text)(command)


def active_file_option(command: CommandT) -> CommandT:
    text = "The file that you have open, relative to the workspace: the tool `active_file` returns it."
    return click.option("--active-file", metavar="PATH", help=text)(command)


def finish_option(command: CommandT) -> CommandT:
    return click.option(
        "--finish",
        type=click.Choice(["stop", "length"]),
        default="stop",
        help="How the turn ended: stop (the model ended it) or length (the token limit cut it off).",
    )(command)


def starts_in_option(command: CommandT) -> CommandT:
    return click.option(
        "--starts-in",
        type=click.Choice(["text", "reasoning"]),
        default="text",
        help="Where a reply starts: `reasoning` if the model's chat template opens reasoning in the prompt.",
    )(command)


def listing_option(command: CommandT) -> CommandT:
    return click.option(
        "--listing",
        type=HyphenChoice(get_args(Listing)),
        help="How a prompt lists the tools: like the model's own chat template (trained, the default), in prose, as "
        "signatures (the shortest), or as JSON Schema.",
    )(command)


def prompt_listing_option(command: CommandT) -> CommandT:
    return click.option(
        "--listing",
        type=HyphenChoice(get_args(PromptListing)),
        help="Who writes the prompt if calls are text, and how it lists the tools. server: the server writes it with "
        "its chat template (the default for vllm: and llamacpp:). Otherwise toolspeak writes it: like the model's own "
        "template (trained, the default for all others), in prose, as signatures (the shortest), or as JSON Schema.",
    )(command)


def reply_starts_in_option(command: CommandT) -> CommandT:
    """As `starts_in_option`, for a complete reply."""
    return click.option(
        "--starts-in",
        type=click.Choice(["text", "reasoning"]),
        default=None,
        help="Where the reply starts (default: in reasoning if the reply has an end marker of reasoning without a "
        "start marker, else in text). Even with `text`, the text before such an end marker is reasoning.",
    )(command)


def repair_option(command: CommandT) -> CommandT:
    text = "Repair calls that are almost JSON (needs toolspeak[repair]), and mark them as repaired."
    return click.option("--repair", is_flag=True, help=text)(command)


def chosen_dialect(
    name: str | None, *, model: str | None = None, strict: bool = False, repair: bool = False
) -> Dialect:
    """The dialect of this name; without a name `auto`. Raises ConfigurationError for an unknown dialect or model, and
    for `strict` or `repair` with a dialect that does not support them."""
    dialect = get_dialect(name or "auto", model=model, strict_detection=strict)
    return dialects.with_repair(dialect) if repair else dialect


def file_argument(command: CommandT) -> CommandT:
    """The parameter of `open_input`."""
    return click.argument("file", default=STANDARD_INPUT, metavar="[FILE]")(command)


def read_reply(file: str = STANDARD_INPUT) -> str:
    """A file, or standard input, as UTF-8 text. Raises ConfigurationError with the first byte that is not UTF-8."""
    with open_input(file) as stream:
        data = stream.read()
    return text_of_input(data, "standard input" if file == STANDARD_INPUT else file)


def text_of_input(data: bytes, name: str = "standard input") -> str:
    """The bytes as UTF-8 text. Raises ConfigurationError with the input's name and the first byte that is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        place = f"byte {data[error.start]:#04x} at offset {error.start}"
        raise ConfigurationError(f"{name} is not UTF-8: {place}; convert it first") from None


@contextmanager
def open_input(file: str) -> Generator[BinaryIO]:
    """A file as bytes; `-` is standard input. Raises ConfigurationError if it cannot be opened."""
    if file == STANDARD_INPUT:
        if cast("object", sys.stdin) is None:  # `<&-`
            raise ConfigurationError("standard input is closed; open it, or name a file")
        yield sys.stdin.buffer
        return
    with _open_file(file) as stream:
        yield stream


def _open_file(file: str) -> BinaryIO:
    try:
        return Path(file).open("rb")
    except FileNotFoundError:
        raise ConfigurationError(
            f"{file}: there is no such file; name another, or send the text to standard input"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror or error}") from None


def read_tools(path: str | None) -> tuple[ToolSpec, ...]:
    """The tools in a JSON file. Raises ConfigurationError with the file and the place in it.

    The file holds an array of tools, one tool, or an object with the array in `tools`. A tool is `{"name",
    "description", "parameters"}`, or OpenAI's `{"type": "function", "function": …}` around it. The schema may have
    Anthropic's or MCP's name.
    """
    if path is None:
        return ()
    return tool_specs(read_json(path), path)


def tool_specs(tool_list: Any, where: str) -> tuple[ToolSpec, ...]:
    """The tools in JSON, in the forms of `read_tools`. `where` is the place for errors."""
    if isinstance(tool_list, dict):
        envelope = cast("dict[str, Any]", tool_list)
        tool_list = envelope.get("tools", [envelope] if envelope else envelope)
    if not isinstance(tool_list, list):
        raise ConfigurationError(f"{where}: expected a JSON array of tools, found {json.dumps(tool_list)[:40]}")
    return tuple(_tool(entry, f"{where}[{i}]") for i, entry in enumerate(cast("list[Any]", tool_list)))


_SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema")
"""The schema's name in OpenAI's API, in Anthropic's, and in MCP."""


def _tool(entry: Any, where: str) -> ToolSpec:
    if isinstance(entry, dict) and isinstance(entry.get("function"), dict):  # pyright: ignore[reportUnknownMemberType] - JSON
        entry = cast("dict[str, Any]", entry)["function"]
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):  # pyright: ignore[reportUnknownMemberType] - JSON
        raise ConfigurationError(f'{where}: expected a tool: {{"name": …, "description": …, "parameters": {{…}}}}')
    tool = cast("dict[str, Any]", entry)
    key = next((key for key in _SCHEMA_KEYS if tool.get(key) is not None), None)
    parameters: Any = tool[key] if key else {"type": "object", "properties": {}}
    if not isinstance(parameters, dict):
        raise ConfigurationError(f"{where}.{key}: expected a JSON Schema object")
    return ToolSpec(tool["name"], str(tool.get("description") or ""), cast("dict[str, Any]", parameters))


def write_json(value: Any) -> None:
    """Prints indented JSON as UTF-8. UTF-8 cannot encode a lone surrogate, which is printed as its escape."""
    write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def write_json_line(value: Any) -> None:
    """Prints JSON on one line, and flushes it: a program may wait for the line."""
    write_text(json.dumps(value, ensure_ascii=False) + "\n")


def write_text(text: str) -> None:
    """Prints text as UTF-8 in any locale."""
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
