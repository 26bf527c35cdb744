"""The phases of a call: the table of where each may lead, and what it refuses."""

from typing import get_args

import pytest
from executor_helpers import a_call

from toolspeak.data.messages import failure
from toolspeak.execute.batch_state import INTERRUPTIBLE, NEXT, Call, Phase

PHASES = get_args(Phase)


def test_every_phase_has_a_row_and_can_be_reached():
    assert set(NEXT) == set(PHASES)
    assert set().union(*NEXT.values()) == set(PHASES) - {"proposed"}


def test_the_last_phases_lead_nowhere():
    assert [phase for phase in PHASES if not NEXT[phase]] == ["postponed", "done"]


def test_nothing_is_interrupted_while_a_fact_is_recorded_or_before_its_task_has_begun():
    assert INTERRUPTIBLE.isdisjoint({"scheduled", "starting", "recording", "done"})


@pytest.mark.parametrize(
    ("phase", "following"),
    [("proposed", "scheduled"), ("pending", "scheduled"), ("admitted", "done"), ("resolved", "starting"),
     ("scheduled", "done"), ("running", "done"), ("recording", "starting"), ("done", "starting")],
)  # fmt: skip
def test_a_step_that_would_leave_out_a_fact_is_refused(phase, following):
    call = Call(a_call("look"), phase)
    with pytest.raises(AssertionError, match=f"from {phase} to {following}"):
        call.move(following)
    assert call.phase == phase


def test_a_call_that_has_its_result_does_not_run():
    call = Call(a_call("look"))
    call.resolve(failure(call.call, "blocked", "no"), "Guard")
    assert (call.phase, call.prepared_call, call.refused_by) == ("resolved", None, "Guard")
    with pytest.raises(AssertionError):
        call.move("starting")
