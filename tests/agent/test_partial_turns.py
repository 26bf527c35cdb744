"""What a model wrote of a turn that was cut off is kept, and is no answer."""

import asyncio
import json

import pytest
from agent_helpers import OpenProvider, WatchedJournal

from jumping_loop import loop_clock, run_jumping
from toolspeak import Agent, Effects, Execution, JournalError, Limits, ProviderError, tool
from toolspeak.agent import fold
from toolspeak.agent.turn_checkpoint import FLUSH_CHARACTERS, FLUSH_SECONDS
from toolspeak.data.deltas import ReasoningDelta, TextDelta, TurnEnded
from toolspeak.data.events import ModelAnswered, ModelTextReceived
from toolspeak.providers import Capabilities
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn
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


def recorded_text(journal):
    return "".join(event.text for event in journal.all(ModelTextReceived))


def test_a_turn_that_fails_in_the_middle_keeps_what_there_is():
    turn = ScriptedTurn("It is fo", error=ProviderError("down", status=503), reasoning="Let me see.")
    journal = WatchedJournal()
    with pytest.raises(ProviderError) as raised_error:
        asyncio.run(Agent(ScriptedProvider([turn]), journal=journal).run("go"))
    (event,) = journal.all(ModelTextReceived)
    assert (event.text, event.reasoning) == ("It is fo", "Let me see.")
    assert raised_error.value.result.answer == ""
    assert [message.role for message in raised_error.value.result.messages] == ["user"]
    assert "✂ cut off: It is fo" in "\n".join(timeline(journal.records))


def test_a_turn_that_the_time_limit_cuts_off_keeps_what_there_is():
    journal = WatchedJournal()
    provider = OpenProvider("It is ", "forty")
    agent = Agent(provider, journal=journal, limits=Limits(seconds=5), clock=loop_clock)
    result = run_jumping(agent.run("go"))
    assert result.status == "no_answer"
    assert recorded_text(journal).startswith("It is forty")
    assert fold(journal.records) == result.state


def test_a_long_turn_is_recorded_as_it_comes_and_its_answer_is_whole():
    journal = WatchedJournal()
    pieces = [f"word{i} " for i in range(20)]
    result = run_jumping(Agent(SlowProvider(*pieces), journal=journal, clock=loop_clock).run("go"))
    assert result.answer == "".join(pieces).strip()
    events = journal.all(ModelTextReceived)
    assert 3 <= len(events) <= 20 / FLUSH_SECONDS
    assert "".join(pieces).startswith("".join(event.text for event in events))
    (answer,) = journal.all(ModelAnswered)
    assert answer.message.text.split() == "".join(pieces).split()
    assert "cut off" not in "\n".join(timeline(journal.records))


class Feed:
    """A provider that writes pieces at given times (seconds) and then nothing. `deliveries` has both."""

    name, capabilities = "feed", Capabilities()

    def __init__(self, *pieces, kind=TextDelta):
        self.pieces, self.kind, self.deliveries = pieces, kind, []
        self.all_sent = asyncio.Event()

    async def stream(self, request):
        for seconds, piece in self.pieces:
            await asyncio.sleep(seconds)
            self.deliveries.append((loop_clock(), piece))
            yield self.kind(piece)
        self.all_sent.set()
        await asyncio.Event().wait()

    async def aclose(self):
        pass


@pytest.mark.parametrize("kind", [TextDelta, ReasoningDelta])
def test_a_process_that_is_killed_loses_no_more_than_half_a_second_of_a_turn(kind):
    provider = Feed(*[(0.07, f"word{i} ") for i in range(30)], (3, "after a pause "), (60, "late"), kind=kind)
    journal = WatchedJournal()

    async def main():
        working = asyncio.create_task(Agent(provider, journal=journal, clock=loop_clock).start("go").finish())
        looks = 0
        while len(provider.deliveries) < 32 or loop_clock() < provider.deliveries[-1][0] + 1:
            await asyncio.sleep(0.05)
            old = "".join(
                piece for sent_at, piece in provider.deliveries if sent_at < loop_clock() - FLUSH_SECONDS - 0.01
            )
            for _ in range(5):  # what was due is on its way into the journal
                await asyncio.sleep(0)
            # This is all that another process would find.
            text = "".join(event.text + event.reasoning for event in journal.all(ModelTextReceived))
            assert text.startswith(old)
            looks += bool(old)
        working.cancel()
        await asyncio.wait([working])
        assert looks > 50

    run_jumping(main())
    assert FLUSH_SECONDS == 0.5
    assert len(journal.all(ModelTextReceived)) < 10


def test_no_more_than_a_few_kilobytes_wait():
    provider = Feed(*[(0.0, "0123456789" * 10)] * 200)
    journal = WatchedJournal()

    async def main():
        working = asyncio.create_task(Agent(provider, journal=journal, clock=loop_clock).start("go").finish())
        while len(provider.deliveries) < 200:
            await asyncio.sleep(0)
            assert (
                sum(len(piece) for _, piece in provider.deliveries) - len(recorded_text(journal))
                <= FLUSH_CHARACTERS + 100
            )
        working.cancel()
        await asyncio.wait([working])

    run_jumping(main())
    assert len(recorded_text(journal)) == 20_000


CUT_OFF = [
    ("cogency-json", '<execute>[{"name": "write", "arguments": {"path": "a.txt", "content": "half a le'),
    ("cogency-xml", "Now.\n<execute>\n<write><path>a.txt</path><content>half a le"),
    ("hermes", "Now.\n<tool_call>"),
    ("auto", "I think `a` and <exe"),
]


@pytest.mark.parametrize(("dialect", "text"), CUT_OFF)
@pytest.mark.parametrize("end", ["cancelled", "failed", "resumed"])
def test_a_call_that_was_half_written_is_kept_as_it_was(dialect, text, end):
    @tool(effects=lambda path: Effects(writes={path}))
    def write(path: str, content: str) -> str:
        "Writes."
        raise AssertionError

    journal = WatchedJournal()
    failing = ScriptedProvider([ScriptedTurn(text, error=ProviderError("down"))], chunk=3)
    provider = failing if end == "failed" else Feed(*[(0.01, letter) for letter in text])
    agent = Agent(provider, [write], dialect=dialect, journal=journal, clock=loop_clock)

    async def main():
        run = agent.start("go")
        working = asyncio.create_task(run.finish())
        if end != "failed":
            await provider.all_sent.wait()
            working.cancel()
        await asyncio.wait([working])
        assert working.cancelled() or isinstance(working.exception(), ProviderError)
        if end == "resumed":
            again = Agent(ScriptedProvider(["Five."]), [write], dialect=dialect, journal=journal, clock=loop_clock)
            assert (await again.resume(run.run_id)).answer == "Five."

    run_jumping(main())
    assert recorded_text(journal) == text
    assert "✂ cut off: " in "\n".join(timeline(journal.records)) or end == "cancelled"
    assert not journal.results()


def test_a_native_call_that_was_half_written_is_kept():
    @tool(read_only=True)
    def read(path: str) -> str:
        "Reads."
        raise AssertionError

    calls = [ScriptedCall("read", {"path": "a.txt"}), ScriptedCall("read", {"path": "b.txt"})]
    turn = ScriptedTurn("Let me see.", calls=calls, error=ProviderError("down"), chunk=3)
    journal = WatchedJournal()
    with pytest.raises(ProviderError):
        asyncio.run(
            Agent(ScriptedProvider([turn]), [read], journal=journal, execution=Execution(early_start=False)).run("go")
        )
    first, second, third = recorded_text(journal).split("\n")
    assert first == "Let me see."
    assert (second[:5], json.loads(second[5:])) == ("read ", {"path": "a.txt"})
    assert (third[:5], json.loads(third[5:])) == ("read ", {"path": "b.txt"})


def test_what_is_read_is_kept_of_a_driver_that_does_not_tell_what_it_hears():
    class Own:
        name, starts_early = "own", False

        def prompt(self, request):
            return ""

        def open(self, run):
            return self

        async def turn(self, request):
            yield TextDelta("It is ")
            yield ReasoningDelta("thinking")
            raise ProviderError("down")

        async def aclose(self):
            pass

    journal = WatchedJournal()
    with pytest.raises(ProviderError):
        asyncio.run(Agent(Own(), journal=journal).run("go"))
    assert journal.all(ModelTextReceived) == [ModelTextReceived("It is ", "thinking")]


def test_a_journal_that_fails_in_the_middle_of_a_turn_ends_the_run():
    def look(record):
        if isinstance(record.event, ModelTextReceived):
            raise JournalError("the disk is full")

    provider = Feed(*[(0.1, "word ")] * 100)
    with pytest.raises(JournalError, match="disk is full"):
        run_jumping(Agent(provider, journal=WatchedJournal(look), clock=loop_clock).run("go"))


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_no_piece_holds_a_secret_or_the_beginning_of_one_that_is_recorded_apart(size):
    text = f"The key is {KEY}. Again: {KEY}{KEY}."
    journal = WatchedJournal()
    provider = SlowProvider(*[text[i : i + size] for i in range(0, len(text), size)])
    run_jumping(Agent(provider, journal=journal, secrets={"KEY": KEY}, clock=loop_clock).run("go"))
    pieces = [event.text for event in journal.all(ModelTextReceived)]
    assert "sk-" not in "".join(pieces)
    assert size > 3 or len(pieces) > 2


# --- the raw text of turns that are complete

CALL = '<tool_call>\n{"name": "look", "arguments": {"path":  "a.txt"}}\n</tool_call>'


def raw_of(journal):
    """The raw text and reasoning of each turn, as the records have them; None for what the message shows."""
    texts, thoughts, turns = "", "", []
    for event in journal.events:
        if isinstance(event, ModelTextReceived):
            texts, thoughts = texts + event.text, thoughts + event.reasoning
        elif isinstance(event, ModelAnswered):
            text, reasoning = event.raw_text, event.raw_reasoning
            whole_reasoning = None if reasoning is None else thoughts + reasoning
            turns.append((None if text is None else texts + text, whole_reasoning))
            texts, thoughts = "", ""
    return turns


@tool(read_only=True)
def look(path: str) -> str:
    "Looks."
    return "seen"


def test_the_raw_text_of_a_quick_turn_is_recorded_where_the_message_does_not_show_it():
    journal = WatchedJournal()
    turns = [f"I look.\n{CALL}", "<think>So it is.</think>\nSeen.\n"]
    Agent(ScriptedProvider(turns), [look], dialect="hermes", journal=journal).run_sync("go")
    assert raw_of(journal) == [(turns[0], None), (turns[1], "")]
    assert not journal.all(ModelTextReceived)


def test_nothing_is_recorded_twice_of_text_that_the_message_shows():
    journal = WatchedJournal()
    answer = ScriptedTurn("It is seen. ", reasoning="I saw it.")
    native = ScriptedTurn("I look.\n", calls=[ScriptedCall("look", {"path": "a.txt"})])
    Agent(ScriptedProvider([native, answer]), [look], dialect="native", journal=journal).run_sync("go")
    assert raw_of(journal) == [(None, None), (None, None)]
    Agent(ScriptedProvider(["Plain.\n"]), [look], dialect="hermes", journal=journal).run_sync("go")
    assert raw_of(journal)[-1] == (None, None)


def test_the_records_of_a_long_turn_have_all_of_it_once():
    pieces = [f"word{i} " for i in range(20)]
    journal = WatchedJournal()
    provider = SlowProvider(*pieces, *CALL.partition("arguments"), ends=True)
    agent = Agent(provider, [look], dialect="hermes", journal=journal, clock=loop_clock, limits=Limits(steps=1))
    run_jumping(agent.run("go"))
    first, _ = raw_of(journal)
    assert first == ("".join(pieces) + CALL, "")
    answer, _ = journal.all(ModelAnswered)
    assert answer.raw_text is not None
    assert len(answer.raw_text) <= len(CALL), "the rest is in the records of before"


def test_raw_text_has_placeholders_for_secrets_and_needs_a_journal():
    text = f"<think>The key is {KEY}</think>Done."
    journal = WatchedJournal()
    Agent(ScriptedProvider([text]), dialect="hermes", journal=journal, secrets={"KEY": KEY}).run_sync("go")
    ((raw, _),) = raw_of(journal)
    assert "The key is" in raw
    assert "sk-" not in raw
    events = []
    Agent(ScriptedProvider([text]), dialect="hermes", observers=[events.append]).run_sync("go")
    assert [each.event.raw_text for each in events if isinstance(getattr(each, "event", None), ModelAnswered)] == [None]
