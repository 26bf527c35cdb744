"""`toolspeak parse`: what the runtime sees in a reply."""

from __future__ import annotations

from typing import Any, Literal

import click

from toolspeak.cli.options import (
    chosen_dialect,
    dialect_option,
    finish_option,
    read_reply,
    read_tools,
    repair_option,
    starts_in_option,
    write_json,
)
from toolspeak.data.messages import MalformedCall, ToolCall
from toolspeak.dialects import ParsedTurn, Section, read_turn


@click.command
@dialect_option
@click.option("--tools", "tools_file", metavar="FILE", help="The tools as JSON; they give XML values their types.")
@starts_in_option
@finish_option
@repair_option
def parse(
    dialect: str, tools_file: str | None, starts_in: Section, finish: Literal["stop", "length"], repair: bool
) -> None:
    """Read one model reply from standard input and print what the runtime sees in it, as JSON."""
    chosen = chosen_dialect(dialect, repair)
    turn = read_turn(chosen, read_reply(), read_tools(tools_file), finish=finish, starts_in=starts_in)
    write_json(describe(turn))


def describe(turn: ParsedTurn) -> dict[str, Any]:
    """A turn as `toolspeak parse` prints it."""
    calls = [_call(call) for call in turn.calls if isinstance(call, ToolCall)]
    malformed = [_malformed(call) for call in turn.calls if isinstance(call, MalformedCall)]
    ignored = [
        {**(_call(entry.call) if isinstance(entry.call, ToolCall) else _malformed(entry.call)), "ignored": entry.reason}
        for entry in turn.ignored
    ]
    return {
        "content": turn.text,
        "reasoning": turn.reasoning,
        "calls": calls,
        "malformed": malformed,
        "ignored": ignored,
        "forged": list(turn.forged),
        "notes": list(turn.notes),
    }


def _call(call: ToolCall) -> dict[str, Any]:
    described: dict[str, Any] = {"name": call.name, "arguments": call.arguments, "id": call.provider_id or call.id}
    if call.notes:
        described["notes"] = list(call.notes)
    return described if call.repaired_from is None else {**described, "repaired_from": call.repaired_from}


def _malformed(call: MalformedCall) -> dict[str, Any]:
    return {"raw": call.raw, "code": call.code, "reason": call.reason, "name": call.name}
