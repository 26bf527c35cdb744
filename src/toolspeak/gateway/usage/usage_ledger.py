"""One process's access to the usage store: what happens at the same time goes into one transaction."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace

from toolspeak.errors import JournalError
from toolspeak.gateway.settings.api_keys import Key
from toolspeak.gateway.settings.usage_settings import UsageSettings
from toolspeak.gateway.usage.usage_store import open_usage
from toolspeak.gateway.usage.usage_values import (
    Counts,
    StartRequest,
    UsageBatch,
    UsageDecision,
    UsageInProgress,
    day_of,
)

ASK_SECONDS = 5.0
"""How long a request waits for the store to say whether it may begin."""

END_SECONDS = 1.0
"""How long the end of an answer waits until its usage is counted. If that takes longer, it is counted later."""

MOST_MODELS = 100
"""How many models are counted separately for one key in a day: with a glob, clients may make up any number of names."""

OTHER_MODEL = "(other)"

_RETRY_SECONDS = 1.0
_REFUSED_SECONDS = 1.0
"""How long refused requests wait to be counted together."""

_KNOWN_SECONDS = 10.0
"""How long a refusal is repeated, at most, without a look at the store."""

_PRUNE_SECONDS = 3600.0

OnFailure = Callable[[Exception, Mapping[str, object] | None], None]


class Ledger:
    """Asks the store whether requests may begin, and stores what they used. For one event loop.

    Counts that the store does not take are stored later, so a store that fails for a while loses nothing. `on_failure`
    is called with each failure, and with the counts that are lost if the process ends before they are stored. Raises
    ConfigurationError for a store that does not exist.
    """

    def __init__(self, settings: UsageSettings, on_failure: OnFailure) -> None:
        self._settings = settings
        self._store = open_usage(settings.store)
        self._worker = secrets.token_hex(8)
        self._on_failure = on_failure
        self._counts: dict[tuple[str, str], Counts] = {}
        self._models: dict[str, set[str]] = {}
        self._finished_load: dict[str, UsageInProgress] = {}
        self._start_requests: list[tuple[StartRequest, asyncio.Future[UsageDecision]]] = []
        self._load: dict[str, UsageInProgress] = {}
        """The requests under way in this process according to the store, `_ended` included."""
        self._refusals: dict[Key, tuple[float, UsageDecision]] = {}
        self._wake = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None
        self._round_end: asyncio.Future[None] | None = None
        """Done when the store has what is counted so far, or has failed."""
        self._renewed_at = 0.0
        self._pruned_at = 0.0
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Raises JournalError if the store cannot be used."""
        await self._store.open()

    async def aclose(self) -> None:
        """Stores all counts, and that no request is in progress."""
        if self._task is not None:
            self._closing = True
            self._wake.set()
            await self._task
        with suppress(JournalError):
            await self._store.aclose()

    # --- what requests do ----------------------------------------------------------------------------------------

    def refusal(self, key: Key) -> UsageDecision | None:
        """The last refusal of a key, as long as it is valid."""
        refusal = self._refusals.get(key)
        if refusal is None:
            return None
        refused_at, verdict = refusal
        waited_seconds = asyncio.get_running_loop().time() - refused_at
        if waited_seconds >= min(verdict.seconds, _KNOWN_SECONDS):
            del self._refusals[key]
            return None
        standing = replace(verdict.standing, now=verdict.standing.now + waited_seconds)
        return replace(verdict, seconds=verdict.seconds - waited_seconds, standing=standing)

    async def ask(self, ask: StartRequest) -> UsageDecision:
        """Whether a request may begin. If it may, it is in progress until `end`. Raises JournalError if the store
        fails."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[UsageDecision] = loop.create_future()
        self._start_requests.append((ask, waiting))
        self._work_on()
        try:
            async with asyncio.timeout(ASK_SECONDS):
                verdict = await waiting
        except TimeoutError:
            raise JournalError(f"the usage store did not respond within {ASK_SECONDS:g} seconds") from None
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self._give_back(ask, waiting.result())  # the verdict arrived together with the cancellation
            raise
        if verdict.limit in ("requests_per_minute", "tokens_per_day"):
            self._refusals[ask.key] = (loop.time(), verdict)
        return verdict

    def count(self, key: str, model: str, counts: Counts) -> None:
        """Counts what a request used."""
        names = self._models.setdefault(key, set())
        if len(names) >= MOST_MODELS and model not in names:
            model = OTHER_MODEL
        names.add(model)
        self._counts[key, model] = self._counts.get((key, model), Counts()).plus(counts)
        if counts != Counts(refused=1):
            self._work_on()
        elif self._later is None or self._later.when() <= asyncio.get_running_loop().time():
            # A client that is refused may ask again at once, for hours.
            self._later = asyncio.get_running_loop().call_later(_REFUSED_SECONDS, self._work_on)

    def end(self, ask: StartRequest) -> None:
        """Ends a request that a verdict let begin."""
        name = ask.key.name
        self._finished_load[name] = self._finished_load.get(name, UsageInProgress()).plus(ask.load)
        self._work_on()

    async def wait_for_store(self) -> None:
        """Returns once the store has the counts so far, has failed, or takes too long."""
        if self._round_end is None:
            self._round_end = asyncio.get_running_loop().create_future()
        self._work_on()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await asyncio.shield(self._round_end)

    # --- what goes to the store ----------------------------------------------------------------------------------

    def _work_on(self) -> None:
        self._wake.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        while not self._closing:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.lease_seconds / 3 if self._load else None):
                    await self._wake.wait()
            self._wake.clear()
            if not self._closing:
                await self._settle()
                await self._prune()
        await self._settle()

    async def _settle(self) -> None:
        now = asyncio.get_running_loop().time()
        renews = now - self._renewed_at >= self._settings.lease_seconds / 3
        requests = [(ask, waiting) for ask, waiting in self._start_requests if not waiting.done()]
        counts, ended_load, round_end = self._counts, self._finished_load, self._round_end
        self._start_requests, self._counts, self._finished_load, self._round_end = [], {}, {}, None
        names = {*ended_load, *(ask.key.name for ask, _ in requests), *(self._load if renews or self._closing else ())}
        load = {
            name: self._load.get(name, UsageInProgress()).minus(ended_load.get(name, UsageInProgress()))
            for name in names
        }
        if self._closing:
            load = dict.fromkeys(load, UsageInProgress())
        try:
            if names or counts:
                batch = UsageBatch(
                    self._worker, self._settings.lease_seconds, counts, load, [ask for ask, _ in requests]
                )
                await self._take(batch, [waiting for _, waiting in requests])
                self._renewed_at = now if renews else self._renewed_at
        except Exception as error:  # noqa: BLE001 - whatever it is, keep the counts and ask for later requests
            self._keep(counts, ended_load)
            for _, waiting in requests:
                if not waiting.done():
                    waiting.set_exception(JournalError(str(error)))
            self._on_failure(error, self._unstored_counts() if self._closing else None)
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._wake.set)
        finally:
            if round_end is not None and not round_end.done():
                round_end.set_result(None)

    async def _take(self, batch: UsageBatch, waiting: list[asyncio.Future[UsageDecision]]) -> None:
        outcome = await self._store.settle(batch)
        for name, load in outcome.load.items():
            if load.streams:
                self._load[name] = load
            else:
                self._load.pop(name, None)
        for ask, future, verdict in zip(batch.start_requests, waiting, outcome.verdicts, strict=True):
            if future.done():  # its request no longer waits
                self._give_back(ask, verdict)
            else:
                future.set_result(verdict)

    def _give_back(self, ask: StartRequest, verdict: UsageDecision) -> None:
        if verdict.limit is None:
            self.end(ask)

    def _keep(self, counts: Mapping[tuple[str, str], Counts], ended_load: Mapping[str, UsageInProgress]) -> None:
        for row, more in counts.items():
            self._counts[row] = self._counts.get(row, Counts()).plus(more)
        for name, load in ended_load.items():
            self._finished_load[name] = self._finished_load.get(name, UsageInProgress()).plus(load)

    def _unstored_counts(self) -> Mapping[str, object]:
        return {"lost": [{"key": key, "model": model, **asdict(each)} for (key, model), each in self._counts.items()]}

    async def _prune(self) -> None:
        now = time.time()
        if 0 <= now - self._pruned_at < _PRUNE_SECONDS:
            return
        if self._pruned_at and day_of(now) != day_of(self._pruned_at):
            self._models.clear()
        self._pruned_at = now
        try:
            await self._store.prune(self._settings.retention_days)
        except Exception as error:  # noqa: BLE001 - whatever it is, ask for later requests
            self._on_failure(error, None)
