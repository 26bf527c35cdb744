"""Whether an upstream gets requests, decided by the results of its last ones. Pure: the caller passes time and
chance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from toolspeak.errors import ProviderError, ProviderErrorCode, ToolspeakError

FAILURES = 3
"""Failures in a row that put an upstream aside."""

DOUBLINGS = 4
"""An upstream stays aside twice as long each time in a row, 2 ** `DOUBLINGS` times the first time at most. Chance
shortens that by up to a half, so that several gateways do not all come back at once."""

LONGEST_WAIT = 60.0
"""The longest time, in seconds, for which a Retry-After puts an upstream aside."""

HealthState: TypeAlias = Literal["up", "aside", "probing", "answers", "trial"]
"""`aside`: it gets no requests until a time. `probing`: that time is over, and the gateway asks it for its models.
`answers`: it answered the probe, and the next request is a trial. `trial`: that request is under way."""

HEALTH_STATES: tuple[HealthState, ...] = get_args(HealthState)

_ELSEWHERE = frozenset[ProviderErrorCode](
    {
        *("authentication", "quota", "rate_limit", "overloaded", "connection", "not_found", "forgotten"),
        *("ill_formed", "other"),
    }
)
"""Failures that another upstream may not have. All others come from the request."""

FAULTS = _ELSEWHERE - {"not_found", "forgotten"}
"""Failures that count against the upstream. `not_found` and `forgotten` do not: it lacks this model or this
response."""


@dataclass(frozen=True, slots=True)
class Health:
    """The health of one upstream. `failures`: in a row, while it is up. `times`: in a row that it was put aside.
    `until`: the end of its time aside, in seconds of the caller's clock."""

    state: HealthState = "up"
    failures: int = 0
    times: int = 0
    until: float = 0.0

    @property
    def is_asked(self) -> bool:
        """Whether the upstream gets regular requests."""
        return self.state in ("up", "answers")

    def is_due(self, now: float) -> bool:
        """Whether its time aside is over, so that a probe is due."""
        return self.state == "aside" and now >= self.until

    def after_request(self) -> Health:
        """The health once a request is sent."""
        return replace(self, state="trial") if self.state == "answers" else self

    def probing(self) -> Health:
        """The health while the upstream is asked for its models."""
        return replace(self, state="probing")

    def after_probe(self) -> Health:
        """The health once the upstream has answered the probe."""
        return replace(self, state="answers") if self.state == "probing" else self

    def after_abandoned_trial(self) -> Health:
        """The health after a trial without a result, whose client went away. The next request is a trial again."""
        return replace(self, state="answers") if self.state == "trial" else self

    def handed_over(self) -> Health:
        """The health for a new pool of the same upstreams: requests of the old pool end unnoticed."""
        return replace(self, state="answers") if self.state in ("probing", "trial") else self

    def after_first_piece(self) -> Health:
        """The health once an answer begins, which may still break off. After a trial the upstream gets requests again;
        the first failure puts it aside for longer."""
        return Health("up", FAILURES - 1, self.times) if self.state == "trial" else self

    def after_answer(self) -> Health:
        """The health after a whole answer."""
        return HEALTHY

    def after_failure(
        self, now: float, aside: float, chance: float, wait: float | None = None, *, decides: bool = False
    ) -> Health:
        """The health after a failed request, whether it failed before its first byte or in its answer.

        `aside`: seconds aside the first time. `chance`: from 0 up to 1. `wait`: the seconds that the upstream asks
        clients to wait, which puts it aside at once. `decides`: the request was the trial or the probe. While an
        upstream is not up, other failures do not count: those requests began earlier, or had no other upstream.
        """
        if self.state != "up" and not decides:
            return self
        failures = self.failures + 1
        if self.state == "up" and failures < FAILURES and not wait:
            return replace(self, failures=failures)
        seconds = aside * 2 ** min(self.times, DOUBLINGS) * (1 - chance / 2)
        if wait:
            seconds = min(LONGEST_WAIT, wait) if self.state == "up" else max(seconds, min(LONGEST_WAIT, wait))
        return Health("aside", 0, self.times + 1, now + seconds)


HEALTHY = Health()


def allows_failover(error: ToolspeakError) -> bool:
    """Whether another upstream may answer the request. It also may if this one's API cannot express the request
    (ConfigurationError, FormatError)."""
    return error.code in _ELSEWHERE if isinstance(error, ProviderError) else True


def is_fault(error: ToolspeakError) -> bool:
    """Whether a failure counts against the upstream."""
    return isinstance(error, ProviderError) and error.code in FAULTS


def answered_by(error: ToolspeakError) -> bool:
    """Whether a failure shows that the upstream works: it answered, and refused the request."""
    return isinstance(error, ProviderError) and not is_fault(error)
