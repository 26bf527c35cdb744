"""The first phase of a batch: in call order, each call is admitted, refused, or found to wait for a yes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeVar

from toolspeak.data.approvals import Decision, Escalate
from toolspeak.data.events import ApprovalDecided, ApprovalRequested, Event, StopRequested, UserMessageQueued
from toolspeak.data.messages import MalformedCall, Message, ToolCall, ToolResult, failure
from toolspeak.data.values import quick, same_json
from toolspeak.errors import AgentStop
from toolspeak.execute.approval.approvers import (
    ApprovalRequest,
    Approver,
    BatchApprover,
    StandingApprover,
    ask,
    ask_together,
    request_digest,
)
from toolspeak.execute.approval.evaluator import PolicyEvaluator, changed_note, no_unasked_repair, only_a_person
from toolspeak.execute.batch import BatchContext, Deadline, Emit
from toolspeak.execute.call_interceptors import Interceptor, chain_of, hook_failure
from toolspeak.execute.calls.results import result_of
from toolspeak.execute.calls.secrets import Secrets, hide_effects
from toolspeak.execute.early import EarlyStart
from toolspeak.execute.entries import REFUSED, Entry, Held, Ready, Settled, Stopping, call_of, stopped_result
from toolspeak.execute.hooks import Answer, Block, HookError, HookNotes
from toolspeak.execute.recovery import ASKED, CallsInDoubt, has_person, unknown_outcome
from toolspeak.execute.request_builder import RequestBuilder, is_of_a_revision
from toolspeak.tools.verify import Happened

ResultT = TypeVar("ResultT")

_ENDED = "not started: the run was ended by a decision"


class _TooLateError(Exception):
    """The run's time was over while a call was being admitted."""


@quick(frozen=False)
class Admission:
    """Admits the calls of one batch; make a new one for each. `waited` are the seconds an approver took so far.

    `stop` is set once the run is to end; `notes` hold what the interceptors leave behind. `holds`: a call waits for an
    answer.
    """

    builder: RequestBuilder
    pipeline: Sequence[Interceptor]
    secrets: Secrets
    context: BatchContext
    emit: Emit
    evaluator: PolicyEvaluator
    approver: Approver | BatchApprover | None
    deadline: Deadline
    doubts: CallsInDoubt = CallsInDoubt()
    stopping: Stopping = Stopping()
    early: EarlyStart | None = None
    waited: float = 0.0
    stop: StopRequested | None = None
    notes: HookNotes = field(default_factory=HookNotes)
    holds: bool = False
    _rest: str = ""
    _earlier: list[ToolCall] = field(default_factory=list[ToolCall])

    async def admit_all(
        self, calls: Sequence[ToolCall | MalformedCall], finished: Mapping[str, ToolResult], max_calls: int | None
    ) -> list[Entry]:
        """One entry per call; those that are held wait for `ask_all`. Calls that are finished already or malformed do
        not count towards `max_calls`."""
        entries: list[Entry] = []
        counted, looks_back = 0, len(calls) > 1 and self.evaluator.looks_back
        for call in calls:
            if call.id in finished:
                entries.append(Settled(finished[call.id], recorded=True))
                continue
            counted += type(call) is ToolCall
            over = max_calls is not None and counted > max_calls
            entry = self._refused(call, over=over)
            if entry is None and type(call) is MalformedCall:
                entry = await self._malformed(call)
            elif entry is None:
                assert type(call) is ToolCall
                ready = None if self.pipeline else self._ready(call)
                entry = self._at_once(ready) or await self._entry(call, ready)
            if type(entry) is Settled:
                if isinstance(call, ToolCall):
                    entry = replace(entry, result=self.doubts.told(call, entry.result))
                self._consider(entry)
            else:
                self.holds = self.holds or type(entry) is Held
                if looks_back:
                    self._earlier.append(entry.call if isinstance(entry, Ready) else entry.ready.call)
            entries.append(entry)
        return entries

    def _ready(self, call: ToolCall) -> Ready | Settled:
        """The call made ready; what was made ready while the model wrote is so still, if its effects are the same."""
        begun = None if self.early is None else self.early.find(call)
        if begun is None:
            return self.builder.ready(call)
        invocation = begun.invocation
        effects = invocation.tool.effects_of(invocation.arguments)
        if effects is not begun.effects and effects != begun.effects:
            return self.builder.ready(call)
        return Ready(call, invocation.tool, invocation.arguments, effects, invocation.key)

    def anew(self, entry: Ready | Settled) -> Ready | Settled:
        """The entry of a call that nothing has begun of: what was made ready for the function may have been changed by
        it."""
        if not isinstance(entry, Ready):
            return entry
        ready = self.builder.ready(entry.call)
        return replace(entry, begun=None, arguments=ready.arguments) if isinstance(ready, Ready) else ready

    def _refused(self, call: ToolCall | MalformedCall, *, over: bool) -> Settled | None:
        """What becomes of a call that is not looked at."""
        if self._rest:
            return self._skipped(call)
        if type(call) is not ToolCall:
            return None
        if over:
            return Settled(failure(call, "skipped", "the run's limit on calls is reached"))
        return self._late(call) if self.deadline.passed() else None

    async def _malformed(self, call: MalformedCall) -> Settled:
        """The result of what is no call: interceptors see it as one without arguments."""
        result = failure(call, "malformed", call.reason)
        if not self.pipeline:
            return Settled(result)
        shown = ToolCall(call.id, call.name or "", {}, extra={**call.extra, "malformed": call.raw})
        try:
            return await self._told_of(shown, result)
        except _TooLateError:
            return Settled(result)
        except AgentStop as stop:
            self._stop_run(stop, shown)
            return Settled(stopped_result(shown, stop))

    async def _told_of(self, call: ToolCall, result: ToolResult) -> Settled:
        """The result of a call that cannot run, once every `after` has seen it."""
        passage = chain_of(call, self.pipeline, self.context, self.notes)
        return Settled(await self._in_time(passage.after(call, result)))

    def _at_once(self, ready: Ready | Settled | None) -> Ready | Settled | None:
        """The entry of a call for which nothing has to be waited, as for most."""
        if not isinstance(ready, Ready):
            return ready
        if ready.call in self.doubts:
            return None
        if not self.evaluator.is_needed(ready.call, ready.effects):
            return self._taken(ready)
        standing = self.approver if isinstance(self.approver, StandingApprover) else None
        if standing is None or ready.call.repaired_from is not None or self.evaluator.has_a_say(ready.call):
            return None
        return self._decided(ready, standing.decision)

    async def _entry(self, call: ToolCall, ready: Ready | Settled | None) -> Entry:
        try:
            found = await self._intercepted(call) if ready is None else ready
            if isinstance(found, Settled):
                return found
            return self._at_once(found) or await self._considered(found)
        except _TooLateError:
            return self._late(call)
        except AgentStop as stop:
            self._stop_run(stop, call)
            return Settled(stopped_result(call, stop))

    def _consider(self, entry: Entry) -> None:
        """Whether what became of a call ends the batch: then the calls behind it are skipped."""
        if not isinstance(entry, Settled) or entry.recorded or self._rest:
            return
        if self.ends_run:
            self._rest = _ENDED
            return
        code = entry.result.code
        if code in REFUSED:
            if self.stopping.on_block:
                self._rest = f"not started: {entry.result.name} was blocked before it"
        elif self.stopping.on_failure and code is not None and code != "skipped":
            self._rest = f"not started: {entry.result.name or 'a call'} failed before it"
            self.stop = StopRequested("tool_failure", entry.result.text, entry.result.call_id)

    def _skipped(self, call: ToolCall | MalformedCall) -> Settled:
        return Settled(failure(call, "skipped", self._rest))

    def _stop_run(self, stop: AgentStop, call: ToolCall) -> None:
        self._rest = "not started: the run was told to stop before it"
        message = self.secrets.hide_text(str(stop))
        answer = None if stop.answer is None else self.secrets.hide_text(stop.answer)
        self.stop = StopRequested("stopped", message, call.id, answer)

    async def ask_all(self, entries: list[Entry]) -> list[Entry]:
        """Asks about the calls that are held, in call order or all at once; those nobody has answered stay held."""
        held = [entry for entry in entries if isinstance(entry, Held)]
        if not held or self.ends_run:
            return entries
        entries, self._rest = list(entries), ""
        together = await self._ask_together(held) if isinstance(self.approver, BatchApprover) else {}
        for place, entry in enumerate(entries):
            if self._rest:
                if not (isinstance(entry, Settled) and (entry.recorded or entry.result.code == "skipped")):
                    entries[place] = self._skipped(call_of(entry))
                continue
            if isinstance(entry, Held):
                entry = entries[place] = await self._answered(entry, together)
            self._consider(entry)
            if self.ends_run:
                break
        return entries

    def settled(self, entries: Sequence[Entry]) -> list[Ready | Settled]:
        """What runs and what does not, once nothing is held. When a decision has ended the run, nothing runs."""
        ends = self.ends_run
        found: list[Ready | Settled] = []
        for entry in entries:
            if isinstance(entry, Held) or (ends and isinstance(entry, Ready)):
                call = call_of(entry)
                entry = Settled(failure(call, "skipped", _ENDED))
            found.append(entry)
        return found

    def facts(self) -> list[Event]:
        """What is to be recorded before the calls run: what interceptors leave behind, and that the run is to end.
        Not while calls wait: they are admitted anew then."""
        if not self.notes.failed and not self.notes.kept and not self.notes.said and self.stop is None:
            return []
        hide = self.secrets.hide_text
        failed = [replace(each, error=hide(each.error)) for each in self.notes.failed]
        said = [UserMessageQueued(Message.user(hide(text))) for text in self.notes.said]
        return [*failed, *(kept.fact for kept in self.notes.kept), *said, *([] if self.stop is None else [self.stop])]

    @property
    def ends_run(self) -> bool:
        """Whether a decision has ended the run: then nothing of the batch runs."""
        return self.stop is not None and self.stop.reason == "terminated"

    def _late(self, call: ToolCall) -> Settled:
        return Settled(failure(call, "skipped", self.deadline.before_start()))

    async def _in_time(self, work: Awaitable[ResultT]) -> ResultT:
        """Waits no longer than the deadline. Facts are not recorded in here: a half-recorded one would be lost."""
        limit = asyncio.timeout_at(self.deadline.at)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if limit.expired():
                raise _TooLateError from None
            raise

    async def _intercepted(self, call: ToolCall) -> Ready | Settled:
        passage = chain_of(call, self.pipeline, self.context, self.notes)
        try:
            verdict = await self._in_time(passage.before(call))
        except HookError as error:
            return Settled(hook_failure(call, error, self.notes), by=error.name)
        if isinstance(verdict, Block):
            return Settled(failure(call, "blocked", verdict.reason), by=self.notes.last)
        if isinstance(verdict, Answer):
            return Settled(result_of(call, verdict.value, self.secrets))
        ready = self.builder.ready(verdict)
        if isinstance(ready, Settled):
            return await self._told_of(verdict, ready.result)
        ready.changed = verdict is not call and verdict != call
        return ready

    async def _considered(self, ready: Ready) -> Entry:
        return await (self._doubted(ready) if ready.call in self.doubts else self._judged(ready))

    def _taken(self, ready: Ready) -> Ready:
        """With what has begun of it already."""
        if self.early is not None:
            ready.begun = self.early.take(ready.call, ready.effects)
        return ready

    async def _doubted(self, ready: Ready) -> Entry:
        """What becomes of a call that was started before. Its approval stands: it is not asked for again."""
        call, tool, effects = ready.call, ready.tool, hide_effects(ready.effects, self.secrets)
        digest = request_digest(call, tool.now, effects, again=True)
        context = self.builder.run_context(call, ready.idempotency_key)
        doubts = self.doubts.bound(call, digest)
        settled = await doubts.settle(call, tool, ready.arguments, ready.effects, context)
        if isinstance(settled, Happened):
            return Settled(result_of(call, settled.value, self.secrets))
        if settled is None and (self.approver is None or has_person(self.approver)):
            request = ApprovalRequest(call, tool.now, effects, "", ASKED, digest, state=self.context.state)
            return Held(ready, await self._in_time(self.builder.with_preview(request, ready)), in_doubt=True)
        return ready if settled else Settled(unknown_outcome(call))

    async def _judged(self, ready: Ready) -> Entry:
        request = self.builder.about(ready, self._earlier)
        answer = self.builder.decided_before(ready) or self.evaluator.answer(request)
        if answer is None:
            return self._taken(ready)
        if isinstance(answer, Decision):
            return self._decided(ready, answer)
        request = request.because(answer.reason)
        if isinstance(self.approver, StandingApprover):
            if answer.person and self.approver.decision.approved:
                return self._decided(ready, Decision(False, only_a_person(answer)))
            if self.approver.decision.approved and not self.approver.repaired and no_unasked_repair(request):
                return Settled(
                    failure(request.call, "rejected", no_unasked_repair(request)), by=self.approver.decision.by
                )
            return self._decided(ready, self.approver.decision)
        return Held(ready, await self._in_time(self.builder.with_preview(request, ready)))

    def _decided(self, ready: Ready, decision: Decision) -> Ready | Settled:
        call = ready.call
        if not decision.approved:
            told = f": {decision.reason}" if decision.reason else ""
            if decision.ends_run:
                self.stop = StopRequested("terminated", decision.reason, call.id, by=decision.by)
            return Settled(failure(call, "rejected", f"the call was rejected{told}"), by=decision.by)
        if decision.arguments is None or same_json(decision.arguments, call.arguments):
            return ready
        changed = self.builder.ready(replace(call, arguments=decision.arguments))
        if isinstance(changed, Ready):
            changed.changed, changed.note = True, changed_note(changed.call, decision.reason)
        return changed

    async def _answered(self, held: Held, together: Mapping[str, Decision | Escalate]) -> Entry:
        """What an answer makes of a call; it stays held if there is none."""
        call_id = held.request.call.id
        if not together:
            await self._record_question(held.request)
        if self.approver is None:
            return held
        try:
            answer = together.get(call_id) or await self._ask(self.approver, held.request)
        except AgentStop as stop:
            self._stop_run(stop, held.request.call)
            return Settled(stopped_result(held.request.call, stop))
        asked = held.request
        if isinstance(answer, Decision) and is_of_a_revision(answer, asked):
            asked = self.builder.revision_of(held, answer)
            if asked is not None:
                await self._record_question(asked)
        if isinstance(answer, Escalate) or asked is None:
            return held
        answer = replace(answer, reason=self.secrets.hide_text(answer.reason), digest=asked.digest)
        await self.emit(
            ApprovalDecided(
                call_id,
                answer.approved,
                answer.reason,
                answer.by,
                answer.digest,
                answer.arguments,
                answer.ends_run,
                answer.always,
            )
        )
        self.evaluator.keep(answer)
        if held.in_doubt and not answer.ends_run:
            return held.ready if answer.approved else Settled(unknown_outcome(held.ready.call))
        decided = self._decided(held.ready, answer)
        if isinstance(decided, Settled):
            return replace(decided, result=self.doubts.told(held.ready.call, decided.result))
        return decided

    async def _record_question(self, request: ApprovalRequest) -> None:
        call = request.call
        await self.emit(
            ApprovalRequested(call.id, request.reason, request.preview, call, request.effects, request.digest)
        )

    async def _ask(self, approver: Approver | BatchApprover, request: ApprovalRequest) -> Decision | Escalate:
        if isinstance(approver, BatchApprover):
            raise TypeError("an approver of whole batches is not asked about one call")
        return await self._timed(ask(approver, request))

    async def _ask_together(self, held: Sequence[Held]) -> dict[str, Decision | Escalate]:
        if not isinstance(self.approver, BatchApprover):
            return {}
        requests = [each.request for each in held]
        for request in requests:
            await self._record_question(request)
        try:
            answers = await self._timed(ask_together(self.approver, requests))
        except AgentStop as stop:
            self._stop_run(stop, requests[0].call)
            return {}
        return {request.call.id: answer for request, answer in zip(requests, answers, strict=True)}

    async def _timed(self, question: Awaitable[ResultT]) -> ResultT:
        """A person's time does not count: the question is not under the deadline, which moves on instead."""
        clock = asyncio.get_running_loop()
        asked = clock.time()
        async with self.context.pause.ends():
            answer = await question
        waited = clock.time() - asked
        self.waited += waited
        self.deadline.move_on(waited)
        return answer
