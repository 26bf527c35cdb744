"""The side of a cassette that records."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import cast

from toolspeak.agent.cassettes.cassette_lines import (
    ERROR_FIELDS,
    KIND,
    VERSION,
    bare,
    delta_json,
    fact_json,
    is_cassette,
    is_json,
    plain,
    standing_json,
    stop_json,
    without_secrets,
)
from toolspeak.agent.cassettes.cassette_reader import read_recording
from toolspeak.agent.cassettes.cassette_requests import digest_of, request_json, shorten_request
from toolspeak.agent.cassettes.recording import Recording
from toolspeak.agent.drivers.base import Driver
from toolspeak.agent.state.state import RunState
from toolspeak.data.approvals import Decision, Escalate
from toolspeak.data.codec import dump
from toolspeak.data.deltas import Delta
from toolspeak.data.events import ApprovalDecided, SubRunUsed
from toolspeak.data.messages import JSON, ToolCall
from toolspeak.data.protected_files import protect
from toolspeak.data.values import quick
from toolspeak.errors import AgentStop, ConfigurationError, ProviderError
from toolspeak.execute import ApprovalRequest, Approver, BatchApprover, CassetteResults, RecordedResult, Secrets
from toolspeak.execute.approval.approvers import ApprovalAnswer, StandingApprover, ask, ask_together, decision_fact
from toolspeak.execute.approval.evaluator import is_of_a_revision
from toolspeak.execute.calls.prepare import new_id
from toolspeak.execute.recovery import IN_DOUBT_REASON
from toolspeak.providers import get_provider
from toolspeak.providers.base import Provider
from toolspeak.providers.capabilities import Capabilities
from toolspeak.wire.base import ModelRequest

_SHORTEST_KEY = 8
"""The fewest characters of a provider's key that is not recorded."""


class CassetteRecorder(Recording, CassetteResults):
    """Writes a line as soon as there is something to say. See `Cassette.record`."""

    def __init__(self, path: str | PathLike[str], *, go_on: bool = False) -> None:
        self._path = path = Path(path)
        protect(path, "the recording of a run")
        self._secrets = Secrets()
        self._keys: tuple[str, ...] = ()
        self._before: dict[str, JSON] | None = None
        self._turns = 0
        self._providers: list[str] = []
        self._earlier_providers: list[str] = []
        self.agents: list[str] = []
        self._previews: dict[tuple[str, str], str] = {}
        self._standing: Mapping[str, JSON] = {}
        self._id = new_id()
        self._clock: Callable[[], float] = time.time
        self._mark: float | None = None  # when the last turn ended, or the run continued
        if go_on:
            self._take_up()
            return
        try:
            if path.exists() and path.stat().st_size and not is_cassette(path):
                raise ConfigurationError(
                    f"{path}: holds something else than a recording; name another file to record to"
                )
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror or error}") from None

    def _take_up(self) -> None:
        content = read_recording(self._path)
        self._id, self._turns, self._before = content.id, content.requests, content.before
        self._earlier_providers = [name for name, _ in content.providers]
        data = self._path.read_bytes()
        whole, end, fragment = data.rpartition(b"\n")
        if fragment:  # the process died while it wrote
            intact = data + b"\n" if is_json(fragment.decode("utf-8", "replace")) else whole + end
            self._path.write_bytes(intact)

    @property
    def cassette_results(self) -> CassetteResults:
        return self

    @property
    def replayer(self) -> None:
        return None

    @property
    def requests_left(self) -> int:
        return 0

    @property
    def model(self) -> str:
        return next(iter([*self._earlier_providers, *self._providers]), "")

    @property
    def id(self) -> str:
        return self._id

    def provider(self, model: str | Provider) -> Provider:
        provider = get_provider(model, os.environ) if isinstance(model, str) else model
        number = len(self._providers)
        # A tool may read the key, a model repeat it. A short one is also a part of words.
        self._keys += tuple(key for key in getattr(provider, "secrets", ()) if len(key) >= _SHORTEST_KEY)
        self._secrets = self._secrets.and_keys(self._keys)
        self._providers.append(provider.name)
        if number < len(self._earlier_providers):
            if self._earlier_providers[number] != provider.name:
                raise ConfigurationError(
                    f"{self._path}: records {self._earlier_providers[number]}, not {provider.name}; name another file"
                )
        else:
            head = {KIND: VERSION, "id": self._id} if number == 0 else {}
            line = {**head, "provider": provider.name, "capabilities": asdict(provider.capabilities)}
            self._write({**line, **self._standing}, new=number == 0)
        return _RecordedProvider(provider, self, number)

    def attach(
        self, agent: str, model: str | Provider | Driver, approver: Approver | BatchApprover | None, secrets: Secrets
    ) -> tuple[Provider | Driver, Approver | BatchApprover | None]:
        if agent in self.agents:
            raise ConfigurationError(f"{self._path}: is recorded by another agent; give each a cassette of its own")
        inner_model = cast("Provider | Driver", model)
        self._secrets, self._standing = secrets.and_keys(self._keys), standing_json(approver) or self._standing
        if isinstance(model, str) or not hasattr(model, "open"):
            inner_model = self.provider(cast("str | Provider", model))
        elif not self._providers:
            raise ConfigurationError(
                "a cassette records a provider's turns: give the agent a model's name or a Provider, or make the "
                "driver of cassette.provider(…)"
            )
        self.agents.append(agent)
        return inner_model, self._recorded_approver(approver)

    def clock(self, own: Callable[[], float]) -> Callable[[], float]:
        self._clock = own
        return own

    def _at(self) -> dict[str, JSON]:
        return {} if self._mark is None else {"at": round(self._clock() - self._mark, 6)}

    def _recorded_approver(self, approver: Approver | BatchApprover | None) -> Approver | BatchApprover | None:
        if isinstance(approver, StandingApprover):
            return approver
        if isinstance(approver, BatchApprover):
            return _RecordedBatchApprover(approver, self)
        return _RecordedApprover(approver, self)

    def keep(self, call: ToolCall, recorded_result: RecordedResult) -> None:
        line: dict[str, JSON] = {"call": call.id, "name": call.name, **self._at()}
        if not recorded_result.skipped:
            line["arguments"] = call.arguments
        line["result"] = bare(dump(recorded_result.result))
        if recorded_result.stop is not None:
            line["stop"] = stop_json(recorded_result.stop)
        line |= {name: True for name in ("recalled", "skipped") if getattr(recorded_result, name)}
        self._write(line)
        self._previews.clear()

    def keep_preview(self, call: ToolCall, preview: str) -> None:
        self._previews[call.id, _text(call.arguments)] = preview

    def record_sub_run(self, usage_event: SubRunUsed) -> None:
        self._write({"spent": bare(dump(usage_event))})

    def resume(self, state: RunState, new_decisions: Sequence[ApprovalDecided]) -> None:
        self._mark = self._clock()
        done_ids = {result.call_id for result in state.pending.results}
        decided_ids = {decision.call_id for decision in state.approvals.decisions}
        calls = [call.id for call in state.pending.calls]
        line: dict[str, JSON] = {
            "resumed": state.run_id,
            "open": [call_id for call_id in calls if call_id not in done_ids],
            "undecided": [call_id for call_id in calls if call_id not in decided_ids],
        }
        self._write({**line, **self._standing})
        waiting = state.approvals.open_requests
        for fact in new_decisions:
            question = waiting[fact.call_id]
            in_doubt = question.reason == IN_DOUBT_REASON
            self._answer(question.call, fact, later=True, in_doubt=in_doubt, preview=question.preview)

    def record_answer(self, request: ApprovalRequest, answer: ApprovalAnswer | AgentStop) -> None:
        call, in_doubt, preview = request.call, request.reason == IN_DOUBT_REASON, request.preview
        match answer:
            case Escalate(reason):
                self._answer(call, None, escalated=reason, in_doubt=in_doubt, preview=preview)
            case Decision():
                fact = decision_fact(call.id, answer, answer.digest, self._secrets)
                if not is_of_a_revision(answer, request):
                    self._answer(call, fact, in_doubt=in_doubt, preview=preview)
                    return
                revised_preview = self._previews.get((call.id, _text(answer.arguments)), "")
                self._answer(call, fact, in_doubt=in_doubt, preview=preview, revised=[revised_preview])
            case AgentStop():
                self._answer(call, None, stop=stop_json(answer), in_doubt=in_doubt, preview=preview)

    def _answer(self, call: ToolCall, fact: ApprovalDecided | None, **more: JSON) -> None:
        line: dict[str, JSON] = {"approval": call.id, "name": call.name, "arguments": call.arguments, **self._at()}
        if fact is not None:
            line["answer"] = fact_json(fact)
        self._write(line | {name: value for name, value in more.items() if value or name == "escalated"})

    def now(self) -> float:
        return self._clock()

    def turn(
        self,
        request: ModelRequest,
        answer: Sequence[Delta],
        error: ProviderError | None,
        provider: int,
        began: float,
    ) -> None:
        self._mark = self._clock()
        request_data = plain(self._secrets.hide(plain(request_json(request))))
        self._turns += 1
        line: dict[str, JSON] = {
            "turn": self._turns,
            "asked": shorten_request(request_data, self._before),
            "digest": digest_of(request_data),
            "answer": [delta_json(delta) for delta in without_secrets(answer, self._secrets)],
            "took": round(self._mark - began, 6),
        }
        if error is not None:
            line["error"] = {name: getattr(error, name) for name in ERROR_FIELDS} | {"message": str(error)}
        if provider:
            line["provider"] = provider
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            line["cut"] = True
        self._before = request_data
        self._write(line)

    def _write(self, line: Mapping[str, JSON], *, new: bool = False) -> None:
        safe_line = self._secrets.hide(plain(line))
        try:
            data = json.dumps(safe_line, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # a lone surrogate
            data = json.dumps(safe_line).encode()
        try:
            with self._path.open("wb" if new else "ab") as file:
                file.write(data + b"\n")
        except OSError as error:
            raise ConfigurationError(f"{self._path}: cannot be recorded to: {error.strerror or error}") from None


def _text(arguments: JSON) -> str:
    return json.dumps(arguments, sort_keys=True, default=dict)


@quick()
class _RecordedApprover:
    """An approver whose answers are recorded; None if there is no approver, and the run pauses."""

    approver: Approver | None
    recorder: CassetteRecorder

    async def __call__(self, request: ApprovalRequest, /) -> ApprovalAnswer:
        try:
            answer = Escalate() if self.approver is None else await ask(self.approver, request)
        except AgentStop as stop:
            self.recorder.record_answer(request, stop)
            raise
        self.recorder.record_answer(request, answer)
        return answer


@quick()
class _RecordedBatchApprover:
    """The same for an approver that is shown a whole batch."""

    approver: BatchApprover
    recorder: CassetteRecorder

    async def together(self, requests: Sequence[ApprovalRequest], /) -> Sequence[ApprovalAnswer]:
        try:
            answers = await ask_together(self.approver, requests)
        except AgentStop as stop:
            self.recorder.record_answer(requests[0], stop)
            raise
        for request, answer in zip(requests, answers, strict=True):
            self.recorder.record_answer(request, answer)
        return answers


@quick()
class _RecordedProvider:
    """A provider whose turns are recorded."""

    provider: Provider
    recorder: CassetteRecorder
    number: int

    @property
    def name(self) -> str:
        return self.provider.name

    @property
    def capabilities(self) -> Capabilities:
        return self.provider.capabilities

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        # Drivers add to a run's messages: those that were asked are these.
        snapshot, answer, turn_error = replace(request, messages=list(request.messages)), list[Delta](), None
        began = self.recorder.now()
        try:
            async with aclosing(cast("AsyncGenerator[Delta]", self.provider.stream(request))) as stream:
                async for delta in stream:
                    answer.append(delta)
                    yield delta
        except ProviderError as error:
            turn_error = error
            raise
        finally:  # a driver need not read to the end
            self.recorder.turn(snapshot, answer, turn_error, self.number, began)

    async def aclose(self) -> None:
        await self.provider.aclose()
