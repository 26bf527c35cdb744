"""Who is asked before something changes, and what; questions and decisions as facts; rules and decisions checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import iscoroutinefunction, isroutine
from typing import Any, Literal, Protocol, TypeAlias, cast, get_args, runtime_checkable

from toolspeak.data.approvals import Decision, EffectKind, Escalate, Rule, RuleAction
from toolspeak.data.events import ApprovalDecided, ApprovalRequested
from toolspeak.data.messages import JSON, ToolCall
from toolspeak.data.tools import Effects, ToolSpec
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, RunError, suggest
from toolspeak.execute.approval.always_rules import AlwaysScope, always_rule, web_hosts
from toolspeak.execute.approval.command_lines import line_in_folder, prefix_words, prefixes_of
from toolspeak.execute.calls.secrets import Secrets
from toolspeak.tools.context import StateView

_ACTIONS: tuple[str, ...] = get_args(RuleAction)
_EFFECTS: tuple[str, ...] = get_args(EffectKind)


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """The question whether one call may run, with placeholders for secrets.

    - `preview`: what the call would change; "" if its tool has no preview, or a policy is asked.
    - `reason`: why the call needs approval; "" if its effects do not need it.
    - `digest`: what a decision is bound to.
    - `earlier`: the calls of its batch before it that are to run.
    - `state`: the run before the batch.
    - `preview_parameters`: the arguments that the preview shows.
    - `needs_person`: an approver that asks nobody must refuse.
    """

    call: ToolCall
    tool: ToolSpec
    effects: Effects
    preview: str
    reason: str
    digest: str = ""
    earlier: tuple[ToolCall, ...] = ()
    state: StateView | None = None
    _revise: Revise | None = field(default=None, repr=False, compare=False)
    preview_parameters: frozenset[str] = frozenset()
    needs_person: bool = False

    @property
    def can_be_revised(self) -> bool:
        """Whether the question may be asked about other arguments. Not for a call that was started before."""
        return self._revise is not None

    async def revise(self, arguments: Mapping[str, JSON]) -> ApprovalRequest:
        """Returns the same question about other arguments, which are validated, with their effects, preview and digest.

        A `Decision` with its call's `arguments` and its `digest` approves just that. Raises ConfigurationError, with
        every problem, for arguments that do not fit or that the policy refuses.
        """
        if self._revise is None:
            raise ConfigurationError("the arguments of this call cannot be changed")
        return await self._revise(arguments)

    @property
    def repaired_from(self) -> str | None:
        """The model's text, if it was malformed and the call is its repair."""
        return self.call.repaired_from

    def because(self, reason: str) -> ApprovalRequest:
        """Returns the same question with one more reason."""
        return replace(self, reason="; ".join(part for part in (reason, self.reason) if part)) if reason else self

    @property
    def command_line(self) -> str | None:
        """The line that the call passes to /bin/sh; None if it runs no commands."""
        line = self.call.arguments.get(self.tool.command_line) if self.tool.command_line else None
        return line_in_folder(line, self.call.arguments.get("cwd")) if isinstance(line, str) else None

    @property
    def begins(self) -> tuple[str, ...]:
        """How each command of the call begins; () if it runs none, or one that its beginning does not identify."""
        line = self.command_line
        return () if line is None else prefixes_of(line)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the web that the call reads, as resources; () if it touches anything else."""
        return web_hosts(self.effects)

    def always(self, what: AlwaysScope = "tool") -> Rule:
        """Returns a rule that approves every call of this tool, while the tool's definition stays the same.

        - "commands": only calls whose commands begin as this one's (`begins`). If this one only reads, only those that
          do, too: a sandbox holds a command to that.
        - "host": only calls that read the same hosts of the web (`hosts`).
        - "call": only this very call.

        Raises ConfigurationError for "commands" if `begins` is empty, for "host" if `hosts` is.
        """
        return always_rule(question_fact(self), what)


Revise: TypeAlias = Callable[[Mapping[str, JSON]], Awaitable[ApprovalRequest]]
ApprovalAnswer: TypeAlias = Decision | Escalate


class Approver(Protocol):
    """Answers one request. Requests come one at a time, in call order. With `Escalate` the run pauses."""

    async def __call__(self, request: ApprovalRequest, /) -> ApprovalAnswer | bool: ...


@runtime_checkable
class BatchApprover(Protocol):
    """An approver that gets all requests of a batch at once, and answers them in the same order."""

    async def together(self, requests: Sequence[ApprovalRequest], /) -> Sequence[ApprovalAnswer | bool]: ...


Policy: TypeAlias = Callable[[ApprovalRequest], ApprovalAnswer | None]
"""Looks at every call, those that only read too, and decides, escalates, or has no opinion (None: the effects decide).
A plain function; one that raises escalates."""


@quick()
class StandingApprover:
    """Gives every request the same answer. It asks no one, so no preview is made and no question is recorded.

    It does not approve a call that was repaired and does more than read, unless `repaired` is set: the model must write
    such a call again.
    """

    decision: Decision
    repaired: bool = False

    async def __call__(self, request: ApprovalRequest, /) -> Decision:
        return self.decision


Approve: TypeAlias = Literal["all", "all+repaired", "none"] | Approver | BatchApprover | None
"""What a person may write as `approve=`."""

approve_all = StandingApprover(Decision(True, by="approve_all"))
"""Says yes to every call, except to a repaired one that does more than read."""

approve_all_and_repaired = StandingApprover(Decision(True, by="approve_all"), repaired=True)
"""Says yes to every call."""


def approve_none(reason: str = "changes are not allowed in this run") -> StandingApprover:
    """Returns an approver that refuses every call that needs approval, with this reason for the model."""
    return StandingApprover(Decision(False, reason, by="approve_none"))


def resolve_approver(approve: Approve) -> Approver | BatchApprover | None:
    """Returns the approver for a value of `approve=`: "all", "all+repaired", "none", an async callable, or None (the
    run pauses).

    Raises ConfigurationError for anything else.
    """
    match approve:
        case None:
            return None
        case "all":
            return approve_all
        case "all+repaired":
            return approve_all_and_repaired
        case "none":
            return approve_none()
        case _:
            value = cast("object", approve)
            if isroutine(value) and not iscoroutinefunction(value):
                raise ConfigurationError(
                    f"approve is an async function of one request, and {value.__name__} is not async; write `async def "
                    f"approve(request): return Decision(True)`, or policy={value.__name__} for what a program decides"
                )
            if callable(value) or isinstance(value, BatchApprover):
                return approve
            raise ConfigurationError(
                f"approve is 'all', 'all+repaired', 'none', an async callable or None, not {approve!r}"
            )


async def ask(approver: Approver, request: ApprovalRequest) -> ApprovalAnswer:
    """The approver's answer. Raises ConfigurationError for anything but a bool, Escalate, or a Decision about this
    request."""
    # Typed callers cannot get this wrong; for others, a forgotten `async` must not count as approval.
    answer = cast("object", approver(request))
    if isinstance(answer, Awaitable):
        return _check_answer(await cast("Awaitable[object]", answer), request)
    if isinstance(answer, bool):
        raise ConfigurationError("an approver is async: write `async def approve(request)`")
    return _check_answer(answer, request)


async def ask_together(approver: BatchApprover, requests: Sequence[ApprovalRequest]) -> list[ApprovalAnswer]:
    """Returns the answers to all requests. Raises ConfigurationError unless there is one for each."""
    answers = await approver.together(requests)
    if len(answers) != len(requests):
        raise ConfigurationError(
            f"an approver answers every request: {len(requests)} were asked, {len(answers)} answered"
        )
    return [_check_answer(answer, request) for answer, request in zip(answers, requests, strict=True)]


def _check_answer(answer: object, request: ApprovalRequest) -> ApprovalAnswer:
    if isinstance(answer, bool):
        return Decision(answer, by="approver")
    if not isinstance(answer, Decision | Escalate):
        raise ConfigurationError(
            f"an approver answers with a bool, a Decision or Escalate, not {type(answer).__name__}"
        )
    if isinstance(answer, Decision):
        check_decision(answer)
        may_be_revised = answer.arguments is not None and request.can_be_revised
        if answer.digest not in ("", request.digest) and not may_be_revised:
            raise ConfigurationError(
                f"the decision about {request.call.id} was made for another call: its digest is not the request's"
            )
    return answer


def approval_reason(effects: Effects) -> str:
    """Why a call with these effects needs approval: it writes, leaves the machine, does not say, or must; "" if it
    needs none."""
    if not effects.needs_approval:
        return ""
    if not effects.declared:
        return "does not declare what it touches"
    reasons: list[str] = []
    if not effects.read_only:
        reasons.append(f"writes {', '.join(sorted(effects.writes))}")
    if effects.external:
        reasons.append("leaves this machine")
    return " and ".join(reasons) or "always needs approval"


def definition_digest(tool: ToolSpec) -> str:
    """SHA-256 (hex) of a tool's definition: name, description, parameters, upper bound of its effects."""
    return _digest([tool.name, tool.description, tool.parameters, _effect_fields(tool.effects)])


def request_digest(call: ToolCall, tool: ToolSpec, effects: Effects, *, again: bool = False) -> str:
    """SHA-256 (hex) of the tool's definition, the exact arguments and their effects.

    `again`: whether the question is about running the call a second time, which is a question of its own.
    """
    parts = [definition_digest(tool), call.name, call.arguments, _effect_fields(replace(effects, version=""))]
    return _digest([*parts, "again"] if again else parts)


def _effect_fields(effects: Effects) -> list[Any]:
    flags = (effects.external, effects.idempotent, effects.destructive, effects.declared, effects.polls)
    # Not a flag more: decisions of earlier versions still hold.
    approval = [name for name in ("approval", "delegates") if getattr(effects, name)]
    return [sorted(effects.reads), sorted(effects.writes), *flags, *approval]


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=dict)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def question_fact(request: ApprovalRequest) -> ApprovalRequested:
    """The event that records the question about a call."""
    call, definition = request.call, definition_digest(request.tool)
    return ApprovalRequested(
        call.id, request.reason, call, request.effects, request.preview, request.digest, definition, request.begins
    )


def decision_fact(call_id: str, decision: Decision, digest: str, secrets: Secrets) -> ApprovalDecided:
    """The fact of a decision, bound to the question with this digest. Its reason holds no secrets."""
    return ApprovalDecided(
        call_id,
        decision.approved,
        secrets.hide_text(decision.reason),
        decision.by,
        digest,
        decision.arguments,
        decision.ends_run,
        decision.always,
    )


def decision_of(fact: ApprovalDecided) -> Decision:
    """The decision of a recorded fact."""
    return Decision(fact.approved, fact.reason, fact.by, fact.arguments, fact.ends_run, fact.always, fact.digest)


def read_decisions(answers: Mapping[str, bool | Decision]) -> dict[str, Decision]:
    """Decisions as a caller may write them: `{"call_1_0": True}`. Raises ConfigurationError for anything but a bool or
    a Decision: the text "no" is a true value."""
    if not isinstance(cast("object", answers), Mapping):
        raise ConfigurationError(
            f"decisions is a dict by call id, as in {{'call_1_0': True}}, not a {type(answers).__name__}"
        )
    decisions: dict[str, Decision] = {}
    for call_id, answer in answers.items():
        decision = Decision(answer, by="caller") if isinstance(answer, bool) else answer
        if not isinstance(cast("object", decision), Decision):
            raise ConfigurationError(f"{call_id} is decided by True, False or a Decision, not {answer!r}")
        check_decision(decision)
        decisions[call_id] = decision
    return decisions


def decision_facts(
    decisions: Mapping[str, Decision], waiting: Mapping[str, ApprovalRequested], secrets: Secrets
) -> list[ApprovalDecided]:
    """Returns the facts of these decisions, each bound to its question.

    Raises RunError for a call that does not wait, and for a decision about another request than the one that waits.
    """
    unknown_ids = set(decisions) - set(waiting)
    if unknown_ids:
        waiting_ids = ", ".join(waiting) or "none (resume the run without decisions: it pauses if it has a question)"
        raise RunError(
            f"no call {', '.join(sorted(map(str, unknown_ids)))} waits for approval; these do: {waiting_ids}"
        )
    facts: list[ApprovalDecided] = []
    for call_id, decision in decisions.items():
        digest = waiting[call_id].digest
        if decision.digest not in ("", digest):
            raise RunError(f"the decision about {call_id} was made for another call: its digest is not the request's")
        facts.append(decision_fact(call_id, decision, digest, secrets))
    return facts


# --- rules and decisions are checked: a typing error in one must not let another call pass, or refuse it


def check_rule(rule: Rule) -> None:
    """Raises ConfigurationError for a value that is not a Rule, and for a rule with a field of the wrong type, a path
    pattern without a root, a command prefix that fits any command, a prefix in a rule that refuses, or "modify" without
    a change.
    """
    if not isinstance(cast("object", rule), Rule):
        raise ConfigurationError(f"expected a Rule, such as Rule('approve', tool='read'), not {rule!r}")
    _check_fields(rule)
    for prefix in rule.begins:
        prefix_words(prefix)
    if rule.begins and rule.action != "approve":
        raise ConfigurationError(
            f"begins=… needs the action 'approve', not {rule.action!r}: the same command can be written in "
            "many ways, so such a rule would refuse too little"
        )
    for pattern in rule.paths:
        if "/" in pattern and ":" not in pattern and not pattern.startswith("/"):
            raise ConfigurationError(
                f"the pattern {pattern!r} does not say where it starts; write it from the root ('/srv/{pattern}'), "
                "as a key ('file:/…'), or as a name without a slash ('*.md')"
            )
    if (rule.action == "modify") != (rule.change is not None):
        raise ConfigurationError(f"change={{…}} and the action 'modify' go together; the action is {rule.action!r}")


def check_decision(decision: Decision) -> None:
    """Raises ConfigurationError for a decision with a field of the wrong type: the string "no" is a true value."""
    for name in ("approved", "ends_run"):
        if not isinstance(value := getattr(decision, name), bool):
            raise ConfigurationError(f"Decision({name}={value!r}): must be True or False")
    _check_texts(decision, ("reason", "by", "digest"))
    _check_mappings(decision, ("arguments",))
    if decision.always is not None:
        if not isinstance(cast("object", decision.always), Rule):
            raise ConfigurationError(f"Decision(always={decision.always!r}): expected a Rule, such as request.always()")
        check_rule(decision.always)


def _check_fields(rule: Rule) -> None:
    for name, value, allowed_values in (("action", rule.action, _ACTIONS), ("effects", rule.effects, _EFFECTS)):
        if value not in allowed_values:
            raise ConfigurationError(f"Rule({name}=…): there is no {suggest(str(value), allowed_values)}")
    _check_texts(rule, ("tool", "after", "reason", "definition"))
    for name in ("paths", "begins"):
        value = cast("object", getattr(rule, name))
        # A string is a sequence of strings too: the last character of '/tmp/*' is a pattern that fits everything.
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ConfigurationError(
                f"Rule({name}={value!r}): expected a tuple of strings, such as {name}=({str(value)!r},)"
            )
        for each in cast("Sequence[object]", value):
            if not isinstance(each, str):
                raise ConfigurationError(f"Rule({name}={value!r}): {each!r} is not a string")
    _check_mappings(rule, ("arguments", "change"))
    if not isinstance(cast("object", rule.exact), bool):
        raise ConfigurationError(f"Rule(exact={rule.exact!r}): must be True or False")


def _check_texts(value: Rule | Decision, names: Sequence[str]) -> None:
    for name in names:
        if not isinstance(text := getattr(value, name), str):
            raise ConfigurationError(f"{type(value).__name__}({name}={text!r}): expected a string")


def _check_mappings(value: Rule | Decision, names: Sequence[str]) -> None:
    for name in names:
        mapping = getattr(value, name)
        if mapping is not None and not isinstance(mapping, Mapping):
            raise ConfigurationError(
                f"{type(value).__name__}({name}={mapping!r}): expected a dict keyed by argument name"
            )
