"""What admission makes of a call: it may run, it has its result already, or it waits for an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

from toolspeak.data.messages import FailureCode, MalformedCall, TextPart, ToolCall, ToolResult
from toolspeak.data.tools import Effects
from toolspeak.data.values import quick
from toolspeak.errors import AgentStop
from toolspeak.execute.approval.approvers import ApprovalRequest
from toolspeak.execute.early import EarlyCall
from toolspeak.tools.tool import Tool


@final
@quick(frozen=False)
class Ready:
    """A call that may run. `arguments` hold revealed secrets and are for the function alone. `begun` is set when the
    function was entered already, while the model still wrote. `changed`: it is no longer what the model wrote; `note`
    tells the model so, if it should know."""

    call: ToolCall
    tool: Tool
    arguments: Mapping[str, Any]
    effects: Effects
    idempotency_key: str
    begun: EarlyCall | None = None
    changed: bool = False
    note: str = ""


@final
@quick()
class Settled:
    """A call that has its result without running now; `recorded` says whether the journal has it already. `by` is what
    refused it: an interceptor's name, or who decided."""

    result: ToolResult
    recorded: bool = False
    by: str = ""


@final
@dataclass(slots=True)
class Held:
    """A call that waits for an answer; `in_doubt` if it is one that was started before."""

    ready: Ready
    request: ApprovalRequest
    in_doubt: bool = False


Entry: TypeAlias = Ready | Settled | Held


@quick()
class Stopping:
    """When a batch ends before its end: at the first failure, at the first refusal."""

    on_failure: bool = False
    on_block: bool = False


REFUSED: frozenset[FailureCode] = frozenset({"blocked", "rejected"})
"""The codes of a call that was not let run."""


def stopped_result(call: ToolCall, stop: AgentStop) -> ToolResult:
    """The result of the call that stopped the run: it did what it was there for."""
    return ToolResult(call.id, call.name, "success", (TextPart(str(stop) or "the run stops here"),))


def call_of(entry: Entry) -> ToolCall | MalformedCall:
    """The call an entry is about; of one that is settled what its result says."""
    match entry:
        case Ready():
            return entry.call
        case Held():
            return entry.ready.call
        case Settled(result):
            return ToolCall(result.call_id, result.name, {})
