"""Recorded results of calls, with which a run is replayed without calling its tools."""

from __future__ import annotations

from typing import Protocol

from toolspeak.data.events import SubRunUsed
from toolspeak.data.messages import ToolCall, ToolResult
from toolspeak.data.values import quick
from toolspeak.errors import AgentStop


@quick()
class RecordedResult:
    """The result of a call's function, before any interceptor changed it, and in its full length.

    - `stop`: the stop that the function raised, if it ended the run.
    - `recalled`: whether the result came from the result cache.
    - `skipped`: whether the function was not called: for want of time, because of another call under way, or because it
      may have run before.
    - `sub_run_usage`: the usage of the runs that the function started.
    """

    result: ToolResult
    stop: AgentStop | None = None
    recalled: bool = False
    skipped: bool = False
    sub_run_usage: tuple[SubRunUsed, ...] = ()


class CassetteResults(Protocol):
    """Records the results of calls."""

    def keep(self, call: ToolCall, recorded_result: RecordedResult) -> None: ...

    def keep_preview(self, call: ToolCall, preview: str) -> None:
        """Records the preview that was shown with the question about the call."""
        ...


class Replayer(Protocol):
    """Gives recorded results instead of calling functions."""

    def play(self, call: ToolCall) -> RecordedResult:
        """Returns the recorded result of the call. Raises ReplayDiverged without one, or if its call differs."""
        ...

    def cached_result(self, call: ToolCall) -> ToolResult | None:
        """Returns the result that the result cache gave instead of the call's own; None if it gave none."""
        ...

    def skipped_result(self, call: ToolCall) -> ToolResult | None:
        """Returns the result of a call whose function was not called; None if it was called."""
        ...

    def unasked_result(self, call: ToolCall) -> ToolResult | None:
        """Returns the result of a call whose function was not called, and about which nobody was asked."""
        ...

    def preview(self, call: ToolCall) -> str:
        """Returns the preview that was shown with the question about the call."""
        ...
