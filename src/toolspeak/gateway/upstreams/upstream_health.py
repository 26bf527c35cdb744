"""Whether an upstream is asked, by what its last requests came to. Pure: time and chance are passed in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from toolspeak.errors import ProviderError, ProviderErrorCode, ToolspeakError

FAILURES = 3
"""So many failures in a row put an upstream aside."""

DOUBLINGS = 4
"""The n-th time in a row it stays aside 2 ** (n - 1) times as long as the first time, 2 ** `DOUBLINGS` times at most.
Chance takes off up to a half of that, so that several gateways do not all come back at once."""

LONGEST_WAIT = 60.0
"""Seconds for which a Retry-After puts it aside at most."""

State: TypeAlias = Literal["up", "aside", "probing", "answers", "trial"]
"""`aside`: not asked until a time. `probing`: that time is over, and it is asked for its models. `answers`: it did
answer, and the next request may try it. `trial`: one request does."""

_ELSEWHERE = frozenset[ProviderErrorCode](
    {
        *("authentication", "quota", "rate_limit", "overloaded", "connection", "not_found", "forgotten"),
        *("ill_formed", "other"),
    }
)
"""Failures that another upstream may not have. The others are the request's own."""

FAULTS = _ELSEWHERE - {"not_found", "forgotten"}
"""Those of them that count against the upstream. The others say nothing of its health: it has not this model, or this
response."""


@dataclass(frozen=True, slots=True)
class Health:
    """Of one upstream. `failures` in a row while it is up; `times` in a row that it was put aside; `until`: a time on
    the clock that is passed in, in seconds."""

    state: State = "up"
    failures: int = 0
    times: int = 0
    until: float = 0.0

    @property
    def is_asked(self) -> bool:
        """Whether requests go there as to any other."""
        return self.state in ("up", "answers")

    def is_due(self, now: float) -> bool:
        """Whether it was aside for long enough to be probed."""
        return self.state == "aside" and now >= self.until

    def after_request(self) -> Health:
        """A request goes there."""
        return replace(self, state="trial") if self.state == "answers" else self

    def probing(self) -> Health:
        """It is asked for its models."""
        return replace(self, state="probing")

    def probed(self) -> Health:
        """It answered the probe."""
        return replace(self, state="answers") if self.state == "probing" else self

    def after_trial_left(self) -> Health:
        """A trial ended without a result: its client went away. The next request is one."""
        return replace(self, state="answers") if self.state == "trial" else self

    def handed_over(self) -> Health:
        """The health for a new pool of the same upstreams, which does not see the old pool's requests end."""
        return replace(self, state="answers") if self.state in ("probing", "trial") else self

    def after_first_piece(self) -> Health:
        """An answer begins to come, which may still break. After a trial other requests go there again; the first
        failure among them puts it aside for longer."""
        return Health("up", FAILURES - 1, self.times) if self.state == "trial" else self

    def answered(self) -> Health:
        """A request was answered to the end."""
        return HEALTHY

    def failed(
        self, now: float, aside: float, chance: float, wait: float | None = None, *, decides: bool = False
    ) -> Health:
        """A request failed, before its first byte or in the middle of its answer.

        `aside`: the seconds that it stays aside the first time. `chance` is from 0 up to 1. `wait`: the seconds that
        the upstream asks to wait, which puts it aside at once. `decides`: it was the trial or the probe. Other failures
        of one that is not up count no more: these requests were begun before, or had nowhere else to go.
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


def goes_elsewhere(error: ToolspeakError) -> bool:
    """Whether another upstream may answer what this one did not. It may also be able to what this one's API is not
    (ConfigurationError, FormatError)."""
    return error.code in _ELSEWHERE if isinstance(error, ProviderError) else True


def is_fault(error: ToolspeakError) -> bool:
    """Whether a failure counts against the upstream."""
    return isinstance(error, ProviderError) and error.code in FAULTS


def answered_by(error: ToolspeakError) -> bool:
    """Whether a failure shows that the upstream works: it answered that it cannot do this."""
    return isinstance(error, ProviderError) and not is_fault(error)
