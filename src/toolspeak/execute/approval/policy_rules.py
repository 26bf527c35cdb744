"""Rules: which calls a rule fits, a policy made of rules, and standing rules, which come from "always"."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from inspect import iscoroutinefunction
from typing import cast

from toolspeak.data.approvals import Decision, Escalate, Rule, RuleAction, StandingRule
from toolspeak.data.codec import dumps, loads
from toolspeak.data.events import ApprovalDecided, Event
from toolspeak.data.messages import JSON, Message
from toolspeak.data.protected_files import protected_at
from toolspeak.data.tools import CALLS_WITHIN, EVERYTHING, Effects, ToolSpec, covers
from toolspeak.data.values import same_json
from toolspeak.errors import ConfigurationError, FormatError
from toolspeak.execute.approval.approvers import (
    ApprovalAnswer,
    ApprovalRequest,
    Approver,
    BatchApprover,
    Policy,
    StandingApprover,
    approval_reason,
    check_rule,
    definition_digest,
)
from toolspeak.execute.approval.command_lines import all_begin

_ALLOWING: frozenset[RuleAction] = frozenset({"approve", "modify"})
_NEVER_RAN = frozenset({"blocked", "rejected", "skipped", "malformed", "unknown_tool", "invalid_arguments"})


def rules_policy(rules: Iterable[Rule], by: str = "rule") -> Policy:
    """Returns a policy in which the first rule that fits decides. Raises ConfigurationError for a rule that contradicts
    itself."""
    all_rules = tuple(rules)
    for rule in all_rules:
        check_rule(rule)

    def decide(request: ApprovalRequest) -> ApprovalAnswer | None:
        for rule in all_rules:
            action = fitting(rule, request)
            if action is not None:
                return _answer(action, rule, request, by)
        return None

    return decide


def resolve_policy(policy: Policy | Sequence[Rule] | None) -> Policy | None:
    """Returns the policy for a value of `policy=`: a function, rules in order, or None."""
    if policy is None:
        return None
    if callable(policy):
        if iscoroutinefunction(policy) or iscoroutinefunction(getattr(policy, "__call__", None)):  # noqa: B004
            raise ConfigurationError(
                f"policy must be a plain function, and {policy!r} is async: nothing would await its answer. "
                "For a decision that takes time use an approver, approve=…"
            )
        return policy
    value = cast("object", policy)
    if not isinstance(value, Sequence) or not all(isinstance(each, Rule) for each in cast("Sequence[object]", value)):
        raise ConfigurationError(f"policy must be a function of a request, or a list of Rules, not {value!r}")
    return rules_policy(policy) if policy else None


def may_need_approval(
    approver: Approver | BatchApprover | None, policy: Policy | Sequence[Rule] | None, tool: ToolSpec
) -> bool:
    """Whether a call of this tool may need approval before it runs.

    A policy that is a function decides about calls only; its questions beyond the effects are not known here.
    """
    if isinstance(approver, StandingApprover):
        return False
    for rule in () if policy is None or callable(policy) else policy:
        if fnmatchcase(tool.name, rule.tool):
            if rule.action == "escalate":
                return True
            if _fits_always(rule, tool):
                return False
    return bool(approval_reason(tool.effects))


def _fits_always(rule: Rule, tool: ToolSpec) -> bool:
    """Whether the rule fits all calls of the tool whose effects need approval."""
    if rule.arguments or rule.exact or rule.begins or rule.paths or rule.after:
        return False
    if rule.definition and rule.definition != definition_digest(tool):
        return False
    effects = tool.effects
    match rule.effects:
        case "any":
            return True
        case "writes":
            return effects.declared and not effects.external and rule.action in _ALLOWING
        case "external":
            return effects.declared and effects.read_only
        case "undeclared":
            return not effects.declared
        case "reads" | "destructive":
            return False


def fitting(rule: Rule, request: ApprovalRequest) -> RuleAction | None:
    """Returns the rule's action for the call, None if the rule does not fit."""
    call, effects = request.call, request.effects
    if not (
        fnmatchcase(request.tool.name, rule.tool)
        and _has_effects(rule, effects)
        and _has_arguments(rule, call.arguments)
        and (not rule.begins or _all_begin(rule.begins, request))
        and (not rule.definition or rule.definition == definition_digest(request.tool))
        and (not rule.after or any(fnmatchcase(name, rule.after) for name in _ran_before(request)))
    ):
        return None
    action = _on_paths(rule, effects) if rule.paths else rule.action
    if action in _ALLOWING and any(protected_at(key[5:]) for key in effects.writes if key.startswith("file:")):
        return "escalate"  # a rule is not meant for the program's own files
    return action


def _has_effects(rule: Rule, effects: Effects) -> bool:
    match rule.effects:
        case "any":
            return True
        case "reads":
            return effects.declared and effects.read_only and not effects.external
        case "writes":
            # A call that does not declare its writes does not pass as a mere write.
            return bool(effects.writes) and (effects.declared or rule.action not in _ALLOWING)
        case "external":
            return effects.external
        case "undeclared":
            return not effects.declared
        case "destructive":
            return bool(effects.writes) and effects.destructive


def _all_begin(prefixes: Sequence[str], request: ApprovalRequest) -> bool:
    line = request.command_line
    return line is not None and all_begin(line, prefixes)


def _has_arguments(rule: Rule, arguments: Mapping[str, JSON]) -> bool:
    patterns = rule.arguments or {}
    if rule.exact:
        return same_json(patterns, arguments)
    for name, pattern in patterns.items():
        if name not in arguments:
            return False
        value = arguments[name]
        if isinstance(pattern, str) and isinstance(value, str):
            if not fnmatchcase(value, pattern):
                return False
        elif type(pattern) is not type(value) or pattern != value:
            return False
    return True


def _ran_before(request: ApprovalRequest) -> Iterator[str]:
    """The names of the run's earlier calls that ran or are to run, and the sources on the web that it has read."""
    yield from (call.name for call in request.earlier)
    if request.state is not None:
        yield from request.state.sources
        yield from tools_called(request.state.messages)


def tools_called(messages: Iterable[Message]) -> Iterator[str]:
    """The names of the tools whose calls ran in a conversation, also of those that programs called."""
    for message in messages:
        yield from cast("Iterable[str]", message.extra.get(CALLS_WITHIN, ()))
        for result in message.results:
            if result.code not in _NEVER_RAN:
                yield result.name
                yield from cast("Iterable[str]", result.extra.get(CALLS_WITHIN, ()))


def _on_paths(rule: Rule, effects: Effects) -> RuleAction | None:
    keys = effects.reads | effects.writes
    if rule.action in _ALLOWING:
        fits = keys and effects.declared and all(_is_among(rule.paths, key, strict=True) for key in keys)
        return rule.action if fits else None
    if any(_is_among(rule.paths, key) for key in keys):
        return rule.action
    # The call names too little to be sure: a person decides.
    return "escalate" if any(_lies_above(key, pattern) for key in keys for pattern in rule.paths) else None


def _is_among(patterns: Sequence[str], key: str, *, strict: bool = False) -> bool:
    if strict and ".." in key.replace(":", "/", 1).split("/"):
        return False
    return any(_fits(pattern, key) for pattern in patterns)


def _fits(pattern: str, key: str) -> bool:
    if ":" in pattern or pattern == EVERYTHING:
        return fnmatchcase(key, pattern)
    if pattern.startswith("/"):
        return fnmatchcase(key, f"file:{pattern}")
    return fnmatchcase(key.rpartition("/")[2].rpartition(":")[2], pattern)


def _lies_above(key: str, pattern: str) -> bool:
    """Whether a resource of this key may hold resources that the pattern means."""
    if key == EVERYTHING or key.endswith(":"):
        return True
    whole = pattern if ":" in pattern else f"file:{pattern}" if pattern.startswith("/") else ""
    fixed_part = whole[: min((whole.index(mark) for mark in "*?[" if mark in whole), default=len(whole))]
    return bool(fixed_part) and covers(key, fixed_part)


def _answer(action: RuleAction, rule: Rule, request: ApprovalRequest, by: str) -> ApprovalAnswer:
    match action:
        case "approve":
            return Decision(True, rule.reason, by)
        case "modify":
            return Decision(True, rule.reason, by, arguments={**request.call.arguments, **(rule.change or {})})
        case "reject":
            return Decision(False, rule.reason, by)
        case "terminate":
            return Decision(False, rule.reason, by, ends_run=True)
        case "escalate":
            return Escalate(rule.reason or "a rule leaves it to a person")


class StandingRules:
    """The rules that came from "always". They answer what a person would be asked. Iterating lists them, oldest first.

    `changed` is called with the rules after every change, to store them (`dumps`).
    """

    def __init__(
        self, rules: Iterable[StandingRule] = (), on_change: Callable[[StandingRules], None] = lambda _: None
    ) -> None:
        self._on_change = on_change
        self._last = 0
        self._rules: dict[str, StandingRule] = {}
        self._hold(rules)

    def _hold(self, rules: Iterable[StandingRule]) -> None:
        self._rules = {each.id: each for each in rules}
        self._last = max([self._last, *(int(each) for each in self._rules if each.isdigit())])

    def _by_id(self) -> dict[str, StandingRule]:
        """The rules as they are now. A subclass may look them up."""
        return self._rules

    def __iter__(self) -> Iterator[StandingRule]:
        return iter(tuple(self._by_id().values()))

    def __len__(self) -> int:
        return len(self._by_id())

    def add(self, rule: Rule, by: str = "") -> StandingRule:
        """Adds a rule, unless it is there. Raises ConfigurationError for a rule that contradicts itself."""
        check_rule(rule)
        for standing_rule in self._by_id().values():
            if standing_rule.rule == rule:
                return standing_rule
        self._last += 1
        standing = StandingRule(str(self._last), rule, by)
        self._rules[standing.id] = standing
        self._on_change(self)
        return standing

    def revoke(self, rule_id: str) -> StandingRule:
        """Removes a rule: the next such call is asked about again. Raises ConfigurationError for an unknown id."""
        if rule_id not in (rules := self._by_id()):
            rule_ids = ", ".join(rules) or "none"
            raise ConfigurationError(f"there is no rule {rule_id!r}; the rules are: {rule_ids}")
        revoked_rule = rules.pop(rule_id)
        self._on_change(self)
        return revoked_rule

    def decide(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Returns the answer of the oldest rule that fits; an approval if several together let each command of a line
        pass."""
        rules = self._by_id().values()
        for each in rules:
            action = fitting(each.rule, request)
            if action is not None:
                return _answer(action, each.rule, request, f"rule {each.id}")
        # Of `git status && pytest` one rule may know the first command, and another one the second.
        parts = [
            each for each in rules if each.rule.begins and fitting(replace(each.rule, begins=()), request) == "approve"
        ]
        if parts and _all_begin([prefix for each in parts for prefix in each.rule.begins], request):
            return Decision(True, by=f"rules {', '.join(each.id for each in parts)}")
        return None

    def dumps(self) -> str:
        """The rules as text, one JSON object a line."""
        return "".join(dumps(each) + "\n" for each in self._by_id().values())

    @classmethod
    def loads(cls, text: str, on_change: Callable[[StandingRules], None] = lambda _: None) -> StandingRules:
        """Reads the rules that `dumps` wrote. Raises FormatError for anything else."""
        return cls((_read(line, number) for number, line in enumerate(text.splitlines(), 1) if line.strip()), on_change)


async def record_decision(
    fact: ApprovalDecided, record: Callable[[Event], Awaitable[None]], rules: StandingRules
) -> None:
    """Records a decision, then keeps the rule that comes with it ("always"), so that no rule lacks its record."""
    await record(fact)
    if fact.always is not None:
        rules.add(fact.always, fact.by)


def _read(line: str, number: int) -> StandingRule:
    value = loads(line)
    if not isinstance(value, StandingRule):
        raise FormatError(f"line {number}: expected a StandingRule, found {type(value).__name__}")
    return value
