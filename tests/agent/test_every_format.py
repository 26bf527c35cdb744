"""One task of twelve steps over every wire format and in every text dialect: the conversation is the same."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from toolspeak import Agent, tool
from toolspeak.agent import Driver, NativeDriver, TextDriver
from toolspeak.data.deltas import ArgumentsDelta, BatchEnded, CallCompleted, CallStarted, Delta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON, Message, TextMessage, ToolCall, ToolChoice, Usage
from toolspeak.dialects import DIALECTS, Dialect
from toolspeak.dialects.prompt import choice_text
from toolspeak.errors import ToolError
from toolspeak.providers import Capabilities, ModelRequest
from toolspeak.testing import chunks
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import WireFormat
from toolspeak.wire.gemini import GEMINI
from toolspeak.wire.ollama import OLLAMA
from toolspeak.wire.openai_chat import OPENAI_CHAT
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

FORMATS: dict[str, Any] = {each.name: each for each in (OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC, GEMINI, OLLAMA)}


@tool(read_only=True)
def look(path: str, line: int = 1) -> str:
    """Reads a line of a file."""
    if path == "missing":
        raise ToolError("there is no such file")
    return f'{path}, line {line}: é < 3 & "4"'


@tool()
def put(path: str, content: str, tags: list[str], options: dict[str, bool]) -> dict[str, Any]:
    """Writes a file."""
    return {"path": path, "size": len(content), "tags": tags, "options": options}


TOOLS = [look, put]

STEPS: list[tuple[str, str, dict[str, JSON]]] = [
    ("Let me look.", "look", {"path": "a"}),
    ("", "look", {"path": "missing"}),
    ("There it is not.", "look", {"path": "b", "line": 2}),
    ("", "put", {"path": "c", "content": 'one\n\ttwo "quoted" \\ é😀', "tags": [], "options": {}}),
    ("Now more.", "put", {"path": "d", "content": "", "tags": ["x", "y z"], "options": {"force": True}}),
    ("", "look", {"path": "c", "line": 3}),
    ("", "look", {"path": "d"}),
    ("Again.", "look", {"path": "e", "line": 40}),
    ("", "put", {"path": "f", "content": "<b>&amp;</b>", "tags": ["<", "]]"], "options": {"a": False}}),
    ("Nearly.", "look", {"path": "missing", "line": 7}),
    ("", "look", {"path": "f", "line": 8}),
    ("", "put", {"path": "g", "content": "last", "tags": ["end"], "options": {"b": True}}),
]
ANSWER = "All twelve steps are done."


@dataclass
class Server:
    """A model behind a server that speaks one format: reads what the client encodes, streams what it encodes itself."""

    wire: WireFormat
    streamed: bool
    capabilities: Capabilities = Capabilities(tools=True)
    histories: list[Sequence[Message | TextMessage]] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.wire.name}:model"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        body = json.loads(json.dumps(self.wire.encode_request(request, model="model", stream=self.streamed)))
        self.bodies.append(body)
        wire_request = self.wire.decode_request(body)
        wire_request = replace(wire_request, model="model", stream=self.streamed)
        self.histories.append(wire_request.request.messages)
        turn = native_turn(len(self.histories) - 1)
        if not self.streamed:
            answer = self.wire.encode_response(turn, model="model", response_id="r", created_at=0)
            for delta in self.wire.decode_response(json.loads(json.dumps(answer)), model="model"):
                yield delta
            return
        encoder = self.wire.encoder(wire_request, response_id="r", created_at=0)
        decoder = self.wire.decoder(model="model")
        for delta in turn:
            for _, data in encoder.feed(delta):
                if isinstance(data, str):
                    continue  # `[DONE]`
                for read in decoder.feed(json.loads(json.dumps(data))):
                    yield read
        for read in decoder.close():
            yield read

    async def aclose(self) -> None:
        pass


def native_turn(step: int) -> list[Delta]:
    usage = Usage(10 + step, 5, 2, 1)
    if step == len(STEPS):
        return [*map(TextDelta, chunks(ANSWER, 5)), TurnEnded("stop", usage)]
    text, name, arguments = STEPS[step]
    deltas = [TextDelta(piece) for piece in chunks(text, 5)]
    pieces = [ArgumentsDelta(0, piece) for piece in chunks(json.dumps(arguments), 7)]
    call = [CallStarted(0, name, f"id_{step}"), *pieces, CallCompleted(0, name, arguments, f"id_{step}")]
    return [*deltas, *call, BatchEnded((0,), ok=True), TurnEnded("tool_calls", usage)]


@dataclass
class Writer:
    """A model whose calls are text."""

    dialect: Dialect
    step: int = 0
    name: str = "writer"
    capabilities: Capabilities = Capabilities()
    bodies: list[Any] = field(default_factory=list)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        self.bodies.append(OPENAI_CHAT.encode_request(request, model="model", stream=True))
        step, self.step = self.step, self.step + 1
        turn_text = ANSWER
        if step < len(STEPS):
            text, name, arguments = STEPS[step]
            parts = [Message.assistant(text).parts[0]] if text else []
            message = Message("assistant", (*parts, ToolCall(f"call_{step}", name, arguments)))
            turn_text = "".join(each.text for each in self.dialect.render([message], SPECS))
        for piece in chunks(turn_text, 6):
            yield TextDelta(piece)
        yield TurnEnded("stop", Usage(10, 5))

    async def aclose(self) -> None:
        pass


SPECS = [each.spec for each in TOOLS]


def projection(messages: Sequence[Message]) -> list[Any]:
    """What was said, called and found, whoever says it how."""
    return [
        (
            message.role,
            message.text.strip(),
            [(call.name, dict(call.arguments)) for call in message.calls if isinstance(call, ToolCall)],
            [(result.name, result.status, result.text, result.structured) for result in message.results],
        )
        for message in messages
    ]


def run(driver: Driver, choice: str = "auto") -> Any:
    agent = Agent(driver, TOOLS, approve="all", instructions="Be exact.", tool_choice=choice)
    result = agent.run_sync("Do the twelve steps.")
    assert (result.status, result.answer) == ("answered", ANSWER)
    return result


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    rows = projection(run(NativeDriver(Server(OPENAI_CHAT, streamed=True))).messages)
    calls = [call for _, _, calls, _ in rows for call in calls]
    assert calls == [(name, arguments) for _, name, arguments in STEPS]
    assert len(rows) == 2 + 2 * len(STEPS)
    return rows


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wire", FORMATS.values(), ids=list(FORMATS))
def test_over_every_wire_format(wire, streamed, expected):
    server = Server(wire, streamed)
    result = run(NativeDriver(server))
    assert projection(result.messages) == expected
    assert result.usage.output == 5 * 13


@pytest.mark.parametrize("wire", FORMATS.values(), ids=list(FORMATS))
def test_the_server_reads_what_was_said(wire, expected):
    """Every request holds the conversation so far: what the client encodes and the server decodes is the same."""
    server = Server(wire, streamed=True)
    run(NativeDriver(server))
    last = [message for message in server.histories[-1] if isinstance(message, Message)]
    rows = [(role, text, calls) for role, text, calls, _ in projection(last) if role == "assistant"]
    assert rows == [(role, text, calls) for role, text, calls, _ in expected[:-1] if role == "assistant"]
    results = [(result.name, result.text) for message in last for result in message.results]
    assert [name for name, _ in results] == [name for _, name, _ in STEPS] or wire is OPENAI_RESPONSES
    assert "there is no such file" in results[1][1]
    assert len(results) == 12


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_in_every_dialect(dialect, expected):
    assert projection(run(TextDriver(Writer(dialect), dialect)).messages) == expected


def assert_stable(bodies: list[Any]) -> None:
    """What a server has read it reads again, byte by byte: all but the conversation, and that from its beginning."""
    assert len(bodies) == len(STEPS) + 1
    fields = [next(name for name in ("messages", "contents", "input") if name in body) for body in bodies]
    pairs = list(zip(bodies, fields, strict=True))
    stable_bodies = [json.dumps({key: value for key, value in body.items() if key != name}) for body, name in pairs]
    assert len(set(stable_bodies)) == 1
    assert "Reads a line of a file." in json.dumps(bodies[0])
    # Where a prompt is cached is marked at its end, which moves on.
    texts = [json.dumps(body[name]).replace(MARK, "")[:-1] for body, name in pairs]
    for before, after in itertools.pairwise(texts):
        assert after.startswith(before)
        assert len(after) > len(before)


MARK = ', "cache_control": {"type": "ephemeral"}'


@pytest.mark.parametrize("choice", ["auto", "required", "look"])
@pytest.mark.parametrize("wire", FORMATS.values(), ids=list(FORMATS))
def test_the_prompt_and_the_tools_stay_the_same_from_step_to_step(wire, choice):
    has_choice = wire is not OLLAMA  # it has no tool choice: the first turn is asked for it in words, at its end
    capabilities = Capabilities(tools=True, tool_choice=has_choice, cache_markers=wire is ANTHROPIC)
    server = Server(wire, streamed=True, capabilities=capabilities)
    run(NativeDriver(server), choice)
    question = server.bodies[0]["messages"][-1] if wire is OLLAMA else {}
    if question and choice != "auto":
        task, _, hint = question["content"].partition("\n\n")
        assert hint == choice_text(ToolChoice.of(choice), SPECS)
        question["content"] = task
    for body in server.bodies:  # the one thing that may change: what the first turn is held to
        for name in ("tool_choice", "toolConfig"):
            body.pop(name, None)
    if wire is ANTHROPIC:
        assert all(MARK in json.dumps(body["system"]) + json.dumps(body["tools"]) for body in server.bodies)
    assert_stable(server.bodies)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_in_every_dialect_too(dialect):
    writer = Writer(dialect)
    run(TextDriver(writer, dialect))
    assert_stable(writer.bodies)


def test_a_conversation_goes_from_one_to_the_next():
    """Each of five formats and a dialect answers once, with all that was said before."""
    history: Sequence[Message] = ()
    for wire in FORMATS.values():
        server = Server(wire, streamed=True)
        result = Agent(NativeDriver(server), TOOLS, approve="all").run_sync("Do the twelve steps.", history=history)
        assert result.answer == ANSWER
        assert len(server.histories[-1]) >= len(history)
        history = result.messages
    result = Agent(TextDriver(Writer(DIALECTS[0]), DIALECTS[0]), TOOLS, approve="all").run_sync("?", history=history)
    assert result.answer == ANSWER
    assert len(result.messages) == 6 * (2 + 2 * len(STEPS))
