"""A model that plays a script of turns, for tests, demonstrations and examples without a network."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeAlias, cast, get_args

from toolspeak.data.deltas import Delta, ReasoningDelta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON, FinishReason, JsonPart, Message, TextMessage, TextPart, Usage, no_extra
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, ProviderError
from toolspeak.providers.capabilities import Capabilities
from toolspeak.wire.base import ModelRequest
from toolspeak.wire.call_assembler import CallAssembler

Chunk: TypeAlias = int | Sequence[int] | None
"""How to cut a text, in characters: into chunks of one size; into chunks of these sizes and the rest; not at all."""


@quick()
class ScriptedCall:
    """A native call in a playbook."""

    name: str
    arguments: Mapping[str, JSON] | str = field(default_factory=no_extra)
    """A string is sent as it is; it need not be JSON."""
    id: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """One turn of a playbook."""

    text: str
    """`{{last}}` stands for the text of the last message, including native results. `{{find:REGEX}}` stands for the
    last match in the newest message that REGEX matches (group 1 if REGEX has one). Braces in REGEX are balanced or
    escaped."""
    finish: FinishReason = "stop"
    reasoning: str = ""
    usage: Usage | None = None
    chunk: Chunk = None
    error: ProviderError | None = None
    """Raised after `reasoning`, `text` and `calls` have been streamed."""
    calls: Sequence[ScriptedCall] = ()


ScriptEntry: TypeAlias = str | ScriptedTurn | Callable[[Sequence[Message | TextMessage]], str | ScriptedTurn]

# `{{last}}` or `{{find:REGEX}}`; REGEX may hold escapes and balanced braces (`\d{3}`).
_QUOTATION = re.compile(r"\{\{(?:last|find:((?:\\.|[^{}\\]|\{[^{}]*\})+))\}\}", re.DOTALL)


class ScriptedProvider:
    """A `Provider` that plays the turns of a playbook one after the other, for any request.

    `chunk`: how to cut the text of a turn without its own `chunk`.
    `tool_role`: whether it acts as a server that accepts the role `tool`.
    `tools`: whether it acts as a server with native calls. Default: if a turn has calls.
    `capabilities`: replaces both.
    `follow`: the number of assistant messages in the conversation selects the turn, so that another process can
    continue a run.
    """

    def __init__(
        self,
        turns: Sequence[ScriptEntry],
        *,
        chunk: Chunk = None,
        name: str = "scripted",
        tool_role: bool = False,
        tools: bool | None = None,
        capabilities: Capabilities | None = None,
        follow: bool = False,
    ) -> None:
        _check_chunk(chunk)
        if isinstance(turns, str) or not isinstance(cast("object", turns), Iterable):
            raise ConfigurationError(
                f"a scripted model needs a list of turns, as in ScriptedProvider(['Hello.']), not {turns!r}"
            )
        self._turns = tuple(turns)
        for at, turn in enumerate(self._turns):
            if not isinstance(turn, str | ScriptedTurn) and not callable(turn):
                raise ConfigurationError(
                    f"turns[{at}]: expected a string, a ScriptedTurn or a function that returns one, not {turn!r}"
                )
        if tools is None:
            tools = any(isinstance(turn, ScriptedTurn) and turn.calls for turn in self._turns)
        self._chunk = chunk
        self._name = name
        self._capabilities = capabilities or Capabilities(tools=tools, tool_role=tool_role)
        self._follow = follow
        self.requests: list[ModelRequest] = []
        """The requests so far."""

    @classmethod
    def from_file(cls, path: str | Path) -> ScriptedProvider:
        """Reads a playbook from a JSON file: `{"turns": ["text", {"text": …, "finish": …}], "chunk": 4}`.

        `"follow": true` is the class's `follow`. A turn has the fields of `ScriptedTurn`: `usage` is an object, `error`
        a message. Raises ConfigurationError with the file and the place in it.
        """
        try:
            book: Any = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigurationError(f"the playbook {path} cannot be read: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"the playbook {path} is not JSON: {error}") from error
        try:
            playbook = _fields(book, ("turns", "chunk", "follow"), "the playbook")
            turns = playbook.get("turns")
            if not isinstance(turns, list):
                raise ConfigurationError("turns: expected a list")
            script = [_read_turn(turn, f"turns[{i}]") for i, turn in enumerate(cast("list[Any]", turns))]
            chunk = _read_chunk(playbook.get("chunk"), "chunk")
            return cls(script, chunk=chunk, name=f"scripted:{path}", follow=playbook.get("follow") is True)
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None

    @classmethod
    def from_env(cls, path: str, environ: Mapping[str, str]) -> ScriptedProvider:
        """As `from_file`, for `get_provider`. `environ` is not used."""
        return cls.from_file(path)

    @property
    def name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def turns_left(self) -> int:
        """How many turns of the playbook have not been requested."""
        return max(0, len(self._turns) - len(self.requests))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        """The next turn. Raises ProviderError if the playbook has no more turns, or a quotation matches nothing;
        ConfigurationError if a function does not return a turn."""
        # A copy: drivers add to a run's messages.
        self.requests.append(replace(request, messages=list(request.messages)))
        number = len(self.requests)
        if self._follow:
            number = 1 + sum(message.role == "assistant" for message in request.messages)
        if number > len(self._turns):
            turn_count = len(self._turns)
            raise ProviderError(
                f"{self._name}: turn {number} was requested, and the playbook has {turn_count}; add a turn"
            )
        turn = self._turns[number - 1]
        if not isinstance(turn, str | ScriptedTurn):
            turn = _require_turn(turn(request.messages), f"turns[{number - 1}]")
        if isinstance(turn, str):
            turn = ScriptedTurn(turn)
        text = turn.text
        if "{{" in text:
            text = _fill_quotations(text, request.messages, f"{self._name}: turn {number}")
        chunk = self._chunk
        if turn.chunk is not None:
            _check_chunk(turn.chunk)
            chunk = turn.chunk
        for kind, whole in ((ReasoningDelta, turn.reasoning), (TextDelta, text)):
            for piece in _cut(whole, chunk):
                await asyncio.sleep(0)  # as with a network, other tasks run, and the turn can be cancelled
                yield kind(piece)
        finish: FinishReason = "tool_calls" if turn.calls and turn.finish == "stop" else turn.finish
        last: list[Delta] = []
        if turn.calls:
            fragments = CallAssembler()
            for i, call in enumerate(turn.calls):
                (start,) = fragments.start(i, call.name, call.id)
                yield start
                arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(dict(call.arguments))
                for piece in _cut(arguments, chunk):
                    await asyncio.sleep(0)
                    for delta in fragments.add(i, piece):
                        yield delta
            last = fragments.close(finish)
        if turn.error is not None:
            raise turn.error
        for delta in last:
            yield delta
        yield TurnEnded(finish, turn.usage or Usage(), self._name)

    async def aclose(self) -> None:
        """Does nothing: the provider has no connections."""


def _require_turn(turn: object, place: str) -> str | ScriptedTurn:
    if isinstance(turn, str | ScriptedTurn):
        return turn
    if isinstance(turn, Coroutine):
        turn.close()
        raise ConfigurationError(
            f"{place}: its function returned a coroutine, expected a string or a ScriptedTurn: write `def`, not "
            "`async def`"
        )
    raise ConfigurationError(f"{place}: its function returned {turn!r}, expected a string or a ScriptedTurn")


def _fill_quotations(text: str, messages: Sequence[Message | TextMessage], turn: str) -> str:
    def quotation_text(quotation: re.Match[str]) -> str:
        pattern: str | None = quotation.group(1)
        if pattern is None:
            if not messages:
                raise ProviderError(f"{turn} quotes {{{{last}}}}, and there is no message")
            return _text_of(messages[-1])
        try:
            regex = re.compile(pattern)
        except re.error as error:
            raise ProviderError(f"{turn}: {pattern!r} is not a regular expression: {error}") from error
        for message in reversed(messages):
            matches = list(regex.finditer(_text_of(message)))
            if matches:
                return matches[-1].group(1 if regex.groups else 0) or ""
        raise ProviderError(f"{turn}: {pattern!r} matches nothing in the {len(messages)} messages")

    return _QUOTATION.sub(quotation_text, text)


def _text_of(message: Message | TextMessage) -> str:
    """The text of a message and of its native results."""
    if isinstance(message, TextMessage):
        return message.text
    parts = [part for result in message.results for part in result.content]
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    values = [json.dumps(part.value, ensure_ascii=False) for part in parts if isinstance(part, JsonPart)]
    return "\n".join(filter(None, (message.text, *texts, *values)))


def _cut(text: str, chunk: Chunk) -> Iterator[str]:
    at = 0
    if isinstance(chunk, int):
        chunk = [chunk] * (len(text) // chunk)
    for size in chunk or ():
        if at >= len(text):
            return
        yield text[at : at + size]
        at += size
    if at < len(text):
        yield text[at:]


def _check_chunk(chunk: Chunk) -> None:
    sizes = (chunk,) if isinstance(chunk, int) else chunk or ()
    if any(size < 1 for size in sizes):
        raise ConfigurationError(f"chunk: a size must be at least 1 character, not {chunk!r}")


# --- playbook files ----------------------------------------------------------------------------------------------


def _fields(value: Any, allowed_fields: Sequence[str], place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{place}: expected an object")
    members = cast("dict[str, Any]", value)
    for name in members:
        if name not in allowed_fields:
            raise ConfigurationError(f"{place}: unknown field {name!r}; known: {', '.join(allowed_fields)}")
    return members


def _read_turn(value: Any, place: str) -> ScriptedTurn:
    if isinstance(value, str):
        return ScriptedTurn(value)
    if not isinstance(value, dict):
        raise ConfigurationError(f"{place}: expected a string or an object")
    members = _fields(cast("dict[str, Any]", value), [each.name for each in fields(ScriptedTurn)], place)
    for name in ("text", "reasoning", "finish", "error"):
        if name in members and not isinstance(members[name], str):
            raise ConfigurationError(f"{place}.{name}: expected a string")
    if not members.keys() & {"text", "calls", "error"}:
        raise ConfigurationError(f"{place}.text: missing")
    if members.get("finish", "stop") not in get_args(FinishReason):
        reasons = ", ".join(get_args(FinishReason))
        raise ConfigurationError(f"{place}.finish: unknown value {members['finish']!r}; known: {reasons}")
    turn = ScriptedTurn(
        members.get("text", ""),
        members.get("finish", "stop"),
        members.get("reasoning", ""),
        chunk=_read_chunk(members.get("chunk"), f"{place}.chunk"),
        calls=_read_calls(members.get("calls"), f"{place}.calls"),
    )
    if "error" in members:
        turn = replace(turn, error=ProviderError(members["error"]))
    if "usage" in members:
        turn = replace(turn, usage=_read_usage(members["usage"], f"{place}.usage"))
    return turn


def _read_calls(value: Any, place: str) -> tuple[ScriptedCall, ...]:
    if not isinstance(value, list | None):
        raise ConfigurationError(f"{place}: expected a list of calls")
    calls: list[ScriptedCall] = []
    for i, each in enumerate(cast("list[Any]", value or [])):
        call = _fields(each, [each.name for each in fields(ScriptedCall)], f"{place}[{i}]")
        if not isinstance(call.get("name"), str) or not isinstance(call.get("arguments", {}), dict | str):
            raise ConfigurationError(f"{place}[{i}]: expected a name, and arguments that are an object or a string")
        calls.append(ScriptedCall(**call))
    return tuple(calls)


def _read_usage(value: Any, place: str) -> Usage:
    counts = _fields(value, [each.name for each in fields(Usage)], place)
    for name, count in counts.items():
        if type(count) is not int:
            raise ConfigurationError(f"{place}.{name}: expected a number of tokens")
    return Usage(**counts)


def _read_chunk(value: Any, place: str) -> Chunk:
    sizes: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [] if value is None else [value]
    if any(type(size) is not int or size < 1 for size in sizes):
        raise ConfigurationError(f"{place}: expected a number of characters of at least 1, or a list of such numbers")
    return cast("Chunk", value)
