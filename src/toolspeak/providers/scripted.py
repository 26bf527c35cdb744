"""A model that follows a playbook: for tests, demonstrations and examples without a network."""

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
"""How text is cut, in characters: every so many; in these sizes and the rest in one piece; not at all."""


@quick()
class ScriptedCall:
    """A native call of a playbook. `arguments` as a text is what the server sends in place of their JSON."""

    name: str
    arguments: Mapping[str, JSON] | str = field(default_factory=no_extra)
    id: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """One turn of a playbook. `error` is raised after `reasoning`, `text` and `calls` have been streamed.

    In `text`, `{{last}}` stands for the text of the last message (that of native results too) and `{{find:REGEX}}` for
    what REGEX finds, searching the messages from the newest back: in the first that matches, its last match (group 1 if
    REGEX has one). Braces in REGEX are balanced or escaped.
    """

    text: str
    finish: FinishReason = "stop"
    reasoning: str = ""
    usage: Usage | None = None
    chunk: Chunk = None
    error: ProviderError | None = None
    calls: Sequence[ScriptedCall] = ()


Turn: TypeAlias = str | ScriptedTurn | Callable[[Sequence[Message | TextMessage]], str | ScriptedTurn]

# `{{last}}` or `{{find:REGEX}}`; in REGEX escapes and balanced braces (`\d{3}`) are passed over.
_QUOTATION = re.compile(r"\{\{(?:last|find:((?:\\.|[^{}\\]|\{[^{}]*\})+))\}\}", re.DOTALL)


class ScriptedProvider:
    """Gives the turns of a playbook one after the other, whoever asks; a `Provider`.

    `chunk` is how a turn's text is cut unless the turn says so itself. `tool_role`: whether it plays a server that
    takes role `tool`; `tools`: one with native calls (None: if a turn has some); `capabilities` in place of both. With
    `follow` the turn is chosen by the conversation (the one after as many as the model has said in it), so that another
    process can go on with a run. `requests` are the requests so far.
    """

    def __init__(
        self,
        turns: Sequence[Turn],
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
                f"a scripted model has a list of turns, as in ScriptedProvider(['Hello.']), not {turns!r}"
            )
        self._turns = tuple(turns)
        for at, turn in enumerate(self._turns):
            if not isinstance(turn, str | ScriptedTurn) and not callable(turn):
                raise ConfigurationError(
                    f"turns[{at}]: expected a text, a ScriptedTurn or a function that makes one, not {turn!r}"
                )
        if tools is None:
            tools = any(isinstance(turn, ScriptedTurn) and turn.calls for turn in self._turns)
        self._chunk = chunk
        self._name = name
        self._capabilities = capabilities or Capabilities(tools=tools, tool_role=tool_role)
        self._follow = follow
        self.requests: list[ModelRequest] = []

    @classmethod
    def from_file(cls, path: str | Path) -> ScriptedProvider:
        """The playbook of a JSON file: `{"turns": ["text", {"text": …, "finish": …, "reasoning": …}], "chunk": 4}`,
        and `"follow": true` (see the class).

        A turn's other fields are those of `ScriptedTurn`: `usage` as an object, `error` as a message. Raises
        ConfigurationError naming the file and the place in it.
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
            read = [_read_turn(turn, f"turns[{i}]") for i, turn in enumerate(cast("list[Any]", turns))]
            chunk = _read_chunk(playbook.get("chunk"), "chunk")
            return cls(read, chunk=chunk, name=f"scripted:{path}", follow=playbook.get("follow") is True)
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None

    @classmethod
    def from_env(cls, path: str, environ: Mapping[str, str]) -> ScriptedProvider:
        """As `from_file`: what `get_provider` calls. Nothing of `environ` is used."""
        return cls.from_file(path)

    @property
    def name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def turns_left(self) -> int:
        """How many turns of the playbook were not asked for."""
        return max(0, len(self._turns) - len(self.requests))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        """The next turn. Raises ProviderError when the playbook has ended, or a quotation finds nothing;
        ConfigurationError for a function that makes no turn."""
        # Drivers add to a run's messages: what was asked is what there was.
        self.requests.append(replace(request, messages=list(request.messages)))
        number = len(self.requests)
        if self._follow:
            number = 1 + sum(message.role == "assistant" for message in request.messages)
        if number > len(self._turns):
            known = len(self._turns)
            raise ProviderError(f"{self._name}: turn {number} was asked for, and the playbook has {known}; add a turn")
        turn = self._turns[number - 1]
        if not isinstance(turn, str | ScriptedTurn):
            turn = _made(turn(request.messages), f"turns[{number - 1}]")
        if isinstance(turn, str):
            turn = ScriptedTurn(turn)
        text = _filled(turn.text, request.messages, f"{self._name}: turn {number}")
        chunk = self._chunk if turn.chunk is None else turn.chunk
        for kind, whole in ((ReasoningDelta, turn.reasoning), (TextDelta, text)):
            for piece in _cut(whole, chunk):
                await asyncio.sleep(0)  # others run meanwhile, as with a network: a place to be cancelled at
                yield kind(piece)
        finish: FinishReason = "tool_calls" if turn.calls and turn.finish == "stop" else turn.finish
        fragments = CallAssembler()
        for i, call in enumerate(turn.calls):
            (started,) = fragments.start(i, call.name, call.id)
            yield started
            arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(dict(call.arguments))
            for piece in _cut(arguments, chunk):
                await asyncio.sleep(0)
                for delta in fragments.add(i, piece):
                    yield delta
        if turn.error is not None:
            raise turn.error
        for delta in fragments.close(finish):
            yield delta
        yield TurnEnded(finish, turn.usage or Usage(), self._name)

    async def aclose(self) -> None:
        """Nothing is open."""


def _made(turn: object, place: str) -> str | ScriptedTurn:
    if isinstance(turn, str | ScriptedTurn):
        return turn
    if isinstance(turn, Coroutine):
        turn.close()
        raise ConfigurationError(
            f"{place}: its function gave a coroutine, expected a text or a ScriptedTurn: make it no `async def`"
        )
    raise ConfigurationError(f"{place}: its function gave {turn!r}, expected a text or a ScriptedTurn")


def _filled(text: str, messages: Sequence[Message | TextMessage], turn: str) -> str:
    def quoted(quotation: re.Match[str]) -> str:
        pattern: str | None = quotation.group(1)
        if pattern is None:
            if not messages:
                raise ProviderError(f"{turn} quotes {{{{last}}}}, and there is no message")
            return _text_of(messages[-1])
        try:
            regex = re.compile(pattern)
        except re.error as error:
            raise ProviderError(f"{turn}: {pattern!r} is no regular expression: {error}") from error
        for message in reversed(messages):
            matches = list(regex.finditer(_text_of(message)))
            if matches:
                return matches[-1].group(1 if regex.groups else 0) or ""
        raise ProviderError(f"{turn}: {pattern!r} matches nothing in the {len(messages)} messages")

    return _QUOTATION.sub(quoted, text)


def _text_of(message: Message | TextMessage) -> str:
    """The text of a message, and of the native results in it."""
    if isinstance(message, TextMessage):
        return message.text
    parts = [part for result in message.results for part in result.content]
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    values = [json.dumps(part.value, ensure_ascii=False) for part in parts if isinstance(part, JsonPart)]
    return "\n".join(filter(None, (message.text, *texts, *values)))


def _cut(text: str, chunk: Chunk) -> Iterator[str]:
    _check_chunk(chunk)
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
        raise ConfigurationError(f"chunk: sizes are characters from 1 up, not {chunk!r}")


# --- playbook files ----------------------------------------------------------------------------------------------


def _fields(value: Any, known: Sequence[str], place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{place}: expected an object")
    members = cast("dict[str, Any]", value)
    for name in members:
        if name not in known:
            raise ConfigurationError(f"{place}: unknown field {name!r}; known: {', '.join(known)}")
    return members


def _read_turn(value: Any, place: str) -> ScriptedTurn:
    if isinstance(value, str):
        return ScriptedTurn(value)
    if not isinstance(value, dict):
        raise ConfigurationError(f"{place}: expected text or an object")
    members = _fields(cast("dict[str, Any]", value), [each.name for each in fields(ScriptedTurn)], place)
    for name in ("text", "reasoning", "finish", "error"):
        if name in members and not isinstance(members[name], str):
            raise ConfigurationError(f"{place}.{name}: expected text")
    if not members.keys() & {"text", "calls", "error"}:
        raise ConfigurationError(f"{place}.text: missing")
    if members.get("finish", "stop") not in get_args(FinishReason):
        reasons = ", ".join(get_args(FinishReason))
        raise ConfigurationError(f"{place}.finish: {members['finish']!r} is none of: {reasons}")
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
            raise ConfigurationError(f"{place}[{i}]: expected a name and arguments, an object or the text of one")
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
        raise ConfigurationError(f"{place}: expected a number of characters from 1 up, or a list of such numbers")
    return cast("Chunk", value)
