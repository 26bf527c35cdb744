"""Running the calls a model made: in order, at once, with a yes where one is needed; each with a result."""

from toolspeak.execute.approval import (
    ApprovalRequest,
    Approver,
    Decision,
    approve_all,
    approve_none,
    resolve_approver,
)
from toolspeak.execute.batch import Batch, BatchContext, Emit
from toolspeak.execute.doubts import Doubts, InDoubt
from toolspeak.execute.early import EarlyStart
from toolspeak.execute.executor import Executor
from toolspeak.execute.gates import Concurrency
from toolspeak.execute.interceptors import Answer, Block, Interceptor, Proceed
from toolspeak.execute.recall import ANSWERED_FROM
from toolspeak.execute.report import Wait, hints, waits
from toolspeak.execute.schedule import ScheduleName, plan
from toolspeak.execute.scope import RunScope
from toolspeak.execute.secrets import Secrets

__all__ = [
    "ANSWERED_FROM",
    "Answer",
    "ApprovalRequest",
    "Approver",
    "Batch",
    "BatchContext",
    "Block",
    "Concurrency",
    "Decision",
    "Doubts",
    "EarlyStart",
    "Emit",
    "Executor",
    "InDoubt",
    "Interceptor",
    "Proceed",
    "RunScope",
    "ScheduleName",
    "Secrets",
    "Wait",
    "approve_all",
    "approve_none",
    "hints",
    "plan",
    "resolve_approver",
    "waits",
]
