"""The rules that a question offers for "always", in words. Not read by a run whose calls nobody is asked about."""

from __future__ import annotations

from toolspeak.data.approvals import ApprovalRequested
from toolspeak.data.tools import WEB
from toolspeak.execute.approval.always_rules import AlwaysScope, web_hosts
from toolspeak.tools.files.text_format import visible


def rules_offered(question: ApprovalRequested) -> list[tuple[AlwaysScope, str]]:
    """The "always" rules that this question offers, each with its description; none for a question that an earlier
    toolspeak recorded."""
    if not question.definition:
        return []
    name, hosts = question.call.name, web_hosts(question.effects)
    commands = f"commands that begin with {' or '.join(map(repr, question.begins))}, with any arguments"
    reads = f"every call of {name} that reads {', '.join(each.removeprefix(WEB) for each in hosts)}"
    return [
        ("call", "exactly this call"),
        *([("commands", visible(commands))] if question.begins else []),
        *([("host", visible(reads))] if hosts else []),
        ("tool", visible(f"every call of {name}")),
    ]
