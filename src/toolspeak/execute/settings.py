"""What an executor gives each of its batches."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.data.values import quick
from toolspeak.execute.call_interceptors import Interceptor
from toolspeak.execute.calls.observe import Observer
from toolspeak.execute.calls.replay import Replayer, ResultRecorder
from toolspeak.execute.calls.results import ResultCap
from toolspeak.execute.calls.secrets import Secrets
from toolspeak.execute.concurrency.limits import Concurrency
from toolspeak.execute.concurrency.schedule import ScheduleName
from toolspeak.execute.entries import Stopping


@quick()
class ExecutionSettings:
    """See `Executor`; `tool_timeout` is in seconds."""

    schedule: ScheduleName
    concurrency: Concurrency
    pipeline: Sequence[Interceptor]
    secrets: Secrets
    tool_timeout: float | None
    cap: ResultCap
    stopping: Stopping = Stopping()
    observers: tuple[Observer, ...] = ()
    recorder: ResultRecorder | None = None
    replayer: Replayer | None = None
