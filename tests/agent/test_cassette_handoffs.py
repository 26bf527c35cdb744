"""A run that other agents continue, recorded in one cassette and replayed."""

from __future__ import annotations

import asyncio
import json

import pytest
from agent_helpers import WatchedJournal

from toolspeak import Agent, ConfigurationError, Effects, tool
from toolspeak.agent import Cassette
from toolspeak.errors import ReplayDiverged
from toolspeak.testing import ScriptedCall, ScriptedProvider, ScriptedTurn


def calling(tool_name: str, **arguments) -> ScriptedTurn:
    return ScriptedTurn("", calls=[ScriptedCall(tool_name, arguments)])


TURNS = [
    calling("greet", name="Ada"),
    calling("transfer_to_billing"),
    calling("refund", amount=3),
    calling("transfer_to_reception"),
    "Bye.",
]


def as_text(turn: ScriptedTurn | str) -> str:
    if isinstance(turn, str):
        return turn
    calls = [{"name": call.name, "args": call.arguments} for call in turn.calls]
    return f"<execute>{json.dumps(calls)}</execute>"


class Desks:
    """A reception and a billing desk, which hand off to each other, with one cassette. `payments` is what was paid."""

    def __init__(self, cassette, *, native=True, journal=None, approve="all", instructions=""):
        self.payments = []

        @tool(effects=Effects(writes={"account"}))
        def refund(amount: int) -> str:
            "Refunds."
            self.payments.append(amount)
            return f"refunded {amount}"

        @tool(read_only=True)
        def greet(name: str) -> str:
            "Greets."
            return f"Hello, {name}."

        turns = [] if cassette.replays else TURNS if native else [as_text(turn) for turn in TURNS]
        self.billing = Agent(
            ScriptedProvider(turns, follow=True, tools=native, name="back"),
            [refund],
            name="billing",
            instructions=instructions,
            handoffs=["reception"],
            cassette=cassette,
        )
        self.reception = Agent(
            ScriptedProvider(turns, follow=True, tools=native, name="front"),
            [greet],
            name="reception",
            handoffs=[self.billing],
            cassette=cassette,
            approve=approve,
            journal=journal,
        )


def texts(result) -> list[str]:
    return [each.result.text for step in result.steps for each in step.executions]


@pytest.mark.parametrize("native", [True, False])
def test_a_run_that_is_handed_over_is_recorded_and_replayed(tmp_path, native):
    path = tmp_path / "run.jsonl"
    first = Desks(Cassette.record(path), native=native)
    recording = first.reception.run_sync("My money, please.")
    assert (recording.answer, recording.agent, first.payments) == ("Bye.", "reception", [3])

    cassette = Cassette.replay(path)
    second = Desks(cassette, native=native)
    replay = second.reception.run_sync("My money, please.")
    assert (replay.answer, replay.agent, second.payments) == ("Bye.", "reception", [])
    assert texts(replay) == texts(recording)
    assert [step.message for step in replay.steps] == [step.message for step in recording.steps]
    assert cassette.requests_left == 0


def test_a_replay_in_which_the_second_agent_is_another_one_diverges(tmp_path):
    path = tmp_path / "run.jsonl"
    Desks(Cassette.record(path)).reception.run_sync("My money, please.")
    with pytest.raises(ReplayDiverged, match="model request 3 of 5"):
        Desks(Cassette.replay(path), instructions="Refund less.").reception.run_sync("My money, please.")


def test_an_approval_that_the_second_agent_waits_for_is_recorded_and_replayed(tmp_path):
    async def work():
        path, journal = tmp_path / "run.jsonl", WatchedJournal()
        first = Desks(Cassette.record(path), approve=None, journal=journal)
        paused_run = await first.reception.run("My money, please.")
        assert paused_run.status == "awaiting_approval"
        recording = await first.reception.resume(paused_run.run_id, {paused_run.waiting[0]: True})
        assert (recording.answer, first.payments) == ("Bye.", [3])

        second = Desks(Cassette.replay(path), approve=None, journal=WatchedJournal())
        again = await second.reception.run("My money, please.")
        assert (again.status, again.waiting) == ("awaiting_approval", paused_run.waiting)
        replay = await second.reception.resume(again.run_id, {again.waiting[0]: True})
        assert (replay.answer, second.payments, texts(replay)) == ("Bye.", [], texts(recording))

    asyncio.run(work())


def test_the_first_agents_approver_answers_for_the_second_and_its_answer_is_recorded(tmp_path):
    path, questions = tmp_path / "run.jsonl", []

    async def approve(request) -> bool:
        questions.append(request.call.name)
        return True

    recording = Desks(Cassette.record(path), approve=approve).reception.run_sync("My money, please.")
    assert (recording.answer, questions) == ("Bye.", ["refund"])
    replay = Desks(Cassette.replay(path), approve=approve).reception.run_sync("My money, please.")
    assert (replay.answer, questions, texts(replay)) == ("Bye.", ["refund"], texts(recording))


def test_another_process_goes_on_with_the_recording(tmp_path):
    async def work():
        path, journal = tmp_path / "run.jsonl", WatchedJournal()
        paused_run = await Desks(Cassette.record(path), approve=None, journal=journal).reception.run(
            "My money, please."
        )
        other = Desks(Cassette.record(path, go_on=True), approve=None, journal=journal)
        recording = await other.reception.resume(paused_run.run_id, {paused_run.waiting[0]: True})
        assert (recording.answer, other.payments) == ("Bye.", [3])
        replay = await Desks(Cassette.replay(path, pauses=False), approve=None).reception.run("My money, please.")
        assert (replay.answer, texts(replay)) == ("Bye.", texts(recording))

    asyncio.run(work())


def test_agents_of_one_run_share_their_cassette_and_others_do_not(tmp_path):
    model = ScriptedProvider([])
    shared_cassette, other = Cassette.record(tmp_path / "shared.jsonl"), Cassette.record(tmp_path / "other.jsonl")
    one = Agent(model, name="one", cassette=shared_cassette)
    without = Agent(model, name="without")
    for settings in (
        {"cassette": other, "handoffs": [one]},
        {"handoffs": [one]},
        {"cassette": Cassette.record(tmp_path / "third.jsonl"), "handoffs": [without]},
    ):
        with pytest.raises(ConfigurationError, match="give both the same"):
            Agent(model, name="two", **settings)
    with pytest.raises(ConfigurationError, match="is recorded by another agent"):
        Agent(model, name="one", cassette=shared_cassette)

    apart = Cassette.record(tmp_path / "apart.jsonl")
    first, second = (Agent(ScriptedProvider(["Hello."]), name=name, cassette=apart) for name in ("first", "second"))
    for agent in (first, second):
        with pytest.raises(ConfigurationError, match=r"to which hand-offs of .* do not lead"):
            agent.run_sync("Hello?")
