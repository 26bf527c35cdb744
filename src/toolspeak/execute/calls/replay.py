"""What came of calls, kept so that a run can be played again without them."""

from __future__ import annotations

from typing import Protocol

from toolspeak.data.events import SubRunUsed
from toolspeak.data.messages import ToolCall, ToolResult
from toolspeak.data.values import quick
from toolspeak.errors import AgentStop


@quick()
class RecordedResult:
    """What a tool's function brought, before any interceptor changed it and however long it is. `stop` is set if it
    ended the run, `recalled` if the run remembered an earlier call's result in its place, `skipped` if the function was
    not called (for want of time, because of a call under way, or because nobody knows whether it ran before). `spent`
    is what runs have used that it started."""

    result: ToolResult
    stop: AgentStop | None = None
    recalled: bool = False
    skipped: bool = False
    spent: tuple[SubRunUsed, ...] = ()


class ResultRecorder(Protocol):
    """Keeps what comes of the calls."""

    def keep(self, call: ToolCall, recorded: RecordedResult) -> None: ...

    def keep_preview(self, call: ToolCall, preview: str) -> None:
        """What was shown to whoever was asked about the call."""
        ...


class Replayer(Protocol):
    """Says what came of the calls: no function is called."""

    def play(self, call: ToolCall) -> RecordedResult:
        """What came of the call. Raises ReplayDiverged for one that was not recorded, or not like this."""
        ...

    def recalled(self, call: ToolCall) -> ToolResult | None:
        """The result of an earlier call, if that was given in place of this one's."""
        ...

    def skipped(self, call: ToolCall) -> ToolResult | None:
        """The result of a call whose function was not called."""
        ...

    def preview(self, call: ToolCall) -> str:
        """What was shown to whoever was asked about the call."""
        ...
