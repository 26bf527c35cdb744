"""Runs the calls of a model: in order, concurrently where possible, with approval where needed; each has a result."""

from toolspeak.data.approvals import Decision, Escalate, Rule, RuleAction, StandingRule
from toolspeak.execute.approval.after_web import AfterWeb
from toolspeak.execute.approval.approvers import (
    ApprovalRequest,
    Approve,
    Approver,
    BatchApprover,
    Policy,
    approve_all,
    approve_none,
    check_decision,
    resolve_approver,
)
from toolspeak.execute.approval.policy_rules import StandingRules, rules_policy
from toolspeak.execute.batch_context import (
    ANSWERED_FROM,
    BatchContext,
    BatchExecutor,
    BatchPaused,
    BatchResult,
    Emit,
    Pause,
    RunScope,
)
from toolspeak.execute.calls.observe import (
    NO_DETAILS,
    LocalDetails,
    Observer,
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallStarted,
    ToolExecution,
)
from toolspeak.execute.calls.replay import CassetteResults, RecordedResult, Replayer
from toolspeak.execute.calls.secrets import Secrets
from toolspeak.execute.concurrency.limits import Concurrency, Timers
from toolspeak.execute.concurrency.schedule import ScheduleName, Wait, hints, plan, waits
from toolspeak.execute.executor import Executor
from toolspeak.execute.hooks import (
    Answer,
    Block,
    HookContext,
    HookError,
    HookNotes,
    Interceptor,
    InterceptorChain,
    Level,
    Proceed,
    hook_facts,
    in_order,
)
from toolspeak.execute.invocation import EarlyStart
from toolspeak.execute.recovery import NONE_IN_DOUBT, CallsInDoubt, InDoubtPolicy

__all__ = [
    "ANSWERED_FROM",
    "NONE_IN_DOUBT",
    "NO_DETAILS",
    "AfterWeb",
    "Answer",
    "ApprovalRequest",
    "Approve",
    "Approver",
    "BatchApprover",
    "BatchContext",
    "BatchExecutor",
    "BatchPaused",
    "BatchResult",
    "Block",
    "CallsInDoubt",
    "CassetteResults",
    "Concurrency",
    "Decision",
    "EarlyStart",
    "Emit",
    "Escalate",
    "Executor",
    "HookContext",
    "HookError",
    "HookNotes",
    "InDoubtPolicy",
    "Interceptor",
    "InterceptorChain",
    "Level",
    "LocalDetails",
    "Observer",
    "Pause",
    "Policy",
    "Proceed",
    "RecordedResult",
    "Replayer",
    "Rule",
    "RuleAction",
    "RunScope",
    "ScheduleName",
    "Secrets",
    "StandingRule",
    "StandingRules",
    "Timers",
    "ToolCallBlocked",
    "ToolCallCompleted",
    "ToolCallStarted",
    "ToolExecution",
    "Wait",
    "approve_all",
    "approve_none",
    "check_decision",
    "hints",
    "hook_facts",
    "in_order",
    "plan",
    "resolve_approver",
    "rules_policy",
    "waits",
]
