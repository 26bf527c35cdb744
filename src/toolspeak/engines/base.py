"""The contract of an engine: who drives a run, and when. The journal stays the truth of the run."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol, TypeAlias

from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.journal.base import Journal


@quick()
class Delivery:
    """One request of an engine to a worker: drive this run.

    - `run_id`: the run. A run that is unknown to the journal, has ended or waits is no error: the handler returns.
    - `agent`: the name of the agent that the run was enqueued for.
    - `principal`: on whose behalf the run acts.
    - `attempt`: 1 for the first delivery since the last that came to an end, one more for each whose handler raised
      or, where the engine counts those, whose worker died.
    - `takes_over`: the engine knows that the worker of the run's last delivery is gone. It is the engine's name then,
      and the handler takes over, at once, a lease that a worker of this engine holds. None: a lease that is held makes
      the handler return later.
    """

    run_id: str
    agent: str
    principal: str | None = None
    attempt: int = 1
    takes_over: str | None = None


RunHandler: TypeAlias = Callable[[Delivery], Awaitable[float | None]]
"""Drives a run until it ends, waits or the worker drains. Returns when the engine calls it again for this run (Unix
seconds; a time in the past means at once), or None: the run has ended, or waits for an outside event, and whoever
brings that event enqueues the run. If it raises, the engine calls it again after a pause of its own."""


@quick()
class WorkLimits:
    """How many runs one worker drives at the same time; None is no limit.

    - `concurrency`: in all.
    - `per_agent`: of one agent, by its name.
    - `per_principal`: of one principal; runs without one are not limited.
    """

    concurrency: int = 50
    per_agent: Mapping[str, int] | None = None
    per_principal: int | None = None


class Engine(Protocol):
    """Decides which worker drives a run, and when.

    `name` stands in the leases of the engine's workers. It is the same in all processes of one queue, and another one
    for another queue. It holds no white space.
    """

    name: str

    async def enqueue(self, run_id: str, *, agent: str, principal: str | None = None, at: float | None = None) -> None:
        """Asks that the run be driven, from `at` on (Unix seconds; None: now). Returns once that is durable.

        The run is in the journal already. Repeating it is harmless: an earlier time replaces a later one. For a run
        that is under way the engine calls the handler once more when it has returned, so no wake-up is lost.
        """
        ...

    async def work(
        self, handler: RunHandler, *, agents: Collection[str], limits: WorkLimits, stop: asyncio.Event
    ) -> None:
        """Calls the handler for each due run of these agents, until `stop` is set. Then it delivers nothing more and
        returns once the handlers that are under way have returned.

        Of one run, at most one handler drives it at a time: the one that holds the run's lease. An engine with a queue
        of its own (`takes_over`) calls no other meanwhile, unless it believes that a worker is dead which is not; the
        lease's epoch fences that worker. The embedded engine has no queue: two workers may call their handlers for one
        run at the same moment, and the one that does not get the lease returns. Cancelling this cancels the handlers,
        whose runs are delivered again.

        Raises ConfigurationError for a limit that the engine does not have.
        """
        ...

    async def aclose(self) -> None:
        """Closes connections."""
        ...


_ENGINES: Mapping[str, tuple[str, str, str]] = {
    "embedded": ("embedded_engine", "EmbeddedEngine", ""),
    "queue": ("queue_engine", "QueueEngine", "queue"),
    "restate": ("restate_engine", "RestateEngine", "restate"),
    "dbos": ("dbos_engine", "DbosEngine", "dbos"),
}
"""The module, the class and the extra of the engine for each scheme of a URL. A class is called with the URL and the
journal."""


def open_engine(url: str | None, journal: Journal) -> Engine:
    """Returns the engine that a URL names, over a journal; None is `embedded:`. It opens no connection.

    Raises ConfigurationError for an unknown scheme, and when the extra that the engine needs is not installed.
    """
    scheme = (url or "embedded:").partition(":")[0]
    if scheme not in _ENGINES:
        schemes = ", ".join(f"{each}:" for each in _ENGINES)
        raise ConfigurationError(f"no engine is known for {url!r}; write a URL that begins with one of: {schemes}")
    module, name, extra = _ENGINES[scheme]
    try:
        engine = importlib.import_module(f"toolspeak.engines.{module}")
    except ImportError as error:
        raise ConfigurationError(f"the engine {scheme}: needs: pip install 'toolspeak[{extra}]'") from error
    return getattr(engine, name)(url or "embedded:", journal)
