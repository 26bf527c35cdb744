"""The ways to start a run of an agent.

Each has two signatures: `deps` may be left out only by an agent whose `deps_type` allows None.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator
from typing import Any, Generic, Unpack, cast, overload

from toolspeak.agent.options import CommonOptions, DepsT, RunOptions
from toolspeak.agent.recording.recorder import StreamItem
from toolspeak.agent.result import RunResult
from toolspeak.agent.run import Run
from toolspeak.agent.state.output import OutputT
from toolspeak.agent.state.state import RunState
from toolspeak.agent.storage.sessions import SessionTip
from toolspeak.agent.streams import StreamedOutput, stream_output, stream_text
from toolspeak.agent.sync import run_sync
from toolspeak.data.messages import Message


class RunStarter(Generic[DepsT, OutputT]):
    """What `Agent` inherits: `run` and the other methods that start a run."""

    @abstractmethod
    def start_after(self, place: SessionTip | None, task: str | Message, options: RunOptions) -> Run[OutputT]:
        """As `start`, in a session: the run follows the messages of the session until this place."""

    @abstractmethod
    async def finish(self, run: Run[OutputT]) -> RunResult[OutputT]:
        """Drives a run until it ends or pauses. Raises as `run`."""

    @overload
    def start(
        self: RunStarter[None, OutputT], task: str | Message, *, deps: None = None, **options: Unpack[CommonOptions]
    ) -> Run[OutputT]: ...

    @overload
    def start(self, task: str | Message, *, deps: DepsT, **options: Unpack[CommonOptions]) -> Run[OutputT]: ...

    def start(self, task: str | Message, **options: Any) -> Run[OutputT]:
        """Returns a run that has not begun. `finish`, `states` or `stream` drives it, `say` queues a user message.

        Secrets in the task become placeholders. Raises ConfigurationError for an unknown option, a value of the wrong
        type, missing `deps` that a tool needs, and a limit in USD on a model without a known price.
        """
        return self.start_after(None, task, cast("RunOptions", options))

    @overload
    async def run(
        self: RunStarter[None, OutputT], task: str | Message, *, deps: None = None, **options: Unpack[CommonOptions]
    ) -> RunResult[OutputT]: ...

    @overload
    async def run(
        self, task: str | Message, *, deps: DepsT, **options: Unpack[CommonOptions]
    ) -> RunResult[OutputT]: ...

    async def run(self, task: str | Message, **options: Any) -> RunResult[OutputT]:
        """Runs a task until it ends, waits for approval or is suspended. Options as in `start`.

        Raises ProviderError when the model API fails; its `result` holds the run until then. Cancelling it cancels the
        model request and the tools.

        In a tool, with the `parent_run_id` of the tool's run, this is a sub-run. A sub-run that pauses raises
        SubRunPaused. The call of the tool has no result then, and its run pauses with the sub-run's questions. Once
        they are decided the tool is called again, and this continues the same sub-run. What else the tool does
        happens a second time.
        """
        return await self.finish(self.start(task, **options))

    @overload
    def run_sync(
        self: RunStarter[None, OutputT], task: str | Message, *, deps: None = None, **options: Unpack[CommonOptions]
    ) -> RunResult[OutputT]: ...

    @overload
    def run_sync(self, task: str | Message, *, deps: DepsT, **options: Unpack[CommonOptions]) -> RunResult[OutputT]: ...

    def run_sync(self, task: str | Message, **options: Any) -> RunResult[OutputT]:
        """As `run`, for code without an event loop or inside of one (Jupyter). Ctrl-C cancels the run."""
        return run_sync(self.run(task, **options))

    @overload
    def iterate(
        self: RunStarter[None, OutputT], task: str | Message, *, deps: None = None, **options: Unpack[CommonOptions]
    ) -> AsyncGenerator[RunState]: ...

    @overload
    def iterate(
        self, task: str | Message, *, deps: DepsT, **options: Unpack[CommonOptions]
    ) -> AsyncGenerator[RunState]: ...

    def iterate(self, task: str | Message, **options: Any) -> AsyncGenerator[RunState]:
        """Yields the state after each step, the final one last."""
        return self.start(task, **options).states()

    @overload
    def stream(
        self: RunStarter[None, OutputT], task: str | Message, *, deps: None = None, **options: Unpack[CommonOptions]
    ) -> AsyncGenerator[StreamItem]: ...

    @overload
    def stream(
        self, task: str | Message, *, deps: DepsT, **options: Unpack[CommonOptions]
    ) -> AsyncGenerator[StreamItem]: ...

    def stream(self, task: str | Message, **options: Any) -> AsyncGenerator[StreamItem]:
        """Yields deltas as they come, and records once they are durable, `RunFinished` or `RunPaused` last."""
        return self.start(task, **options).stream()

    @overload
    def stream_text(
        self: RunStarter[None, OutputT],
        task: str | Message,
        *,
        accumulated: bool = False,
        deps: None = None,
        **options: Unpack[CommonOptions],
    ) -> AsyncGenerator[str]: ...

    @overload
    def stream_text(
        self, task: str | Message, *, accumulated: bool = False, deps: DepsT, **options: Unpack[CommonOptions]
    ) -> AsyncGenerator[str]: ...

    def stream_text(self, task: str | Message, *, accumulated: bool = False, **options: Any) -> AsyncGenerator[str]:
        """Yields the model's text as it comes: pieces, or the turn's text so far (`accumulated`). See
        `toolspeak.agent.stream_text`, which takes a run."""
        return stream_text(self.start(task, **options), accumulated=accumulated)

    @overload
    def stream_output(
        self: RunStarter[None, OutputT], task: str | Message, *, deps: None = None, **options: Unpack[CommonOptions]
    ) -> AsyncGenerator[StreamedOutput[OutputT]]: ...

    @overload
    def stream_output(
        self, task: str | Message, *, deps: DepsT, **options: Unpack[CommonOptions]
    ) -> AsyncGenerator[StreamedOutput[OutputT]]: ...

    def stream_output(self, task: str | Message, **options: Any) -> AsyncGenerator[StreamedOutput[OutputT]]:
        """Yields the answer so far, then the validated whole, which says `is_final`. See
        `toolspeak.agent.stream_output`, which takes a run."""
        return stream_output(self.start(task, **options))
