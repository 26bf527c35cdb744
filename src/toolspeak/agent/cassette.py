"""A run in a file: the model's turns and the tools' results, recorded once and played again without either."""

from __future__ import annotations

import asyncio
import json
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from toolspeak.agent.cassette_lines import (
    ERROR_FIELDS,
    KIND,
    VERSION,
    bare,
    delta_json,
    delta_of,
    is_cassette,
    plain,
    read_lines,
    without_secrets,
)
from toolspeak.agent.cassette_requests import completed, differences, digest_of, request_json, shortened
from toolspeak.agent.driver import Driver
from toolspeak.data.codec import dump, load
from toolspeak.data.deltas import Delta, TurnEnded
from toolspeak.data.messages import JSON, ToolCall, ToolResult
from toolspeak.errors import AgentStop, FormatError, ProviderError, ReplayDiverged, UsageError
from toolspeak.execute import Secrets, Taped
from toolspeak.providers import get_provider
from toolspeak.providers.base import Provider
from toolspeak.providers.capabilities import Capabilities
from toolspeak.wire.base import ModelRequest

_AGAIN = "If the change is meant, record the run again"


class Cassette(ABC):
    """`Agent(cassette=Cassette.record("run.jsonl"))`, and later `Agent(cassette=Cassette.replay("run.jsonl"))`.

    It goes with one agent, whose runs come one after the other. Approvals and interceptors are not part of it: they
    act again. Implements `Tape`.
    """

    @classmethod
    def record(cls, path: str | Path) -> Cassette:
        """Writes a new recording, in place of one that is there. Raises UsageError for a file that is something
        else."""
        return _Recorder(Path(path))

    @classmethod
    def replay(cls, path: str | Path) -> Cassette:
        """Plays a recording: no model is asked and no tool's function is called. Whatever model the agent is given, it
        is the one that was recorded. Raises UsageError for a file that is no recording, naming the line."""
        return _Player(Path(path))

    @property
    @abstractmethod
    def replays(self) -> bool: ...

    @property
    @abstractmethod
    def left(self) -> int:
        """How many of the recorded requests have not been asked."""

    @property
    @abstractmethod
    def model(self) -> str:
        """The provider that is recorded, as `provider:model`; "" as long as there is none."""

    @abstractmethod
    def attach(self, model: str | Provider | Driver, secrets: Secrets) -> Provider:
        """The provider through which the agent reaches its model. Raises UsageError for a second agent, and for a
        Driver, which has requests of its own."""

    @abstractmethod
    def play(self, call: ToolCall) -> Taped: ...

    @abstractmethod
    def recalled(self, call: ToolCall) -> ToolResult | None: ...

    @abstractmethod
    def keep(self, call: ToolCall, taped: Taped) -> None: ...


# --- recording ---------------------------------------------------------------------------------------------------


class _Recorder(Cassette):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._secrets = Secrets()
        self._before: dict[str, JSON] | None = None
        self._turns = 0
        self._model = ""
        try:
            if path.exists() and path.stat().st_size and not is_cassette(path):
                raise UsageError(f"{path}: holds something else than a recording; name another file to record to")
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}") from None

    @property
    def replays(self) -> bool:
        return False

    @property
    def left(self) -> int:
        return 0

    @property
    def model(self) -> str:
        return self._model

    def attach(self, model: str | Provider | Driver, secrets: Secrets) -> Provider:
        if self._model:
            raise UsageError(f"{self._path}: is recorded by another agent; give each a cassette of its own")
        if not isinstance(model, str) and hasattr(model, "turn"):
            raise UsageError("a cassette records a provider's turns: give the agent a model's name or a Provider")
        found = cast("Provider", get_provider(model, os.environ) if isinstance(model, str) else model)
        self._secrets, self._model = secrets, found.name
        head = {KIND: VERSION, "provider": found.name, "capabilities": asdict(found.capabilities)}
        self._write(head, new=True)
        return _Recorded(found, self)

    def play(self, call: ToolCall) -> Taped:
        raise NotImplementedError("nothing is played while it is recorded")

    def recalled(self, call: ToolCall) -> ToolResult | None:
        return None

    def keep(self, call: ToolCall, taped: Taped) -> None:
        result = bare(dump(taped.result))
        line: dict[str, JSON] = {"call": call.id, "name": call.name, "arguments": call.arguments, "result": result}
        if taped.stop is not None:
            line["stop"] = {"message": str(taped.stop), "answer": taped.stop.answer}
        if taped.recalled:
            line["recalled"] = True
        self._write(line)

    def turn(self, request: ModelRequest, answer: Sequence[Delta], error: ProviderError | None) -> None:
        asked = plain(self._secrets.hide(plain(request_json(request))))
        self._turns += 1
        line: dict[str, JSON] = {
            "turn": self._turns,
            "asked": shortened(asked, self._before),
            "digest": digest_of(asked),
            "answer": [delta_json(delta) for delta in without_secrets(answer, self._secrets)],
        }
        if error is not None:
            line["error"] = {name: getattr(error, name) for name in ERROR_FIELDS} | {"message": str(error)}
        self._before = asked
        self._write(line)

    def _write(self, line: Mapping[str, JSON], *, new: bool = False) -> None:
        hidden = self._secrets.hide(plain(line))
        try:
            data = json.dumps(hidden, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # a lone surrogate
            data = json.dumps(hidden).encode()
        try:
            with self._path.open("wb" if new else "ab") as file:
                file.write(data + b"\n")
        except OSError as error:
            raise UsageError(f"{self._path}: cannot be recorded to: {error.strerror or error}") from None


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A provider whose turns are recorded."""

    provider: Provider
    recorder: _Recorder

    @property
    def name(self) -> str:
        return self.provider.name

    @property
    def capabilities(self) -> Capabilities:
        return self.provider.capabilities

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        # Drivers add to a run's messages: those that were asked are these.
        asked, answer, failed = replace(request, messages=list(request.messages)), list[Delta](), None
        try:
            async with aclosing(cast("AsyncGenerator[Delta]", self.provider.stream(request))) as stream:
                async for delta in stream:
                    answer.append(delta)
                    yield delta
        except ProviderError as error:
            failed = error
            raise
        finally:  # a driver need not read to the end
            self.recorder.turn(asked, answer, failed)

    async def aclose(self) -> None:
        await self.provider.aclose()


# --- replaying ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Turn:
    asked: dict[str, JSON]
    digest: str
    answer: tuple[Delta, ...]
    error: ProviderError | None


class _Player(Cassette):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._secrets = Secrets()
        self._turns: list[_Turn] = []
        # By the call's id: a cassette may hold several runs, and in each a call of this id.
        self._results: dict[str, deque[tuple[str, JSON, Taped]]] = {}
        self._asked = 0
        lines = read_lines(path)
        try:
            head = lines[0]
            self._model: str = head["provider"]
            known = {each.name for each in fields(Capabilities)}
            given = cast("dict[str, Any]", head["capabilities"])
            self._capabilities = Capabilities(**{name: given[name] for name in given if name in known})
        except (LookupError, TypeError, AttributeError):
            raise UsageError(f"{path}, line 1: names no provider; {_AGAIN.lower()}") from None
        for number, line in enumerate(lines[1:], 2):
            try:
                self._read(line)
            except (LookupError, TypeError, AttributeError, FormatError) as error:
                raise UsageError(f"{path}, line {number}: is no line of a recording: {error!r}") from None

    def _read(self, line: dict[str, Any]) -> None:
        if "turn" in line:
            asked = completed(line["asked"], self._turns[-1].asked if self._turns else None)
            answer = tuple(map(delta_of, line["answer"]))
            told = line.get("error")
            error = ProviderError(told["message"], **{name: told[name] for name in ERROR_FIELDS}) if told else None
            self._turns.append(_Turn(asked, line["digest"], answer, error))
            return
        told = line.get("stop")
        stop = AgentStop(told["message"], answer=told["answer"]) if told else None
        result = load({"format": 1, **line["result"]})
        if not isinstance(result, ToolResult):
            raise TypeError("its result is none")
        taped = Taped(result, stop, line.get("recalled", False))
        self._results.setdefault(line["call"], deque()).append((line["name"], line["arguments"], taped))

    @property
    def replays(self) -> bool:
        return True

    @property
    def left(self) -> int:
        return len(self._turns) - self._asked

    @property
    def model(self) -> str:
        return self._model

    def attach(self, model: str | Provider | Driver, secrets: Secrets) -> Provider:
        self._secrets = secrets
        return _Played(self._model, self._capabilities, self)

    def turn(self, request: ModelRequest) -> _Turn:
        """What was answered. Raises ReplayDiverged for another request than the one recorded here."""
        self._asked += 1
        number, known = self._asked, len(self._turns)
        if number > known:
            raise ReplayDiverged(
                f"the run left the recording {self._path} behind its end: it holds {known} model requests, and one more"
                f" was asked. {_AGAIN}"
            )
        turn, asked = self._turns[number - 1], plain(self._secrets.hide(plain(request_json(request))))
        if turn.digest != digest_of(asked):
            raise ReplayDiverged(
                f"the run left the recording {self._path} at model request {number} of {known}: it asks for something "
                f"else. {_AGAIN}\n{differences(turn.asked, asked)}"
            )
        return turn

    def broken_off(self) -> ReplayDiverged:
        return ReplayDiverged(
            f"the recording {self._path} breaks off in the answer to model request {self._asked}: that run was cut off "
            "there. Record it again"
        )

    def recalled(self, call: ToolCall) -> ToolResult | None:
        taped = self._next(call)
        if taped is None or not taped.recalled:
            return None
        self._results[call.id].popleft()
        return taped.result

    def play(self, call: ToolCall) -> Taped:
        taped = self._next(call)
        if taped is None:
            raise ReplayDiverged(
                f"the run left the recording {self._path} behind model request {self._asked}: it calls {call.name} "
                f"({call.id}), of which no result was recorded. {_AGAIN}"
            )
        self._results[call.id].popleft()
        return taped

    def _next(self, call: ToolCall) -> Taped | None:
        recorded = self._results.get(call.id)
        if not recorded:
            return None
        name, arguments, taped = recorded[0]
        now = plain(self._secrets.hide(plain(call.arguments)))
        if (name, arguments) != (call.name, now):
            was, said = (json.dumps(each, ensure_ascii=False, sort_keys=True) for each in (arguments, now))
            raise ReplayDiverged(
                f"the run left the recording {self._path} behind model request {self._asked}, at the call {call.id}: "
                f"it was {name} {was} and is {call.name} {said}. {_AGAIN}"
            )
        return taped

    def keep(self, call: ToolCall, taped: Taped) -> None:
        raise NotImplementedError("nothing is recorded while it is played")


@dataclass(frozen=True, slots=True)
class _Played:
    """The provider of a recording."""

    name: str
    capabilities: Capabilities
    player: _Player

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        turn = self.player.turn(request)
        for delta in turn.answer:
            await asyncio.sleep(0)  # others run meanwhile, as they did: a place to be cancelled at
            yield delta
        if turn.error is not None:
            raise turn.error
        if not turn.answer or not isinstance(turn.answer[-1], TurnEnded):
            raise self.player.broken_off()

    async def aclose(self) -> None:
        """Nothing is open."""
