"""How a gateway stands, as the API says it. The values hold names of keys, never a key or its digest."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Protocol

from toolspeak.data.values import quick
from toolspeak.gateway.running_streams import RunningStream
from toolspeak.gateway.upstreams.upstream_health import HealthState
from toolspeak.gateway.usage.usage_values import UsageLimit


@quick()
class Latency:
    """Percentiles of the last minutes, in seconds, between the bounds of a histogram. `count`: of how many answers."""

    count: int
    p50: float
    p95: float
    p99: float


@quick()
class DialectStatus:
    """The calls of a model, as a dialect reads them.

    - `malformed`: calls that cannot be read. `forged`: results that the model made up. `repeated`: turns that it was
      asked for again.
    - `recent_calls`, `recent_malformed`: those of the last minutes.
    """

    model: str
    dialect: str
    calls: int
    malformed: int
    forged: int
    repeated: int
    recent_calls: int
    recent_malformed: int


@quick()
class ModelStatus:
    """The requests to a model. `errors`: answers with a status from 500 on, and streams that broke off. `first`: until
    the answer begins. `whole`: until it is over."""

    model: str
    requests: int
    errors: int
    recent_requests: int
    recent_errors: int
    input_tokens: int
    output_tokens: int
    first: Latency | None = None
    whole: Latency | None = None


@quick()
class UpstreamStatus:
    """An upstream of a model.

    - `names`: what clients call the models that it serves, the first of them.
    - `states`: in how many workers it is in each state.
    - `until`: when one that is aside is asked again (Unix seconds).
    - `active`: requests under way there.
    - `failures`: by the code of the error.
    - `failovers`: requests that it got because another upstream had failed.
    """

    model: str
    names: tuple[str, ...]
    upstream: str
    states: Mapping[HealthState, int]
    active: int
    requests: int
    failures: Mapping[str, int]
    failovers: int
    recent_requests: int
    recent_failures: int
    recent_failovers: int
    until: float | None = None


@quick()
class LimitStatus:
    """A limit of a key, and how much of it is in use."""

    limit: UsageLimit
    usage: int
    most: int


@quick()
class KeyStatus:
    """A key's usage: of today (UTC) if usage is stored, else since the start. `expires` is in Unix seconds."""

    name: str
    models: tuple[str, ...]
    requests: int
    refusals: int
    errors: int
    input_tokens: int
    output_tokens: int
    calls: int
    malformed: int
    limits: tuple[LimitStatus, ...] = ()
    expires: float | None = None


@quick()
class GatewayStatus:
    """How a gateway stands.

    - `time`, `since`: now, and the start, in Unix seconds.
    - `window`: how many seconds what is called recent goes back.
    - `workers`: processes. `active`, `queued`: requests under way, and those that wait for a place, of `places`.
    - `rejected`: requests that were not let in, by reason.
    - `usage_of`: "today", or "start" if no usage is stored.
    - `left_out`: how many models, upstreams and keys the lists leave out.
    - `problem`: why usage is missing.
    - `streams`: the requests that are answered now, those that began first.
    """

    time: float
    since: float
    window: float
    workers: int
    active: int
    queued: int
    places: int
    rejected: Mapping[str, int]
    upstreams: tuple[UpstreamStatus, ...]
    models: tuple[ModelStatus, ...]
    dialects: tuple[DialectStatus, ...]
    keys: tuple[KeyStatus, ...]
    usage_of: str
    left_out: int = 0
    problem: str = ""
    streams: tuple[RunningStream, ...] = ()


class GatewayWatch(Protocol):
    """How a gateway stands. `GatewayMonitor` implements it; it needs the extra `gateway`, which the runs do not."""

    def begin(self) -> None:
        """Begins to watch, in the event loop."""
        ...

    async def status(self) -> GatewayStatus: ...

    def events(self) -> AsyncGenerator[bytes]:
        """The status again and again, as server-sent events."""
        ...

    def close_streams(self) -> None: ...

    async def aclose(self) -> None: ...
