"""Running the calls a model made: in order, at once, with a yes where one is needed; each with a result."""

from toolspeak.data.approvals import Action, Decision, Escalate, Rule, StandingRule
from toolspeak.execute.approval import (
    ApprovalRequest,
    Approve,
    Approver,
    BatchApprover,
    Policy,
    approve_all,
    approve_none,
    resolve_approver,
)
from toolspeak.execute.batch import Batch, BatchContext, BatchExecutor, Emit
from toolspeak.execute.doubts import NO_DOUBTS, Doubts, InDoubt
from toolspeak.execute.early import EarlyStart
from toolspeak.execute.executor import Executor
from toolspeak.execute.gates import Concurrency
from toolspeak.execute.hooks import Answer, Block, HookContext, HookError, HookNotes, Level, Passage, applied, in_order
from toolspeak.execute.interceptors import Interceptor, Proceed
from toolspeak.execute.meant import check_decision
from toolspeak.execute.observe import (
    NO_ASIDE,
    Aside,
    Observer,
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallStarted,
    ToolExecution,
)
from toolspeak.execute.pause import BatchPaused, Pause
from toolspeak.execute.recall import ANSWERED_FROM
from toolspeak.execute.report import Wait, hints, waits
from toolspeak.execute.rules import StandingRules, rules_policy
from toolspeak.execute.schedule import ScheduleName, plan
from toolspeak.execute.scope import RunScope
from toolspeak.execute.secrets import Secrets
from toolspeak.execute.tape import Playback, Tape, Taped
from toolspeak.execute.timers import Timers

__all__ = [
    "ANSWERED_FROM",
    "NO_ASIDE",
    "NO_DOUBTS",
    "Action",
    "Answer",
    "ApprovalRequest",
    "Approve",
    "Approver",
    "Aside",
    "Batch",
    "BatchApprover",
    "BatchContext",
    "BatchExecutor",
    "BatchPaused",
    "Block",
    "Concurrency",
    "Decision",
    "Doubts",
    "EarlyStart",
    "Emit",
    "Escalate",
    "Executor",
    "HookContext",
    "HookError",
    "HookNotes",
    "InDoubt",
    "Interceptor",
    "Level",
    "Observer",
    "Passage",
    "Pause",
    "Playback",
    "Policy",
    "Proceed",
    "Rule",
    "RunScope",
    "ScheduleName",
    "Secrets",
    "StandingRule",
    "StandingRules",
    "Tape",
    "Taped",
    "Timers",
    "ToolCallBlocked",
    "ToolCallCompleted",
    "ToolCallStarted",
    "ToolExecution",
    "Wait",
    "applied",
    "approve_all",
    "approve_none",
    "check_decision",
    "hints",
    "in_order",
    "plan",
    "resolve_approver",
    "rules_policy",
    "waits",
]
