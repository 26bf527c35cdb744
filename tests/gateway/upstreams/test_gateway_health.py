"""When an upstream is asked, in which order, and what comes of a request where some fail."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak.errors import ProviderError
from toolspeak.gateway.upstreams.load_balancing import Pool, UpstreamRequest, in_order
from toolspeak.gateway.upstreams.upstream_health import DOUBLINGS, FAILURES, HEALTHY, LONGEST_WAIT, Health
from toolspeak.wire.error_table import RETRYABLE

SECONDS = st.floats(0, 1e6, allow_nan=False)
CHANCE = st.floats(0, 1, exclude_max=True)
LABELS = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=6, unique=True)


@given(SECONDS, CHANCE)
def test_so_many_failures_in_a_row_put_it_aside(now: float, chance: float):
    health = HEALTHY
    for _ in range(FAILURES - 1):
        health = health.after_failure(now, 5, chance)
        assert health.is_asked
    assert health.after_answer() == HEALTHY
    health = health.after_failure(now, 5, chance)
    assert not health.is_asked
    assert not health.is_due(now)
    assert now + 2.5 <= health.until <= now + 5


@given(st.lists(CHANCE, min_size=1, max_size=20))
def test_a_trial_that_fails_puts_it_aside_for_longer_each_time_up_to_a_bound(chances: list[float]):
    now, health = 0.0, HEALTHY
    for _ in range(FAILURES):
        health = health.after_failure(now, 5, 0)
    for times, chance in enumerate(chances, 1):
        now = health.until
        assert health.is_due(now)
        assert health.probing().after_probe().after_request().state == "trial"
        health = health.probing().after_probe().after_request().after_failure(now, 5, chance, decides=True)
        longest = 5 * 2 ** min(times, DOUBLINGS)
        assert now + longest / 2 <= health.until <= now + longest


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["failed", "decided", "answered", "asked", "begun", "probing", "probed", "left"]),
            SECONDS,
            CHANCE,
            st.none() | SECONDS,
        )
    )
)
def test_whatever_happens_it_comes_back(course: list[tuple[str, float, float, float | None]]):
    """No course of events leaves an upstream where no time, probe or answer brings it back."""
    health, latest = HEALTHY, 0.0
    for what, now, chance, wait in course:
        latest = max(latest, now)
        match what:
            case "failed" | "decided":
                health = health.after_failure(latest, 5, chance, wait, decides=what == "decided")
            case "asked" if health.is_asked:
                health = health.after_request()
            case "begun":
                health = health.after_first_piece()
            case "probing" if health.is_due(latest):
                health = health.probing()
            case "probed":
                health = health.after_probe()
            case "left":
                health = health.after_abandoned_trial()
            case "answered":
                health = health.after_answer()
            case _:
                pass
        assert health.until <= latest + max(LONGEST_WAIT, 5 * 2**DOUBLINGS)
    assert health.after_answer() == HEALTHY
    if health.state == "aside":
        assert health.is_due(health.until)
    else:
        assert health.is_asked or health.after_abandoned_trial().is_asked or health.after_probe().is_asked


def test_no_wait_at_all_puts_nothing_aside():
    """`Retry-After: 0`."""
    assert HEALTHY.after_failure(0, 5, 0, 0.0).is_asked


def test_failures_of_requests_that_were_begun_before_count_no_more():
    health = HEALTHY
    for _ in range(50):
        health = health.after_failure(0, 5, 0)
    assert health == Health("aside", 0, 1, 5)


@given(LABELS, st.integers(0, 1000))
def test_in_turn_each_is_as_often_the_first(labels: list[str], start: int):
    members = range(len(labels))
    rounds = [in_order("round_robin", labels, members, start + turn, "") for turn in range(3 * len(labels))]
    assert all(sorted(order) == list(members) for order in rounds)
    assert set(Counter(order[0] for order in rounds).values()) == {3}


@given(LABELS, st.lists(st.text(max_size=5).filter(bool), max_size=20), st.data())
def test_one_that_goes_moves_only_what_was_its_own(labels: list[str], prefixes: list[str], data: st.DataObject):
    members = list(range(len(labels)))
    removed_member = data.draw(st.sampled_from(members))
    rest = [member for member in members if member != removed_member]
    for turn, prefix in enumerate(prefixes):
        before = in_order("sticky", labels, members, turn, prefix)
        assert sorted(before) == members
        assert in_order("sticky", labels, rest, turn + 1, prefix) == [each for each in before if each != removed_member]


class FakeClock:
    """Sleeping takes no time, and goes by."""

    def __init__(self, chances: Iterator[float]) -> None:
        self.seconds = 0.0
        self._chances = chances

    def now(self) -> float:
        return self.seconds

    def random(self) -> float:
        return next(self._chances)

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        await asyncio.sleep(0)


OUTCOMES = st.sampled_from(["ok", "overloaded", "connection", "rate_limit", "not_found", "bad_request", "left"])


@given(
    st.lists(st.tuples(st.lists(OUTCOMES, min_size=3, max_size=3), st.floats(0, 30), st.booleans()), max_size=15),
    st.integers(0, 2),
    st.sampled_from(["round_robin", "sticky"]),
)
@settings(max_examples=fewer(200))
def test_no_request_fails_while_an_upstream_that_would_answer_was_not_asked(course, retries, policy):
    """Each is asked once in a round, and there is one round more than `retries` at most."""

    async def run() -> None:
        clock, probes = FakeClock(itertools.cycle([0.0, 0.5, 0.9])), [True]

        async def probe(_member: int) -> str:
            await asyncio.sleep(0)
            return "" if probes[0] else "nobody answers"

        pool = Pool("m", ["a", "b", "c"], policy, retries, 5.0, probe, clock=clock)
        for outcomes, pause, probes[0] in course:
            clock.seconds += pause
            members: list[int] = []

            async def ask(
                member: int, on_begin: Callable[[], None], outcomes: list[str] = outcomes, members: list[int] = members
            ) -> None:
                members.append(member)
                await asyncio.sleep(0)
                outcome = outcomes[member]
                if outcome in ("ok", "left"):
                    on_begin()
                if outcome != "ok":
                    code = "connection" if outcome == "left" else outcome
                    wait = 1.0 if outcome == "rate_limit" else None
                    raise ProviderError(outcome, code=code, retryable=code in RETRYABLE, retry_after=wait)

            def has_left(outcomes: list[str] = outcomes, members: list[int] = members) -> bool:
                return outcomes[members[-1]] == "left"

            upstream_failures: list[tuple[str, str]] = []
            outcome = "ok"
            try:
                await pool.serve(UpstreamRequest((0, 1, 2), ask, has_left, "p", upstream_failures))
            except ProviderError as error:
                outcome = str(error)
            last = outcomes[members[-1]]
            if outcome == "ok" or last in ("bad_request", "left"):
                assert outcome == last
            else:
                assert set(members) == {0, 1, 2}
                assert "ok" not in outcomes
            final = {"ok", "bad_request", "left"}
            assert all(outcomes[member] not in final for member in members[:-1])  # nothing is asked behind an answer
            assert max(Counter(members).values()) <= retries + 1
            assert len(upstream_failures) == len(members) - (outcomes[members[-1]] == "ok")

    asyncio.run(run())
