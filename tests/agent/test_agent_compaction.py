"""A conversation that fills the model's window is made shorter, and loses neither its pairs nor its original."""

import asyncio

import pytest
from agent_helpers import WatchedJournal, assert_pairs, calling, play, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak import Agent, ConfigurationError, Limits, ProviderError, Session, Window, tool
from toolspeak.agent import fold
from toolspeak.agent.state.history import apply_compaction, plan_compaction, task_after, to_summarise
from toolspeak.agent.storage.runs import load_state
from toolspeak.data.events import HistoryCompacted, ModelAsked
from toolspeak.data.messages import Message, TextPart, ToolCall, ToolResult, Usage, characters, tokens_of
from toolspeak.journal import MemoryJournal
from toolspeak.providers.scripted_provider import ScriptedProvider, ScriptedTurn

words = st.integers(1, 3000).map("x".__mul__)


def size_of(messages):
    return sum(characters(message.parts) for message in messages)


@st.composite
def histories(draw):
    """System messages, then turns: said, or calls with their results."""
    messages = [Message.system("Be brief.")] * draw(st.integers(0, 2))
    messages.append(Message.user(draw(words)))
    for turn in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["calls", "answer", "user"]))
        if kind == "calls":
            calls = [ToolCall(f"call_{turn}_{i}", "add", {"a": draw(words)}) for i in range(draw(st.integers(1, 3)))]
            results = [ToolResult(call.id, "add", "success", (TextPart(draw(words)),)) for call in calls]
            messages += [Message("assistant", tuple(calls)), Message("tool", tuple(results))]
        else:
            messages.append(Message.user(draw(words)) if kind == "user" else Message.assistant(draw(words)))
    return messages


@given(histories(), st.integers(1, 4000), st.data())
@settings(max_examples=fewer(150), deadline=None)
def test_no_pair_is_split_and_the_front_the_task_and_the_newest_stay(history, tokens, data):
    window = Window(tokens)
    places = [i for i, message in enumerate(history) if message.role == "user"]
    task = data.draw(st.sampled_from(places))
    context = sum(map(tokens_of, history))
    plan = plan_compaction(history, context, task, window)
    if plan is None:
        return
    event = HistoryCompacted(
        plan.cleared_ids, plan.upto, plan.pinned_indices, "what was said", context, plan.tokens_after
    )
    after = apply_compaction(history, event)
    assert_pairs(after)
    assert_pairs(to_summarise(history, plan, window))
    head = sum(message.role == "system" for message in history)
    assert after[:head] == history[:head]
    assert after[-1] == history[-1]
    assert after[task_after(history, task, event)] == history[task]
    if plan.upto:
        assert after[len(after) - (len(history) - plan.upto) :] == history[plan.upto :]
    else:
        assert [message.calls for message in after] == [message.calls for message in history]
    assert size_of(after) < size_of(history) + len("what was said") + 100


@tool(read_only=True)
def look(name: str) -> str:
    "Looks something up."
    return f"{name}: " + "x" * 2000


@tool
def write() -> None:
    "Asks first; it is in the prompt."


LOOK = Agent(ScriptedProvider([]), [look, write]).toolset


def looking(*names):
    return calling("cogency-json", *(("look", {"name": name}) for name in names), tools=LOOK)


SUMMARY = "The user wants everything looked up; n0 to n5 are done."


def model(steps):
    """Looks up one name a step; summarises when it is asked to."""

    def turn(messages):
        if "Answer with the summary alone." in messages[-1].text:
            return SUMMARY
        notes_written = sum(f'"n{i}"' in message.text for message in messages for i in range(steps))
        newest = max((i for i in range(steps) if any(f'"n{i}"' in message.text for message in messages)), default=-1)
        assert notes_written
        return looking(f"n{newest + 1}") if newest + 1 < steps else "All done."

    first = [looking("n0")]
    return ScriptedProvider([*first, *[turn] * (3 * steps)])


def run_long(window, steps=14, **options):
    return play(
        model(steps), LOOK, task="Look up everything.", window=window, limits=Limits(200, repeats=None), **options
    )


def test_old_results_are_cleared_first_then_the_model_summarises():
    result, journal, provider = run_long(4000, steps=60, approve=None)
    assert result.answer == "All done."
    events = journal.all(HistoryCompacted)
    assert events[0].cleared
    assert not events[0].upto
    assert any(event.summary == SUMMARY for event in events)
    assert all(event.tokens_after < event.tokens_before for event in events)
    prompts = {request.messages[0] for request in provider.requests}
    assert len(prompts) == 1
    for request in provider.requests:
        assert sum(map(len, texts(request))) // 4 < 4000 + 1000  # and the prompt, which is not the conversation's
    assert any(SUMMARY in text for text in texts(provider.requests[-1]))
    assert "Look up everything." in "".join(texts(provider.requests[-1]))
    assert fold(journal.records) == result.state
    assert_pairs(result.messages)


def test_the_original_stays_readable():
    result, journal, _ = run_long(4000)
    whole = asyncio.run(load_state(journal, result.run_id, whole=True))
    assert_pairs(whole.messages)
    originals = [part.text for message in whole.messages for part in message.results]
    assert [text.split(":")[0] for text in originals] == [f"n{i}" for i in range(14)]
    assert all(len(text) > 2000 for text in originals)
    texts = [part.text for message in result.messages for part in message.results]
    assert texts != originals


def test_without_a_window_nothing_is_made_shorter():
    result, journal, _ = run_long(None)
    assert not journal.all(HistoryCompacted)
    assert result.answer == "All done."


DOWN = ScriptedTurn("", error=ProviderError("down", status=503))
TOO_LONG = ScriptedTurn("", error=ProviderError("too long", status=400, code="context_length"))


def run_without_summary(summary, characters_before):
    def turn(messages):
        return summary if "Answer with the summary alone." in messages[-1].text else "Fine."

    task = "Do it. " + "x" * 2000
    history = [
        Message.user("a" * characters_before),
        Message.assistant("b" * 6000),
        Message.user("c"),
        Message.assistant("d"),
    ]
    result, journal, provider = play([turn] * 6, LOOK, task=task, window=4000, run={"history": history})
    assert (result.answer, result.status) == ("Fine.", "answered")
    assert task in "".join(texts(provider.requests[-1]))
    return journal.all(HistoryCompacted), "".join(texts(provider.requests[-1]))


@pytest.mark.parametrize("summary", ["", looking("n9"), TOO_LONG])
def test_what_cannot_be_summarised_is_left_out_if_it_does_not_fit_and_the_model_is_told(summary):
    (event,), last_request = run_without_summary(summary, 12_000)
    assert "were removed" in event.summary
    assert "were removed" in last_request


@pytest.mark.parametrize(("summary", "characters_before"), [("", 6000), (TOO_LONG, 6000), (DOWN, 6000), (DOWN, 12_000)])
def test_without_a_summary_the_model_reads_all_that_fits_and_all_while_its_api_fails(summary, characters_before):
    events, last_request = run_without_summary(summary, characters_before)
    assert not events
    assert "a" * characters_before in last_request


def test_a_conversation_that_is_too_long_to_be_summarised_is_summarised_in_part():
    def turn(messages):
        if "Answer with the summary alone." not in messages[-1].text:
            return "Fine."
        return TOO_LONG if sum(len(message.text) for message in messages) > 9000 else "In short."

    async def main():
        session = Session(Agent(ScriptedProvider([turn] * 9), journal=WatchedJournal()))
        for letter in "abcd":
            await session.run(letter * 6000)
        event = await session.compact()
        assert event is not None
        return event

    assert asyncio.run(main()).summary == "In short."


@pytest.mark.parametrize("summary", ["", DOWN, "longer " * 1000])
def test_a_session_of_which_no_summary_can_be_had_stays_as_it_was(summary):
    async def main():
        provider, journal = ScriptedProvider(["Fine.", summary, "Yes."]), WatchedJournal()
        session = Session(Agent(provider, journal=journal))
        await session.run("tea " * 500)
        with pytest.raises(ProviderError, match="could not be summarised"):
            await session.compact()
        assert not journal.all(HistoryCompacted)
        await session.run("And?")
        assert "tea tea" in str(provider.requests[-1])

    asyncio.run(main())


def test_a_model_that_does_not_summarise_is_not_asked_to():
    history = [Message.user("a" * 8000), Message.assistant("b" * 8000)]
    _, journal, provider = play(["Fine."], window=Window(4000, summarise=False), run={"history": history})
    assert len(provider.requests) == 1
    assert journal.kinds.count("HistoryCompacted") == 1


def test_a_run_that_dies_between_compaction_and_turn_goes_on_from_there():
    class ProcessDeath(Exception):
        pass

    def look_at(record):
        if isinstance(record.event, ModelAsked) and HistoryCompacted in {type(e) for e in journal.events}:
            raise ProcessDeath

    journal = WatchedJournal(look_at)
    with pytest.raises(ProcessDeath):
        run_long(4000, journal=journal)
    run_id, journal.look = journal.records[0].run_id, lambda record: None
    agent = Agent(model(14), LOOK, journal=journal, window=4000, limits=Limits(200, repeats=None))
    result = asyncio.run(agent.resume(run_id))
    assert result.answer == "All done."
    assert fold(journal.records) == result.state


def test_the_next_run_of_a_session_begins_with_what_is_left_and_the_session_has_all():
    async def main():
        journal = MemoryJournal()
        limits = Limits(200, repeats=None)
        first = Session(Agent(model(14), LOOK, journal=journal, window=4000, limits=limits))
        await first.run("Look up everything.")
        provider = ScriptedProvider(["Again fine."])
        second = Session(Agent(provider, LOOK, dialect="hermes", journal=journal), first.session_id)
        await second.run("And now?")
        return provider, await second.messages()

    provider, messages = asyncio.run(main())
    assert sum(map(len, texts(provider.requests[0]))) < 20_000
    assert size_of(messages) > 14 * 2000
    assert messages[-1].text == "Again fine."


def test_what_the_provider_counts_goes_before_the_estimate():
    call = calling("tool-call", ("look", {"name": "a"}), tools=LOOK)
    turns = [ScriptedTurn(call, usage=Usage(3000, 100)), "What was said.", "Fine."]
    window, history = Window(4000, compact_at=0.7), [Message.user("x" * 2000), Message.assistant("y")]
    _, journal, _ = play(turns, LOOK, dialect="tool-call", window=window, run={"history": history})
    assert journal.kinds.count("HistoryCompacted") == 1


@pytest.mark.parametrize("wrong", [{"tokens": 0}, {"tokens": 9, "keep": 0.6}, {"tokens": 9, "compact_at": 1.5}])
def test_a_window_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ConfigurationError, match="Window needs"):
        Window(**wrong)
