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
from toolspeak.execute.executor import Executor
from toolspeak.execute.interceptors import Answer, Block, Interceptor, Proceed
from toolspeak.execute.schedule import ScheduleName, plan
from toolspeak.execute.secrets import Secrets

__all__ = [
    "Answer",
    "ApprovalRequest",
    "Approver",
    "Batch",
    "BatchContext",
    "Block",
    "Decision",
    "Doubts",
    "Emit",
    "Executor",
    "InDoubt",
    "Interceptor",
    "Proceed",
    "ScheduleName",
    "Secrets",
    "approve_all",
    "approve_none",
    "plan",
    "resolve_approver",
]
