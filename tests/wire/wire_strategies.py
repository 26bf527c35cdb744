"""Conversations, tools, turns and cut streams for the tests of wire formats, made up by hypothesis.

What a format cannot say (that a result failed, say) is switched off with the arguments; texts hold no lone surrogates,
for every format replaces them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import httpx2
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallMalformed,
    CallStarted,
    Delta,
    PartEnded,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import (
    FinishReason,
    ImagePart,
    Message,
    Opaque,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.providers.http_client import Reply
from toolspeak.wire.base import ModelRequest, OutputSchema

# The first text that is made up waits a second or two for Unicode's tables.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

CHARACTERS = st.one_of(st.sampled_from(' \n\r\t\x00"\\{}[]:,</é😀\u2028'), st.characters(max_codepoint=0xD7FF))
TEXTS = st.text(CHARACTERS, min_size=1, max_size=12)
NAMES = st.sampled_from(["read", "write_file", "a-b", "x" * 64, "null", "0"])
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False), TEXTS
)
JSON_VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(TEXTS, JSON_VALUES, max_size=3)
OPTIONS = st.fixed_dictionaries(
    {}, optional={"temperature": st.sampled_from([0, 0.5, 1]), "seed": st.integers(0, 9), "user": TEXTS}
)


# --- tools -------------------------------------------------------------------------------------------------------

SCHEMAS = st.fixed_dictionaries(
    {
        "type": st.just("object"),
        "properties": st.dictionaries(
            st.sampled_from(["path", "n", "é"]),
            st.sampled_from([{"type": "string"}, {"type": "integer", "description": "a number"}, {}, {"enum": [1]}]),
            max_size=2,
        ),
    },
    optional={"additionalProperties": st.booleans(), "required": st.just(["path"])},
)
TOOLS = st.builds(ToolSpec, NAMES, st.sampled_from(["", "Reads a file.", 'é "quoted"\n']), SCHEMAS)
TOOL_SETS = st.lists(TOOLS, max_size=3, unique_by=lambda tool: tool.name).map(tuple)


@st.composite
def choices(draw: st.DrawFn, tools: Sequence[ToolSpec]) -> ToolChoice:
    """What may be asked of these tools: `auto` alone if there are none."""
    if not tools:
        return ToolChoice()
    if draw(st.booleans()):
        return ToolChoice(draw(st.sampled_from(["auto", "required", "none"])))
    return ToolChoice("specific", draw(st.sampled_from(tools)).name)


# --- conversations -----------------------------------------------------------------------------------------------

IMAGES = st.one_of(
    st.builds(ImagePart, st.sampled_from(["image/png", "image/jpeg"]), st.binary(min_size=1, max_size=6)),
    st.sampled_from(["https://example.org/a.png", "http://x/ü?q=1"]).map(lambda url: ImagePart("image/*", url=url)),
)


def user_messages(*, images: bool = True) -> st.SearchStrategy[Message]:
    """A text, or texts and images in any order, never empty."""
    parts = TEXTS.map(TextPart)
    several = st.lists(parts | IMAGES if images else parts, min_size=1, max_size=3)
    return several.map(lambda parts: Message("user", tuple(parts)))


@st.composite
def assistant_messages(
    draw: st.DrawFn, ids: Sequence[str], *, opaque: Opaque | None, provider_ids: bool = True
) -> Message:
    """Reasoning (signed, if there is `opaque`), a text, and a call for each id, in this order; never empty.

    `provider_ids`: whether a call has its own id from the API it came from.
    """
    parts: list[Part] = []
    if opaque is not None and draw(st.booleans()):
        parts.append(ReasoningPart(draw(TEXTS), opaque))
    if not ids or draw(st.booleans()):
        parts.append(TextPart(draw(TEXTS)))
    parts += [ToolCall(each, draw(NAMES), draw(ARGUMENTS), each if provider_ids else None) for each in ids]
    return Message("assistant", tuple(parts))


@st.composite
def results_of(draw: st.DrawFn, message: Message, *, failures: bool = True, images: bool = True) -> Message:
    """A result for each call of an assistant's message."""
    results: list[ToolResult] = []
    for call in message.calls:
        content: tuple[Any, ...] = (TextPart(draw(TEXTS)),)
        if images and draw(st.integers(0, 4)) == 0:
            content += (draw(IMAGES),)
        result = ToolResult(call.id, call.name or "", "success", content)
        if failures and draw(st.booleans()):
            result = replace(result, status="failure", code="exception")
        results.append(result)
    return Message("tool", tuple(results))


@st.composite
def conversations(
    draw: st.DrawFn,
    *,
    opaque: Opaque | None = None,
    images: bool = True,
    result_images: bool = True,
    failures: bool = True,
    provider_ids: bool = True,
) -> list[Message]:
    """System messages, and then steps of user, assistant and results; every call has its result.

    `opaque` goes with every reasoning; without it there is no reasoning.
    """
    messages = draw(st.lists(TEXTS.map(Message.system), max_size=1))
    messages.append(draw(user_messages(images=images)))
    for step in range(draw(st.integers(0, 3))):
        ids = [f"call_{step}_{i}" for i in range(draw(st.integers(0, 3)))]
        message = draw(assistant_messages(ids, opaque=opaque, provider_ids=provider_ids))
        messages.append(message)
        if ids:
            messages.append(draw(results_of(message, failures=failures, images=result_images)))
        else:
            messages.append(draw(user_messages(images=images)))
    return messages


@st.composite
def requests(draw: st.DrawFn, *, output: bool = True, parallel: bool = True, **conversation: Any) -> ModelRequest:
    """A whole request; `conversation` are the arguments of `conversations`."""
    tools = draw(TOOL_SETS)
    return ModelRequest(
        draw(conversations(**conversation)),
        tools,
        draw(choices(tools)),
        draw(st.sampled_from([None, True, False])) if parallel and tools else None,
        draw(st.none() | st.builds(OutputSchema, st.just("answer"), SCHEMAS, st.booleans())) if output else None,
        draw(OPTIONS),
    )


# --- turns -------------------------------------------------------------------------------------------------------

USAGES = st.one_of(
    st.just(Usage()),
    st.builds(Usage, st.integers(100, 999), st.integers(100, 999)),
    st.builds(Usage, st.integers(100, 999), st.integers(100, 999), st.integers(0, 99), st.integers(0, 99)),
)


@st.composite
def cut(draw: st.DrawFn, text: str) -> list[str]:
    """The text in pieces that are not empty."""
    places = sorted(draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=4)))
    edges = [0, *(place for place in places if place < len(text)), len(text)]
    return [text[start:stop] for start, stop in itertools.pairwise(edges) if start < stop]


@st.composite
def turns(
    draw: st.DrawFn,
    *,
    opaque: Opaque | None = None,
    model: str | None = "m-1",
    response_id: str | None = None,
    usage: st.SearchStrategy[Usage] = USAGES,
    interleaved: bool = False,
) -> list[Delta]:
    """The deltas of a turn: reasoning (ended with `opaque`, if there is any), text, calls, `TurnEnded`.

    The finish reason fits: `tool_calls` if there are calls, else `stop`, `length` or `content_filter`. `interleaved`:
    the fragments of two calls may come in turns.
    """
    deltas: list[Delta] = []
    if draw(st.booleans()):
        deltas += [ReasoningDelta(piece) for piece in draw(cut(draw(TEXTS)))]
        if opaque is not None:
            deltas.append(PartEnded("reasoning", opaque))
    if draw(st.booleans()):
        deltas += [TextDelta(piece) for piece in draw(cut(draw(TEXTS)))]
    calls = draw(st.lists(st.tuples(NAMES, ARGUMENTS), max_size=3))
    streams: list[list[Delta]] = []
    ends: list[Delta] = []
    for index, (name, arguments) in enumerate(calls):
        call_id = f"call_{index}"
        text = json.dumps(arguments, ensure_ascii=draw(st.booleans()))
        streams.append([ArgumentsDelta(index, piece) for piece in draw(cut(text))])
        streams[-1].insert(0, CallStarted(index, name, call_id))
        ends.append(CallCompleted(index, name, arguments, call_id))
    if interleaved:
        deltas += _in_turns(streams)
    else:
        deltas += [delta for each in streams for delta in each]
    deltas += ends
    finish: FinishReason = "tool_calls"
    if calls:
        deltas.append(BatchEnded(tuple(range(len(calls))), True))
    else:
        finish = draw(st.sampled_from(["stop", "length", "content_filter"]))
    return [*deltas, TurnEnded(finish, draw(usage), model, response_id)]


def _in_turns(streams: list[list[Delta]]) -> list[Delta]:
    """The starts in order, then a fragment of each call in turn."""
    starts = [each[0] for each in streams]
    longest = max((len(each) for each in streams), default=0)
    return starts + [each[i] for i in range(1, longest) for each in streams if i < len(each)]


def per_call(deltas: Iterable[Delta]) -> list[Delta]:
    """The deltas with all of a call that was begun right behind its `CallStarted`: its arguments and its end.

    For comparing turns whose calls came in turns: joined, the deltas of each call are in order all the same.
    """
    out: list[Delta] = []
    fragments: dict[int, list[Delta]] = {}
    for delta in deltas:
        if isinstance(delta, ArgumentsDelta) or (
            isinstance(delta, CallCompleted | CallMalformed) and delta.index in fragments
        ):
            fragments[delta.index].append(delta)
            continue
        out.append(delta)
        if isinstance(delta, CallStarted):
            out.append(delta)  # the place of its fragments
            fragments[delta.index] = []
    deltas: list[Delta] = []
    for i, delta in enumerate(out):
        if isinstance(delta, CallStarted) and i and out[i - 1] is delta:
            deltas += fragments[delta.index]
        else:
            deltas.append(delta)
    return deltas


# --- streams of bytes --------------------------------------------------------------------------------------------


@st.composite
def byte_pieces(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The bytes in pieces: cut at a few places, or at every byte."""
    if draw(st.integers(0, 4)) == 0:
        return [data[i : i + 1] for i in range(len(data))]
    places = sorted(draw(st.sets(st.integers(0, len(data)), max_size=6)))
    edges = [0, *places, len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(edges) if start < stop]


async def _events(pieces: Sequence[bytes], last: str) -> list[Any]:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    response = httpx2.Response(
        200, headers={"content-type": "text/event-stream"}, content=body(), request=httpx2.Request("POST", "http://x")
    )
    async with aclosing(Reply(response).events(last)) as events:
        return [json.loads(event) async for event in events]


def read_sse(pieces: Sequence[bytes], last: str = "[DONE]") -> list[Any]:
    """The JSON of each event in a stream that comes in these pieces, as the providers read it, up to the one `last`."""
    return asyncio.run(_events(pieces, last))


def sse(frames: Iterable[tuple[str | None, Any]]) -> bytes:
    """Frames of a server's encoder as server-sent events."""
    out: list[str] = []
    for name, data in frames:
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        out.append(("" if name is None else f"event: {name}\n") + f"data: {text}\n\n")
    return "".join(out).encode()
