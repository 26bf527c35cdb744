"""Options that several commands share, and reading what a user hands in."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast, get_args

import click

from toolspeak import dialects
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import Dialect, Listing, get_dialect
from toolspeak.dialects.base import PromptListing
from toolspeak.dialects.registry import FAMILIES
from toolspeak.errors import ConfigurationError

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
STANDARD_INPUT = "-"
_NAMES = ", ".join(FAMILIES["protocols"])


class Spelled(click.Choice[str]):
    """A choice of names with `_`, which may be typed with `-`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(str(value).replace("-", "_"), param, ctx)


def dialect_option(command: CommandT) -> CommandT:
    text = f"How the model writes calls: {_NAMES}, … (`toolspeak dialects` lists all)."
    return click.option("--dialect", required=True, metavar="NAME", help=text)(command)


def dialect_options(command: CommandT) -> CommandT:
    """`--dialect`, `--model` and `--strict`, as `chosen_dialect` takes them."""
    text = f"How the reply writes calls: {_NAMES}, … (`toolspeak dialects` lists all), or auto: whichever it is in."
    strict = "Take for a call only what is whole, valid and of a known tool; the rest stays text."
    for option in (
        click.option("--strict", is_flag=True, help=strict),
        click.option("--model", metavar="MODEL", help="Who wrote it, as a hub names it: auto reads its dialect first."),
        click.option("--dialect", metavar="NAME", help=text),
    ):
        command = option(command)
    return command


def workspace_option(command: CommandT) -> CommandT:
    return click.option(
        "--workspace",
        default=".",
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False),
        help="The folder the tools are confined to (default: the current one).",
    )(command)


def env_option(command: CommandT) -> CommandT:
    text = "Give commands of `shell` the environment variable NAME too; they get PATH, HOME, LANG and the like."
    return click.option("--env", "env", multiple=True, metavar="NAME", help=text)(command)


def active_file_option(command: CommandT) -> CommandT:
    text = "The file of the workspace that you have open, relative to it: the tool `active_file` names it."
    return click.option("--active-file", metavar="PATH", help=text)(command)


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


def listing_option(command: CommandT) -> CommandT:
    return click.option(
        "--listing",
        type=Spelled(get_args(Listing)),
        help="How a prompt lists the tools: as the model's own chat template does (trained, the default), in prose, as "
        "signatures (the shortest), or as JSON Schema.",
    )(command)


def prompt_listing_option(command: CommandT) -> CommandT:
    return click.option(
        "--listing",
        type=Spelled(get_args(PromptListing)),
        help="Who writes a prompt where calls are text, and how: the server, by its chat template (server, the default "
        "for vllm: and llamacpp:), or we, as the model's own template does (trained, elsewhere the default), in prose, "
        "as signatures (the shortest), or as JSON Schema.",
    )(command)


def thoughts_option(command: CommandT) -> CommandT:
    text = "Show what the model thinks, dimmed (default: only that it does, on a terminal)."
    return click.option("--thoughts/--no-thoughts", default=False, help=text)(command)


def reply_starts_in_option(command: CommandT) -> CommandT:
    """As `starts_in_option`, for a reply that is there to its end."""
    return click.option(
        "--starts-in",
        type=click.Choice(["text", "reasoning"]),
        default=None,
        help="Where the reply starts. Default: in reasoning if it has the end marker of reasoning and no start. An end "
        "marker of reasoning that nothing opened makes what stands before it reasoning, under `text` too.",
    )(command)


def repair_option(command: CommandT) -> CommandT:
    text = "Mend calls that are almost JSON (needs toolspeak[repair]); what became of them is marked."
    return click.option("--repair", is_flag=True, help=text)(command)


def rules_option(command: CommandT) -> CommandT:
    text = "Keep what you always say yes to in FILE, and go by it (see `toolspeak rules`)."
    return click.option("--rules", metavar="FILE", type=click.Path(dir_okay=False), help=text)(command)


def chosen_dialect(
    name: str | None, *, model: str | None = None, strict: bool = False, repair: bool = False
) -> Dialect:
    """Without a name it is `auto`. Raises ConfigurationError for a name that no dialect has or a model of which none is
    known, and for `--strict` and `--repair` where they cannot be."""
    dialect = get_dialect(name or "auto", model=model, strict_detection=strict)
    return dialects.repaired(dialect) if repair else dialect


def file_argument(command: CommandT) -> CommandT:
    """What `open_input` takes."""
    return click.argument("file", default=STANDARD_INPUT, metavar="[FILE]")(command)


def read_reply(file: str = STANDARD_INPUT) -> str:
    """A file, or standard input, as UTF-8 text. Raises ConfigurationError naming the byte that is none."""
    with open_input(file) as opened:
        data = opened.read()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        place = f"byte {data[error.start]:#04x} at offset {error.start}"
        name = "standard input" if file == STANDARD_INPUT else file
        raise ConfigurationError(f"{name} is not UTF-8: {place}; convert it first") from None


@contextmanager
def open_input(file: str) -> Generator[BinaryIO]:
    """A file as bytes, or standard input for `-`. Raises ConfigurationError for what cannot be opened."""
    if file == STANDARD_INPUT:
        if cast("object", sys.stdin) is None:  # `<&-`
            raise ConfigurationError("standard input is closed; hand the reply in through it, or name a file")
        yield sys.stdin.buffer
        return
    with _opened(file) as opened:
        yield opened


def _opened(file: str) -> BinaryIO:
    try:
        return Path(file).open("rb")
    except FileNotFoundError:
        raise ConfigurationError(
            f"{file}: there is no such file; name one, or hand the text in on standard input"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror or error}") from None


def read_tools(path: str | None) -> tuple[ToolSpec, ...]:
    """Tools from a JSON file: an array of `{"name", "description", "parameters"}`, bare or in OpenAI's
    `{"type": "function", "function": …}`, with the schema under Anthropic's or MCP's name for it; or one such tool, or
    an object that holds them as `tools`. Raises ConfigurationError naming the file and the place."""
    if path is None:
        return ()
    return tool_specs(read_json(path), path)


def read_json(path: str) -> Any:
    """A JSON file's value, with or without a byte order mark. Raises ConfigurationError naming the file."""
    try:
        return json.loads(Path(path).read_text("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such file; name one that holds JSON") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{path}: not UTF-8 ({error.reason} at byte {error.start}); convert it first"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: not JSON: {error}") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}") from None


def tool_specs(listed: Any, where: str) -> tuple[ToolSpec, ...]:
    """Tools from JSON as `read_tools` takes it; `where` names the place for errors."""
    if isinstance(listed, dict):
        envelope = cast("dict[str, Any]", listed)
        listed = envelope.get("tools", [envelope] if envelope else envelope)
    if not isinstance(listed, list):
        raise ConfigurationError(f"{where}: expected a JSON array of tools, found {json.dumps(listed)[:40]}")
    return tuple(_tool(entry, f"{where}[{i}]") for i, entry in enumerate(cast("list[Any]", listed)))


_SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema")
"""The schema's name in OpenAI's API, in Anthropic's, and in MCP."""


def _tool(entry: Any, where: str) -> ToolSpec:
    if isinstance(entry, dict) and isinstance(entry.get("function"), dict):  # pyright: ignore[reportUnknownMemberType] - JSON
        entry = cast("dict[str, Any]", entry)["function"]
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):  # pyright: ignore[reportUnknownMemberType] - JSON
        raise ConfigurationError(f'{where}: a tool is {{"name": …, "description": …, "parameters": {{…}}}}')
    tool = cast("dict[str, Any]", entry)
    key = next((key for key in _SCHEMA_KEYS if tool.get(key) is not None), None)
    parameters: Any = tool[key] if key else {"type": "object", "properties": {}}
    if not isinstance(parameters, dict):
        raise ConfigurationError(f"{where}.{key}: expected a JSON Schema object")
    return ToolSpec(tool["name"], str(tool.get("description") or ""), cast("dict[str, Any]", parameters))


def write_json(value: Any) -> None:
    """Prints JSON, indented, as UTF-8; a lone surrogate, which UTF-8 cannot carry, leaves as its escape."""
    write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def write_json_line(value: Any) -> None:
    """Prints JSON on one line, at once: whoever asked may wait for it."""
    write_text(json.dumps(value, ensure_ascii=False) + "\n")


def write_text(text: str) -> None:
    """Prints text as UTF-8, whatever the locale."""
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
