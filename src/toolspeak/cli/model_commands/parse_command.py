"""`toolspeak parse`: parses replies, and prints their calls and text."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast, get_args

import click

from toolspeak.cli.exit_codes import NO_ANSWER
from toolspeak.cli.options.command_options import (
    dialect_options,
    file_argument,
    finish_option,
    open_input,
    read_reply,
    read_tools,
    repair_option,
    reply_starts_in_option,
    tool_specs,
    write_json,
    write_json_line,
)
from toolspeak.cli.reply_description import ReplyEnd, ReplyToRead, read
from toolspeak.dialects import Section
from toolspeak.errors import ConfigurationError, UnknownDialect


@click.command("parse")
@file_argument
@dialect_options
@click.option("--tools", "tools_file", metavar="FILE", help="The tools as JSON; values get their types from them.")
@reply_starts_in_option
@finish_option
@repair_option
@click.option(
    "--jsonl",
    is_flag=True,
    help='Read many replies. Each line of the input is {"id", "dialect", "model", "input", "tools", "starts_in", '
    '"prompt_tail", "reasoning_off", "chunk", "partial"}; only "input" is required. Each line of the output is a '
    "result.",
)
def parse_command(
    file: str,
    dialect: str | None,
    model: str | None,
    strict: bool,
    tools_file: str | None,
    starts_in: Section | None,
    finish: ReplyEnd,
    repair: bool,
    jsonl: bool,
) -> None:
    """Parse one model reply from FILE or standard input, and print its text, reasoning and calls as JSON.

    Without --dialect, the dialect is detected (`auto`); that of --model is tried first. "dialect" in the output is the
    dialect of the calls.

    With --jsonl, the output for a line that cannot be read has its `id` and an `error`. The other lines are still read,
    and the exit code is 1. The other options apply to lines that lack the field of the same name.
    """
    usual = ReplyToRead(
        "",
        dialect,
        model=model,
        strict=strict,
        tools=read_tools(tools_file),
        starts_in=starts_in,
        finish=finish,
        repair=repair,
    )
    if jsonl:
        with open_input(file) as lines:
            good = _read_lines(lines, usual)
        if not good:
            sys.exit(NO_ANSWER)
    else:
        write_json(read(replace(usual, text=read_reply(file))))


def _read_lines(lines: Iterable[bytes], usual: ReplyToRead) -> bool:
    """Prints one line for each line of the input. Returns whether all could be read."""
    good = True
    for number, line in enumerate(lines, 1):
        line = line.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else line.strip()
        if not line:
            continue
        row: Any = None
        try:
            row = _decode(line)
            result = read(_reply(row, usual))
        except (ConfigurationError, UnknownDialect) as error:
            good, result = False, {"error": f"line {number}: {error}"}
        line_id = {"id": cast("dict[str, Any]", row).get("id")} if isinstance(row, dict) else {"id": None}
        write_json_line({**line_id, **result})
    return good


def _decode(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"not UTF-8 at byte {error.start + 1}; convert it first") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"not JSON ({error}); write one object on each line") from None


_TYPE_NAMES: Mapping[type, str] = {str: "a string", int: "a number of characters", bool: "true or false"}


_FIELDS: dict[str, tuple[type, ...]] = {
    "input": (str,),
    "dialect": (str, type(None)),
    "model": (str, type(None)),
    "prompt_tail": (str, type(None)),
    "chunk": (int, type(None)),
    "reasoning_off": (bool, type(None)),
    "partial": (bool, type(None)),
}


def _reply(row: Any, usual: ReplyToRead) -> ReplyToRead:
    if not isinstance(row, dict):
        raise ConfigurationError(f'expected an object {{"dialect": …, "input": …}}, found {type(row).__name__}')
    fields = cast("dict[str, Any]", row)
    if "input" not in fields:
        raise ConfigurationError('"input" is missing; it holds the reply')
    for name, types in _FIELDS.items():
        value = fields.get(name)
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise ConfigurationError(f'"{name}": expected {_TYPE_NAMES[types[0]]}, found {json.dumps(value)[:40]}')
    dialect, model, chunk, starts_in = map(fields.get, ("dialect", "model", "chunk", "starts_in"))
    if chunk is not None and chunk < 1:
        raise ConfigurationError(
            f'"chunk": expected at least one character, found {chunk}; leave it out for the whole text'
        )
    if starts_in is not None and starts_in not in get_args(Section):
        raise ConfigurationError(f'"starts_in": expected "text" or "reasoning", found {json.dumps(starts_in)[:40]}')
    tools = fields.get("tools")
    return ReplyToRead(
        text=fields["input"],
        dialect=dialect or (None if model else usual.dialect),  # a line's model takes precedence over the usual dialect
        model=model or usual.model,
        strict=usual.strict,
        tools=usual.tools if tools is None else tool_specs(tools, "tools"),
        starts_in=starts_in or usual.starts_in,
        prompt_tail=fields.get("prompt_tail") or "",
        reasoning_off=bool(fields.get("reasoning_off")),
        chunk=chunk,
        finish="length" if fields.get("partial") else usual.finish,
        repair=usual.repair,
    )
