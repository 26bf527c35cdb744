"""What an executor gives each of its batches."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.data.values import quick
from toolspeak.execute.entries import Stopping
from toolspeak.execute.gates import Concurrency
from toolspeak.execute.interceptors import Interceptor
from toolspeak.execute.observe import Observer
from toolspeak.execute.results import ResultCap
from toolspeak.execute.schedule import ScheduleName
from toolspeak.execute.secrets import Secrets
from toolspeak.execute.tape import Playback, Tape


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
    tape: Tape | None = None
    playback: Playback | None = None
