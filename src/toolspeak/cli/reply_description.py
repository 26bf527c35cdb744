"""Parses one model reply, and describes it as `toolspeak parse` prints it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from toolspeak.cli.options.command_options import chosen_dialect
from toolspeak.data.deltas import ArgumentsDelta, CallStarted, Delta, TurnEnded
from toolspeak.data.messages import MalformedCall, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects import Dialect, ParsedTurn, Section, TurnCollector, open_parser, section_of_reply

ReplyEnd = Literal["stop", "length"]


@quick()
class ReplyToRead:
    """One reply to parse. Without `starts_in` and `prompt_tail` its text decides where it starts."""

    text: str
    dialect: str | None = None
    model: str | None = None
    strict: bool = False
    tools: tuple[ToolSpec, ...] = ()
    starts_in: Section | None = None
    prompt_tail: str = ""
    reasoning_off: bool = False
    chunk: int | None = None
    """Characters of each chunk; None is the whole text at once."""
    finish: ReplyEnd = "stop"
    repair: bool = False


def read(reply: ReplyToRead) -> dict[str, Any]:
    """Parses a reply, and returns its description as JSON. Raises UnknownDialect, and ConfigurationError for `repair`
    or `strict` with a dialect that does not support it."""
    dialect = chosen_dialect(reply.dialect, model=reply.model, strict=reply.strict, repair=reply.repair)
    collector = TurnCollector(_call_id)
    fragments: dict[str, _CallFragments] = {}
    for delta in _deltas(dialect, reply):
        collector.add(delta)
        match delta:
            case CallStarted(index, name, id):
                fragments[_call_id(index)] = _CallFragments(name, id, [])
            case ArgumentsDelta(index, text):
                fragments[_call_id(index)].arguments.append(text)
            case _:
                pass
    turn = collector.turn()
    return {**_describe(turn, fragments), "dialect": turn.dialect or dialect.name}


def _deltas(dialect: Dialect, reply: ReplyToRead) -> Iterator[Delta]:
    starts_in = reply.starts_in or "text"
    if not reply.starts_in and not reply.prompt_tail:
        starts_in = section_of_reply(dialect, reply.text, reply.tools)
    parser = open_parser(
        dialect,
        reply.tools,
        starts_in=starts_in,
        prompt_tail=reply.prompt_tail,
        keep_reasoning=reply.reasoning_off,
    )
    size = reply.chunk or max(len(reply.text), 1)
    for start in range(0, len(reply.text), size):
        yield from parser.feed(reply.text[start : start + size])
    yield from parser.close(reply.finish)
    yield TurnEnded(reply.finish)


def _call_id(index: int) -> str:
    return f"call_{index}"


@quick()
class _CallFragments:
    """A call, which may be incomplete."""

    name: str
    id: str | None
    arguments: list[str]
    """Fragments of JSON text."""


def _describe(turn: ParsedTurn, fragments: Mapping[str, _CallFragments]) -> dict[str, Any]:
    ignored_parts = [{**_call(entry.call, fragments), "ignored": entry.reason} for entry in turn.ignored_calls]
    if turn.aside.strip():
        ignored_parts.append({"text": turn.aside, "ignored": "text after the calls"})
    return {
        "content": turn.text,
        "reasoning": turn.reasoning,
        "calls": [_call(call, fragments) for call in turn.calls if isinstance(call, ToolCall)],
        "malformed": [_call(call, fragments) for call in turn.calls if isinstance(call, MalformedCall)],
        "ignored": ignored_parts,
        "forged": list(turn.forged_results),
        "notes": list(turn.notes),
    }


def _call(call: ToolCall | MalformedCall, fragments: Mapping[str, _CallFragments]) -> dict[str, Any]:
    """Describes a call. The arguments of a malformed one are the JSON text so far."""
    if isinstance(call, ToolCall):
        description: dict[str, Any] = {
            "name": call.name,
            "arguments": call.arguments,
            "id": call.provider_id or call.id,
        }
        if call.notes:
            description["notes"] = list(call.notes)
        return description if call.repaired_from is None else {**description, "repaired_from": call.repaired_from}
    description = {"raw": call.raw, "code": call.code, "reason": call.reason, "name": call.name}
    fragment = fragments.get(call.id)
    if fragment is None:
        return description
    arguments = "".join(fragment.arguments)
    return {**description, "name": fragment.name, "arguments": arguments, "id": fragment.id or call.id}
