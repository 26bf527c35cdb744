"""What is decided about a call that waits for a yes, and the rules that decide without asking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from toolspeak.data.messages import JSON
from toolspeak.data.values import value

Action = Literal["approve", "modify", "reject", "escalate", "terminate"]
"""Run the call; run it with other arguments; refuse it; let a person decide; refuse it and end the run."""

EffectKind = Literal["any", "reads", "writes", "external", "undeclared", "destructive"]
"""What a rule looks for in a call's effects: `reads` is read-only on this machine, `writes` any change of it."""


@value()
class Rule:
    """What is to become of the calls it fits; it fits if all that it says does.

    `tool` and `after` are patterns of tool names (`*`, `?`, `[…]`); `after` asks for such a call earlier in the run.
    `arguments` are values the call must have, a text being a pattern. `change` goes with "modify": the arguments to
    set. `definition` is the digest of the tool's definition that the rule holds for; "" is any. `exact`: `arguments`
    are all that the call has, and their texts are no patterns.

    `begins` is for tools that run command lines (`ToolSpec.command_line`): every command of the line begins with the
    words of one of these (`git status`, `pytest`). A line that is not certain to hold only plain commands never fits:
    one with substitutions, redirections, background commands, groups, assignments.

    `paths` are patterns of the resources that a call touches: whole keys (`file:/srv/src/*`, `db:users`), paths from
    the root (`/srv/src/*`, meaning `file:`), or a name without a slash (`*.env`), which is that of the last part. `*`
    also stands for slashes. A rule that lets calls pass fits only if all the call's resources are among them. One that
    refuses fits if any is; a call that touches more than it names (`*`, or a folder above the pattern) is escalated.
    """

    action: Action
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
    """A rule that is kept because `by` said "always"; `id` is what revokes it."""

    id: str
    rule: Rule
    by: str = ""


@value()
class Decision:
    """A yes or a no. `reason` of a no goes to the model; `by` says who decided.

    `arguments`: a yes to the call with these in place of its own; they are validated like a model's. `ends_run`: a no
    after which nothing more runs. `always` is a rule to keep, so that the like is not asked again. `digest` is that of
    the request that was decided (`ApprovalRequest.digest`): a yes that comes later than its question holds for that
    tool and those arguments alone.
    """

    approved: bool
    reason: str = ""
    by: str = ""
    arguments: Mapping[str, JSON] | None = None
    ends_run: bool = False
    always: Rule | None = None
    digest: str = ""

    @property
    def action(self) -> Action:
        if self.approved:
            return "approve" if self.arguments is None else "modify"
        return "terminate" if self.ends_run else "reject"


@value()
class Escalate:
    """No decision: somebody further up is asked, in the end a person; `reason` tells them why. `person`, of a policy:
    neither a kept rule nor `approve="all"` answers in their place."""

    reason: str = ""
    person: bool = False
