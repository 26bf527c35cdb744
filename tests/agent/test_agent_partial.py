"""What a model wrote of a turn that was cut off is kept, and is no answer."""

import asyncio

import pytest
from agent_helpers import OpenProvider, WatchedJournal, loop_clock, run_jumping

from toolspeak import Agent, Limits, ProviderError
from toolspeak.agent import fold
from toolspeak.agent.partial import EVERY
from toolspeak.data.deltas import TextDelta, TurnEnded
from toolspeak.data.events import ModelAnswered, ModelTextReceived
from toolspeak.providers import Capabilities
from toolspeak.providers.scripted import ScriptedProvider, ScriptedTurn
from toolspeak.ui.timeline import timeline

KEY = "sk-secret-4711"


class SlowProvider:
    """Writes its pieces, one a second, and its end with `ends`."""

    name, capabilities = "slow", Capabilities()

    def __init__(self, *pieces, ends=True):
        self.pieces, self.ends = pieces, ends

    async def stream(self, request):
        for piece in self.pieces:
            yield TextDelta(piece)
            await asyncio.sleep(1)
        if not self.ends:
            await asyncio.Event().wait()
        yield TurnEnded("stop")

    async def aclose(self):
        pass


def kept(journal):
    return "".join(event.text for event in journal.all(ModelTextReceived))


def test_a_turn_that_fails_in_the_middle_keeps_what_there_is():
    turn = ScriptedTurn("It is fo", error=ProviderError("down", status=503), reasoning="Let me see.")
    journal = WatchedJournal()
    with pytest.raises(ProviderError) as failed:
        asyncio.run(Agent(ScriptedProvider([turn]), journal=journal).run("go"))
    (event,) = journal.all(ModelTextReceived)
    assert (event.text, event.reasoning) == ("It is fo", "Let me see.")
    assert failed.value.result.answer == ""
    assert [message.role for message in failed.value.result.messages] == ["user"]
    assert "✂ cut off: It is fo" in "\n".join(timeline(journal.records))


def test_a_turn_that_the_time_limit_cuts_off_keeps_what_there_is():
    journal = WatchedJournal()
    provider = OpenProvider("It is ", "forty")
    agent = Agent(provider, journal=journal, limits=Limits(seconds=5), clock=loop_clock)
    result = run_jumping(agent.run("go"))
    assert result.status == "no_answer"
    assert kept(journal).startswith("It is forty")
    assert fold(journal.records) == result.state


def test_a_long_turn_is_recorded_as_it_comes_and_its_answer_is_whole():
    journal = WatchedJournal()
    pieces = [f"word{i} " for i in range(20)]
    result = run_jumping(Agent(SlowProvider(*pieces), journal=journal, clock=loop_clock).run("go"))
    assert result.answer == "".join(pieces).strip()
    events = journal.all(ModelTextReceived)
    assert 3 <= len(events) <= 20 / EVERY
    assert "".join(pieces).startswith("".join(event.text for event in events))
    (answered,) = journal.all(ModelAnswered)
    assert answered.message.text.split() == "".join(pieces).split()
    assert "cut off" not in "\n".join(timeline(journal.records))


def test_a_run_that_dies_in_the_middle_of_a_turn_has_its_text_and_asks_again():
    async def main(journal):
        agent = Agent(SlowProvider(*["one ", "two ", "three ", "four "], ends=False), journal=journal, clock=loop_clock)
        run = agent.start("go")
        working = asyncio.create_task(run.finish())
        await asyncio.sleep(30)
        working.cancel()
        await asyncio.wait([working])
        again = Agent(ScriptedProvider(["Five."]), journal=journal, clock=loop_clock)
        return await again.resume(run.run_id)

    journal = WatchedJournal()
    result = run_jumping(main(journal))
    assert kept(journal).startswith("one two ")
    assert result.answer == "Five."
    assert "✂ cut off: one two" in "\n".join(timeline(journal.records))


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_no_piece_holds_a_secret_or_the_beginning_of_one_that_is_recorded_apart(size):
    text = f"The key is {KEY}. Again: {KEY}{KEY}."
    journal = WatchedJournal()
    provider = SlowProvider(*[text[i : i + size] for i in range(0, len(text), size)])
    run_jumping(Agent(provider, journal=journal, secrets={"KEY": KEY}, clock=loop_clock).run("go"))
    pieces = [event.text for event in journal.all(ModelTextReceived)]
    assert "sk-" not in "".join(pieces)
    assert size > 3 or len(pieces) > 2
