"""Classifies a string for a dialect, and damages a grammar's frame."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Protocol

import jsonschema_rs
from grammar_sampler import Sampler
from grammar_tools import TOOLS

from toolspeak.data.messages import MalformedCall, Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import Dialect, Grammar, read_turn

Damage = tuple[int, int, str]
"""Where something is taken out of a text, up to where, and what comes in its place."""

_VALIDATORS = {tool.name: jsonschema_rs.validator_for(dict(tool.parameters)) for tool in TOOLS}


class Matcher(Protocol):
    """A grammar compiled for one of the libraries that models are served with."""

    def __call__(self, text: str) -> bool:
        """Whether this is a whole turn of the grammar."""
        ...

    def accepted_damages(self, text: str, damages: Sequence[Damage]) -> Iterator[str]:
        """Of the texts that result from replacing text[start:stop], each time one, those that are still accepted.

        The damages go from left to right; a matcher that has read so far takes each up from there.
        """
        ...


def problem(dialect: Dialect, text: str, mode: str = "auto") -> str:
    """What the dialect's own parser, or a tool's schema, has against a turn; empty if nothing."""
    turn = read_turn(dialect, text, TOOLS)
    if mode != "auto" and bool(turn.calls) != (mode != "none"):
        return f"{len(turn.calls)} calls under {mode}"
    if turn.forged_results:
        return f"forged results: {turn.forged_results}"
    if turn.ignored_calls:
        return f"ignored: {turn.ignored_calls}"
    for call in turn.calls:
        if isinstance(call, MalformedCall):
            if call.code == "duplicate_key":
                continue  # in an object with free keys: that the same one comes twice, no grammar can rule out
            is_quoted = call.code in ("quoted_call", "no_start") and mode == "auto"
            if is_quoted and reads_alone(dialect, text, len(turn.calls)):
                continue  # the free text in front makes an example of it, as the row of a table does
            return f"malformed: {call.code}: {call.reason}"
        if call.name not in _VALIDATORS:
            return f"unknown tool: {call.name}"
        error = next(iter(_VALIDATORS[call.name].iter_errors(dict(call.arguments))), None)
        if error is not None:
            return f"{call.name}: {error.message} at {list(error.instance_path)}"
    return ""


def reads_alone(dialect: Dialect, text: str, calls: int) -> bool:
    """Whether the calls of a turn are all read without the free text before them."""
    for at in range(len(text)):
        alone = read_turn(dialect, text[at:], TOOLS).calls
        codes = {call.code for call in alone if isinstance(call, MalformedCall)}
        if len(alone) >= calls and codes <= {"duplicate_key"}:
            return True
    return False


def render_calls(dialect: Dialect, calls: Sequence[ToolCall], tools: Sequence[ToolSpec] = TOOLS) -> str:
    return "\n".join(entry.text for entry in dialect.render([Message("assistant", tuple(calls))], tools))


def is_legal(dialect: Dialect, text: str) -> bool:
    """Whether this is a form of the dialect, if another one: its parser reads calls of known tools and nothing else,
    with valid arguments, and has nothing to be lenient about."""
    turn = read_turn(dialect, text, TOOLS)
    has_notes = turn.notes or any(isinstance(call, ToolCall) and call.notes for call in turn.calls)
    return bool(turn.calls) and not (problem(dialect, text) or turn.text.strip() or has_notes)


def unnoticed_damages(
    dialect: Dialect, grammar: Grammar, accepts: Matcher, *, strings: int = 1, each_place: int | None = None
) -> list[str]:
    """Strings of a grammar with one character of their frame damaged that are accepted nevertheless, and are no other
    form of the dialect. `each_place`: how many replacements and insertions of each place (default: all there are)."""
    texts: list[str] = []
    sampler = Sampler(grammar.definition, 5)
    for seed in range(strings):
        text, in_frame = sampler.sample(12)
        assert list(accepts.accepted_damages(text, [(0, 0, ""), (len(text), len(text), "")])) == [text, text]
        damages = list(_damages(text, in_frame, each_place, random.Random(seed)))
        texts += [each for each in accepts.accepted_damages(text, damages) if not is_legal(dialect, each)]
    return texts


def _damages(text: str, in_frame: Sequence[bool], each_place: int | None, rng: random.Random) -> Iterator[Damage]:
    """Every deletion in the frame, and replacements and insertions of the frame's own and some other characters;
    nothing is inserted at a value's edge, where it would be the value's."""
    alphabet = sorted({char for char, own in zip(text, in_frame, strict=True) if own} | set(' \n"x<'))
    for i, char in enumerate(text):
        if not in_frame[i]:
            continue
        yield i, i + 1, ""
        others = [each for each in alphabet if each != char]
        samples = others if each_place is None else rng.sample(others, min(each_place, len(others)))
        yield from ((i, i + 1, other) for other in samples)
        if i and in_frame[i - 1]:
            samples = others if each_place is None else rng.sample(others, min(each_place, len(others)))
            yield from ((i, i, other) for other in samples)
