"""What the batches of one run share."""

from __future__ import annotations

from dataclasses import field

from toolspeak.data.values import quick
from toolspeak.execute.calls.observe import LocalDetails
from toolspeak.execute.calls.result_cache import ResultCache
from toolspeak.execute.concurrency.limits import Concurrency, Limiter, OrphanedCalls
from toolspeak.execute.concurrency.timers import Timers
from toolspeak.tools.tool import Tool


@quick(frozen=False, eq=False)
class RunScope:
    """Lives in one event loop, as long as its run: the slots for calls, the calls that were orphaned in their
    threads, the results of reads that still hold, what of the run's calls is in no record (`details`, by call id), and
    the `timers`, if somebody closes them at the run's end (else each batch has its own)."""

    orphans: OrphanedCalls = field(default_factory=OrphanedCalls)
    result_cache: ResultCache = field(default_factory=ResultCache)
    timers: Timers | None = None
    details: dict[str, LocalDetails] = field(default_factory=dict[str, LocalDetails])
    _run: Limiter | None = None
    _threads: Limiter | None = None
    _tools: dict[str, Limiter] = field(default_factory=dict[str, Limiter])

    def limiters(self, tool: Tool, limits: Concurrency) -> tuple[Limiter, ...]:
        """Where a call of this tool needs a slot before it runs, besides its batch's; the tool's own is last."""
        needed: tuple[Limiter, ...] = ()
        if tool.is_async and tool.max_concurrent is None and limits.run is None:
            return needed
        if limits.run is not None:
            if self._run is None:
                self._run = Limiter(limits.run)
            needed = (self._run,)
        if not tool.is_async:
            if self._threads is None:
                self._threads = Limiter(limits.threads)
            needed = (*needed, self._threads)
        own = self.own_limiter(tool)
        return needed if own is None else (*needed, own)

    def own_limiter(self, tool: Tool) -> Limiter | None:
        """The limiter of a tool that limits itself."""
        if tool.max_concurrent is None:
            return None
        if tool.name not in self._tools:
            self._tools[tool.name] = Limiter(tool.max_concurrent)
        return self._tools[tool.name]
