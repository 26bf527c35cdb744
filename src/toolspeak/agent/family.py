"""Runs that were started by a tool of another run: what they use counts as their parent's too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from toolspeak.agent.state import RunState
from toolspeak.data.events import SubRunUsed
from toolspeak.data.messages import Usage
from toolspeak.errors import ToolspeakError

_GOING_ON: dict[str, Spending] = {}
"""The runs that go on in this process, by id: a sub-run knows no more of its parent than that (`parent_run_id`)."""


class Spending:
    """What a run uses: told to its parent as often as it comes to rest, and its own sub-runs' handed to `add`, in its
    event loop, while it goes on."""

    def __init__(self, run_id: str, add: Callable[[SubRunUsed], Awaitable[None]]) -> None:
        self._run_id = run_id
        self.add = add
        self.loop: asyncio.AbstractEventLoop | None = None
        self._told_usage, self._told_spent = Usage(), 0.0

    def begin(self) -> None:
        """From here on sub-runs may tell what they use."""
        self.loop = asyncio.get_running_loop()
        _GOING_ON[self._run_id] = self

    def end(self) -> None:
        """Of a sub-run that outlives the run nothing more is heard."""
        if _GOING_ON.get(self._run_id) is self:
            del _GOING_ON[self._run_id]

    def has_told(self, state: RunState | None) -> None:
        """A run that is resumed has told of what it used before."""
        if state is not None:
            self._told_usage, self._told_spent = state.usage, state.spent

    async def tell(self, state: RunState | None, agent: str) -> None:
        """Tells the run's parent, if it goes on in this process; it is recorded there when this returns. Being
        cancelled does not keep it from being told."""
        parent = _GOING_ON.get(state.parent_run_id or "") if state is not None else None
        if state is None or parent is None or state.usage == self._told_usage:
            return
        usage, spent = state.usage.since(self._told_usage), state.spent - self._told_spent
        self.has_told(state)
        used = SubRunUsed(state.run_id, agent, usage, state.tokens_estimated, None if state.unpriced else spent)
        telling = asyncio.ensure_future(_hand(parent, used))
        try:
            await asyncio.shield(telling)
        except asyncio.CancelledError:
            await asyncio.wait([telling])
            raise


async def _hand(parent: Spending, used: SubRunUsed) -> None:
    async def added() -> None:
        # A parent whose journal fails, or that was taken over, says so itself.
        with suppress(ToolspeakError):
            await parent.add(used)

    if parent.loop is None or parent.loop is asyncio.get_running_loop():
        await added()
        return
    work = added()
    try:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, parent.loop))
    except RuntimeError:  # its loop is closed: it is over
        work.close()
