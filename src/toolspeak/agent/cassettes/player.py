"""The side of a cassette that plays what was recorded."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import NoReturn, cast

from toolspeak.agent.cassettes.cassette_lines import plain
from toolspeak.agent.cassettes.cassette_reader import PlayedAnswer, PlayedCall, PlayedTurn, in_turn, read_recording
from toolspeak.agent.cassettes.cassette_requests import differences, digest_of, request_json
from toolspeak.agent.cassettes.recording import Recording, TurnCutOff
from toolspeak.agent.drivers.base import Driver
from toolspeak.agent.state.state import RunState
from toolspeak.data.approvals import Decision, Escalate
from toolspeak.data.deltas import Delta, TurnEnded
from toolspeak.data.events import ApprovalDecided, SubRunUsed
from toolspeak.data.messages import JSON, ToolCall, ToolResult
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, ReplayDiverged
from toolspeak.execute import ApprovalRequest, Approver, BatchApprover, RecordedResult, Replayer, Secrets
from toolspeak.execute.approval.approvers import ApprovalAnswer, StandingApprover, decision_of
from toolspeak.execute.approval.evaluator import unapproved_repair
from toolspeak.execute.recovery import IN_DOUBT_REASON
from toolspeak.providers.base import Provider
from toolspeak.providers.capabilities import Capabilities
from toolspeak.wire.base import ModelRequest

_AGAIN = "If the change is meant, record the run again"


class Player(Recording, Replayer):
    """Plays a recording without a model, functions and people. See `Cassette.replay`."""

    def __init__(self, path: str | PathLike[str], *, pauses: bool = True) -> None:
        self._path = path = Path(path)
        self._pauses = pauses
        self._secrets = Secrets()
        self._content = read_recording(path)
        self._requests = self._providers = 0
        self.agents: list[str] = []
        self._seconds = self._mark = 0.0  # seconds, and at the last turn's end, or when the run continued
        self.revising: PlayedAnswer | None = None
        """The answer whose other arguments are being asked about."""

    @property
    def cassette_results(self) -> None:
        return None

    @property
    def replayer(self) -> Replayer:
        return self

    @property
    def requests_left(self) -> int:
        return len(self._content.turns) - self._requests

    @property
    def model(self) -> str:
        return self._content.providers[0][0]

    @property
    def id(self) -> str:
        return self._content.id

    def provider(self, model: str | Provider) -> Provider:
        providers = self._content.providers
        if self._providers >= len(providers):
            raise ConfigurationError(
                f"{self._path}: holds {len(providers)} providers, and the program requests another. {_AGAIN}"
            )
        number = self._providers
        self._providers += 1
        return _PlayedProvider(*providers[number], self, number)

    def attach(
        self, agent: str, model: str | Provider | Driver, approver: Approver | BatchApprover | None, secrets: Secrets
    ) -> tuple[Provider | Driver, Approver | BatchApprover | None]:
        self._secrets = secrets
        inner_model = cast("Provider | Driver", model)
        wants_provider = isinstance(model, str) or not hasattr(model, "open") or not self._providers
        if agent in self.agents or (wants_provider and self._providers >= len(self._content.providers)):
            self.agents.clear()  # all of them are made anew, to resume the run
        if wants_provider:
            self._providers = self._providers if self.agents else 0
            inner_model = self.provider("")
        self.agents.append(agent)
        if isinstance(approver, StandingApprover):
            return inner_model, approver
        return inner_model, _PlayedBatchApprover(self) if isinstance(approver, BatchApprover) else _PlayedApprover(self)

    def clock(self, own: Callable[[], float]) -> Callable[[], float]:
        """Time passes as it did when it was recorded: limits in seconds are reached where they were."""
        if any(turn.took is None for turn in self._content.turns):
            return own  # recorded before there were times
        began = own()
        return lambda: began + self._seconds

    def _passes(self, at: float) -> None:
        self._seconds = max(self._seconds, self._mark + at)

    def turn(self, request: ModelRequest, provider: int) -> PlayedTurn:
        """What was answered. Raises ReplayDiverged for another request than the one recorded here."""
        turns = self._content.turns
        self._requests += 1
        number, total = self._requests, len(turns)
        if number > total:
            raise ReplayDiverged(
                f"the run left the recording {self._path} after its end: it holds {total} model requests, and one more"
                f" was asked. {_AGAIN}"
            )
        turn, current = turns[number - 1], plain(self._secrets.hide(plain(request_json(request))))
        # A file that was edited by hand holds the digest of what it said before.
        digest = digest_of(current)
        if digest != turn.digest and digest != digest_of(turn.request):
            self._diverge(
                f"at model request {number} of {total}: it asks for something else", differences(turn.request, current)
            )
        if turn.provider != provider:
            names = [name for name, _ in self._content.providers]
            self._diverge(
                f"at model request {number} of {total}: {names[turn.provider]} was asked, not {names[provider]}"
            )
        self._seconds += turn.took or 0.0
        self._mark = self._seconds
        return turn

    def broken_off(self, turn: PlayedTurn) -> ReplayDiverged:
        kind = TurnCutOff if turn.is_cut and self.requests_left else ReplayDiverged
        return kind(
            f"the recording {self._path} breaks off in the answer to model request {self._requests}: that run was cut "
            "off there. Record it again"
        )

    def _diverge(self, how: str, more: str = "") -> NoReturn:
        rest = f"\n{more}" if more else ""
        raise ReplayDiverged(f"the run left the recording {self._path} {how}. {_AGAIN}{rest}")

    # --- calls

    def cached_result(self, call: ToolCall) -> ToolResult | None:
        played_call = self._played_call(call)
        return (
            played_call.recorded_result.result
            if played_call is not None and played_call.recorded_result.recalled
            else None
        )

    def skipped_result(self, call: ToolCall) -> ToolResult | None:
        played_call = self._played_call(call)
        return (
            played_call.recorded_result.result
            if played_call is not None and played_call.recorded_result.skipped
            else None
        )

    def unasked_result(self, call: ToolCall) -> ToolResult | None:
        return None if self._answers(call.id, in_doubt=False) else self.skipped_result(call)

    def play(self, call: ToolCall) -> RecordedResult:
        played_call = self._played_call(call)
        if played_call is None:
            self._diverge(
                f"after model request {self._requests}: it calls {call.name} ({call.id}), of which no result was"
                " recorded"
            )
        return played_call.recorded_result

    def _played_call(self, call: ToolCall) -> PlayedCall | None:
        played_call = self._content.calls.get((self._requests, in_turn(call.id)))
        if played_call is None:
            return None
        if played_call.arguments is not None:
            self._compare(call, played_call.name, played_call.arguments)
        recorded_result = played_call.recorded_result
        self._passes(played_call.at)
        return replace(
            played_call,
            recorded_result=replace(recorded_result, result=replace(recorded_result.result, call_id=call.id)),
        )

    def _compare(self, call: ToolCall, name: str, arguments: JSON, where: str = "at the call") -> None:
        now = plain(self._secrets.hide(plain(call.arguments)))
        if (name, arguments) != (call.name, now):
            recorded_text, became = (json.dumps(each, ensure_ascii=False, sort_keys=True) for each in (arguments, now))
            self._diverge(
                f"after model request {self._requests}, {where} {call.id}: it was {name} {recorded_text} and is"
                f" {call.name} {became}"
            )

    def record_sub_run(self, usage_event: SubRunUsed) -> None:
        """It is in the recording."""

    # --- questions

    def preview(self, call: ToolCall) -> str:
        if self.revising is not None:
            return self.revising.revised_preview or ""
        return next((each.preview for each in self._answers(call.id, in_doubt=False)), "")

    def resume(self, state: RunState, new_decisions: Sequence[ApprovalDecided]) -> None:
        self._mark = self._seconds
        waiting = state.approvals.open_requests
        for fact in new_decisions:
            answers = self._answers(fact.call_id, waiting[fact.call_id].reason == IN_DOUBT_REASON)
            while answers and answers[0].escalated:
                answers.popleft()
            decision = answers.popleft().decision if answers else None
            if decision is not None and _verdict(decision) != _verdict(fact):
                self._diverge(
                    f"after model request {self._requests}, at the question about the call {fact.call_id}: the answer"
                    f" was {_verdict(decision)} and is {_verdict(fact)}"
                )

    def answer(self, request: ApprovalRequest) -> PlayedAnswer | Decision:
        """What was said to this question; a `PlayedAnswer` that is escalated pauses the run."""
        call, escalation = request.call, None
        answers = self._answers(call.id, request.reason == IN_DOUBT_REASON)
        while answers:
            answer = answers.popleft()
            self._compare(call, answer.name, answer.arguments, "at the question about the call")
            self._passes(answer.at)
            if not answer.escalated or self._pauses:
                return answer
            escalation = answer
        if (self._requests, in_turn(call.id)) in self._content.calls:
            return Decision(True, by="recording")  # it ran: a rule let it, which is not there now
        standing = next(
            (self._content.standing[at] for at in range(self._requests, -1, -1) if at in self._content.standing), None
        )
        if standing is not None:
            refusal = "" if standing.repaired else unapproved_repair(request)
            return replace(standing.decision, approved=False, reason=refusal) if refusal else standing.decision
        if escalation is None:
            self._diverge(
                f"after model request {self._requests}: it asks whether {call.name} ({call.id}) may run, which was "
                "not asked when it was recorded"
            )
        return escalation

    def _answers(self, call_id: str, in_doubt: bool) -> deque[PlayedAnswer]:
        return self._content.answers.get((self._requests, in_turn(call_id), in_doubt), deque())


def _verdict(fact: ApprovalDecided) -> str:
    with_arguments = "" if fact.arguments is None else f" with {json.dumps(plain(fact.arguments), ensure_ascii=False)}"
    return ("yes" if fact.approved else "no, and the run ends" if fact.ends_run else "no") + with_arguments


@quick()
class _PlayedApprover:
    """Instead of an approver: what was said when it was recorded."""

    player: Player

    async def __call__(self, request: ApprovalRequest, /) -> ApprovalAnswer:
        answer = self.player.answer(request)
        if isinstance(answer, Decision):
            return answer
        if answer.stop is not None:
            raise answer.stop
        if answer.decision is None:
            return Escalate(answer.reason)
        decision = replace(decision_of(answer.decision), digest="")
        if answer.revised_preview is None or decision.arguments is None:
            return decision
        self.player.revising = answer
        try:
            question = await request.revise(decision.arguments)
        finally:
            self.player.revising = None
        return replace(decision, digest=question.digest)


@quick()
class _PlayedBatchApprover:
    player: Player

    async def together(self, requests: Sequence[ApprovalRequest], /) -> Sequence[ApprovalAnswer]:
        one = _PlayedApprover(self.player)
        return [await one(request) for request in requests]


@quick()
class _PlayedProvider:
    """A provider of the recording."""

    name: str
    capabilities: Capabilities
    player: Player
    number: int

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        turn = self.player.turn(request, self.number)
        for delta in turn.answer:
            await asyncio.sleep(0)  # others run meanwhile, as they did: a place to be cancelled at
            yield delta
        if turn.error is not None:
            raise turn.error
        if not turn.answer or not isinstance(turn.answer[-1], TurnEnded):
            raise self.player.broken_off(turn)

    async def aclose(self) -> None:
        """Nothing is open."""
