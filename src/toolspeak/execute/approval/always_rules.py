"""The rules that a person may add with "always", made of a question as it is recorded and shown. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

from toolspeak.data.approvals import ApprovalRequested, Rule
from toolspeak.data.tools import WEB, Effects
from toolspeak.errors import ConfigurationError

AlwaysScope: TypeAlias = Literal["tool", "commands", "host", "call"]
"""Which calls an "always" approves: see `ApprovalRequest.always`."""


def always_rule(question: ApprovalRequested, scope: AlwaysScope) -> Rule:
    """The rule that approves such calls while the tool's definition stays as it was for the question.

    Raises ConfigurationError for "commands" and "host" if the call has none that identify it, and for a question that
    an earlier toolspeak recorded, which does not name the tool's definition.
    """
    if not question.definition:
        raise ConfigurationError(
            "the question does not say which definition of the tool it is about, because an earlier toolspeak recorded"
            " it: approve this call alone"
        )
    rule = Rule("approve", tool=literal(question.call.name), definition=question.definition)
    if scope == "call":
        return replace(rule, arguments=question.call.arguments, exact=True)
    if scope == "host":
        hosts = web_hosts(question.effects)
        if not hosts:
            raise ConfigurationError("this call does not only read hosts of the web")
        return replace(rule, paths=tuple(map(literal, hosts)))
    if scope == "commands":
        if not question.begins:
            raise ConfigurationError("this call does not run plain commands that could be told by how they begin")
        effects = question.effects
        only_reads = effects.declared and effects.read_only and not effects.external
        return replace(rule, begins=question.begins, effects="reads" if only_reads else "any")
    return rule


def web_hosts(effects: Effects) -> tuple[str, ...]:
    """The hosts of the web that such a call reads, as resources; () if it touches anything else."""
    keys = effects.reads
    is_of_web = effects.read_only and effects.declared and all(key.startswith(WEB) for key in keys)
    return tuple(sorted(keys)) if is_of_web and WEB not in keys else ()


def literal(name: str) -> str:
    """A pattern that matches this text alone."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)
