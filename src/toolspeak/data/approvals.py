"""Questions about calls that need approval, decisions about them, and the rules that decide without a question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from toolspeak.data.messages import JSON, ToolCall, no_extra
from toolspeak.data.tools import Effects
from toolspeak.data.values import value

RuleAction = Literal["approve", "modify", "reject", "escalate", "terminate"]
"""Run the call; run it with other arguments; refuse it; let a person decide; refuse it and end the run."""

EffectKind = Literal["any", "reads", "writes", "external", "undeclared", "destructive"]
"""The effects that a rule fits: `reads` is read-only on this machine, `writes` any change of it."""


@value()
class Rule:
    """What becomes of the calls that it fits. It fits a call if every condition holds.

    - `action`: what happens to the call.
    - `tool`: a pattern of tool names (`*`, `?`, `[…]`).
    - `paths`: patterns of the resources that the call touches, see below.
    - `effects`: the kind of effects.
    - `arguments`: arguments that the call must have; a string is a pattern.
    - `after`: a pattern of tool names, or of hosts of the web (`web:*`); such a call must have run earlier in the run,
      or text of such a host must have come into it, also by a sub-run.
    - `change`: with "modify", the arguments to set.
    - `reason`: the reason for the model, or for the person who is asked.
    - `definition`: the digest of the tool's definition that the rule holds for; "" is any.
    - `begins`: command prefixes, see below.
    - `exact`: `arguments` are all arguments of the call, and their strings are no patterns.

    `begins` is for tools that run command lines (`ToolSpec.command_line`): every command of the line begins with the
    words of one of these (`git status`, `pytest`). A line that may hold more than plain commands never fits: one with
    substitutions, redirections, background commands, groups, assignments.

    `paths` are whole keys (`file:/srv/src/*`, `db:users`), paths from the root (`/srv/src/*`, meaning `file:`), or a
    name without a slash (`*.env`), which is that of the last part. `*` also matches slashes. A rule that lets calls
    pass fits only if all resources of the call match. One that refuses fits if any does; a call that touches more than
    it names (`*`, or a folder above the pattern) is escalated.
    """

    action: RuleAction
    tool: str = "*"
    paths: tuple[str, ...] = ()
    effects: EffectKind = "any"
    arguments: Mapping[str, JSON] | None = None
    after: str = ""
    change: Mapping[str, JSON] | None = None
    reason: str = ""
    definition: str = ""
    begins: tuple[str, ...] = ()
    exact: bool = False


@value()
class StandingRule:
    """A rule that `by` added with "always". Its `id` revokes it."""

    id: str
    rule: Rule
    by: str = ""


@value()
class Decision:
    """The answer to a question about a call.

    - `approved`: whether the call may run.
    - `reason`: of a refusal, for the model.
    - `by`: who decided.
    - `arguments`: approves the call with these arguments instead; they are validated like a model's.
    - `ends_run`: a refusal that ends the run.
    - `always`: a rule to add, so that similar calls need no question.
    - `digest`: that of the request (`ApprovalRequest.digest`). An approval that comes later than its question holds
      only for that tool and those arguments.
    """

    approved: bool
    reason: str = ""
    by: str = ""
    arguments: Mapping[str, JSON] | None = None
    ends_run: bool = False
    always: Rule | None = None
    digest: str = ""

    @property
    def action(self) -> RuleAction:
        if self.approved:
            return "approve" if self.arguments is None else "modify"
        return "terminate" if self.ends_run else "reject"


@value()
class Escalate:
    """No decision: a person must decide.

    - `reason`: the reason for that person.
    - `person`: from a policy: neither a standing rule nor `approve="all"` may answer instead.
    """

    reason: str = ""
    person: bool = False


@value()
class ApprovalRequested:
    """A call waits for an approval."""

    call_id: str
    """The call's id. For a call of a sub-run it begins with the first 8 characters of the sub-run's id and a slash."""
    reason: str
    """Why the call needs an approval."""
    call: ToolCall
    """The call as it would run."""
    effects: Effects
    """What the call touches."""
    preview: str = ""
    """What the call would change: a unified diff, a command."""
    digest: str = ""
    """SHA-256 (hex) of the tool's definition, the arguments and the effects. A decision holds for this digest alone."""
    definition: str = ""
    """SHA-256 (hex) of the tool's definition, for which a rule of this question holds; "" in records of earlier
    versions."""
    begins: tuple[str, ...] = ()
    """How each command of the call begins; () if it runs none, or one that its beginning does not identify."""
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ApprovalDecided:
    """A decision about a request; or, without a request, why nobody was asked about a call: an interceptor decided, or
    the policy or a rule approved it.

    - `call_id`: the call's id.
    - `digest`: that of the request, as it was or would be.
    - `approved`, `reason`, `by`, `arguments`, `ends_run`, `always`: as in `Decision`.
    """

    call_id: str
    approved: bool
    reason: str = ""
    by: str = ""
    digest: str = ""
    arguments: Mapping[str, JSON] | None = None
    ends_run: bool = False
    always: Rule | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)
