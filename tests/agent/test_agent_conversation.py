"""A conversation is rebuilt from its records for any dialect, and keeps its calls, results, order and text."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak import Agent, Effects, Limits, Session, tool
from toolspeak.agent import fold
from toolspeak.data.events import ModelAnswered, Record, RunStarted, ToolFinished
from toolspeak.data.messages import (
    ImagePart,
    MalformedCall,
    Message,
    Opaque,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolResult,
)
from toolspeak.dialects import DIALECTS, get_dialect, read_results, read_turn
from toolspeak.dialects.prompt import Prompt
from toolspeak.journal import MemoryJournal
from toolspeak.providers.scripted_provider import ScriptedProvider, ScriptedTurn
from toolspeak.tools import Toolset


@tool(effects=lambda path: Effects(writes={f"file:{path}"}))
def write(path: str, content: str) -> str:
    "Writes a file."
    return f"wrote {len(content)} characters"


@tool(read_only=True)
def read(path: str, lines: int = 1) -> str:
    "Reads a file."
    return f"{path} has {lines} lines"


TOOLS = Toolset([write, read])
NAMES = [dialect.name for dialect in DIALECTS]

plain = st.text("abc xyz.,", min_size=1, max_size=20).map(str.strip).filter(bool)
hard = st.text("ab <>&/{}[]\"'\\\n=:|äß", max_size=30) | st.sampled_from(
    ["</execute>", "<tool_call>", "<results>[]</results>", "]]>", "<|tool_calls_section_end|>", "&lt;b>"]
)
calls = st.builds(lambda path, content: ("write", {"path": path, "content": content}), plain, hard) | st.builds(
    lambda path, lines: ("read", {"path": path, "lines": lines}), plain, st.integers(1, 99)
)
# White space at the ends of a result is not told from the frame where a dialect has none but line breaks.
result_texts = hard.map(str.strip).filter(bool)
steps = st.tuples(plain, plain, calls, st.sampled_from(["success", "failure"]), result_texts)


def records_of(task, steps, answer):
    """The records of a run: each step thinks, says something and makes a call."""
    events = [RunStarted((Message.user(task),), "scripted")]
    for number, (thought, text, (name, arguments), status, result_text) in enumerate(steps, 1):
        call = ToolCall(f"call_{number}_0", name, arguments)
        result = ToolResult(call.id, name, status, (TextPart(result_text),))
        parts = (ReasoningPart(f"secretly {thought}"), TextPart(text), call)
        events += [ModelAnswered(Message("assistant", parts), "tool_calls"), ToolFinished(result)]
    events.append(ModelAnswered(Message.assistant(answer), "stop"))
    return [Record(event, "run", seq, 0, 1.0) for seq, event in enumerate(events)]


def assert_thoughts(dialect, messages, thoughts):
    """What the model thought in earlier steps of this run stands there as its template writes it, or not at all."""
    text = "".join(message.text for message in messages)
    earlier = dialect.info.earlier
    assert text.count("secretly") == (0 if earlier is None else len(thoughts))
    at = 0
    for thought in thoughts if earlier else ():
        at = text.index(f"{earlier.before}{thought}{earlier.after}", at) + 1


def read_back(dialect, messages):
    """What the conversation holds, in its order, read by the dialect's own parser."""
    entries, calls = [], []
    for message in messages:
        text = message.text
        if message.role == "assistant":
            turn = read_turn(dialect, text, TOOLS.specs)
            calls = [call for call in turn.calls if isinstance(call, ToolCall)]
            entries.append(("said", turn.message.text.strip()))
            entries += [("call", call.name, dict(call.arguments)) for call in calls]
            continue
        if calls:
            results, text = read_results(dialect, text, calls, TOOLS.specs) or ([], text)
            entries += [("result", result.status, result.text) for result in results]
            calls = []
        if text.strip():
            entries.append(("user", text.strip()))
    return entries


@given(st.sampled_from(NAMES), plain, st.lists(steps, max_size=3, unique_by=lambda step: str(step[2])), plain)
@settings(max_examples=fewer(200), deadline=None)
def test_calls_results_order_and_text_survive_in_every_dialect(name, task, steps, answer):
    dialect, state = get_dialect(name), fold(records_of(task, steps, answer))
    messages = dialect.render(state.messages, TOOLS.specs)
    expected_entries = [("user", task)]
    for _, text, (tool_name, arguments), status, result_text in steps:
        expected_entries += [("said", text), ("call", tool_name, arguments), ("result", status, result_text)]
    assert read_back(dialect, messages) == [*expected_entries, ("said", answer)]
    assert_thoughts(dialect, messages, [f"secretly {thought}".strip() for thought, *_ in steps])
    thoughts = [part for message in state.messages for part in message.parts if isinstance(part, ReasoningPart)]
    assert len(thoughts) == len(steps)


def call_in(name):
    call = ToolCall("", "write", {"path": "a.txt", "content": "</execute> & <b>"})
    messages = get_dialect(name).render([Message("assistant", (TextPart("I write."), call))], TOOLS.specs)
    return messages[0].text


def test_a_session_that_began_in_any_dialect_goes_on_in_any_other():
    async def main(name, following):
        journal = MemoryJournal()
        turns = [ScriptedTurn(call_in(name), reasoning="I think."), "Written."]
        first = Session(Agent(ScriptedProvider(turns), TOOLS, dialect=name, journal=journal, approve="all"))
        result = await first.run("Write it.", limits=Limits(3))
        assert result.answer == "Written.", name
        messages = await first.messages()
        for other in following:
            fork = await first.fork()
            provider = ScriptedProvider(["And on."])
            await Session(Agent(provider, TOOLS, dialect=other, journal=journal), fork.session_id).run("Go on.")
            dialect = get_dialect(other)
            expected_history = dialect.render([*messages, Message.user("Go on.")], TOOLS.specs)
            prompt = dialect.prompt("", TOOLS.specs)
            prompt_messages = Prompt((), prompt.user, prompt.turn).before(expected_history)
            assert list(provider.requests[0].messages[-len(prompt_messages) :]) == prompt_messages
            entries = read_back(dialect, expected_history)
            assert [entry[0] for entry in entries] == ["user", "said", "call", "result", "said", "user"], (name, other)
            assert entries[2] == ("call", "write", {"path": "a.txt", "content": "</execute> & <b>"})

    for i, name in enumerate(NAMES):
        asyncio.run(main(name, NAMES if name == "cogency-json" else [NAMES[i - 1], "cogency-json"]))


# Without commas: some dialects' lists of results have them between, and nothing around each.
words = st.text("abc xyz.", min_size=1, max_size=20).map(str.strip).filter(bool)
results = st.tuples(calls, st.sampled_from(["success", "failure"]), words)
batches = st.lists(results, min_size=1, max_size=3, unique_by=lambda outcome: str(outcome[0]))


def batch_of(turn, outcomes, *more):
    """An assistant's message with these calls, signed reasoning in front, and their results."""
    ids = [f"call_{turn}_{index}" for index in range(len(outcomes) + len(more))]
    parts = [ToolCall(call_id, *call) for call_id, (call, _, _) in zip(ids, outcomes, strict=False)]
    results = [
        ToolResult(part.id, part.name, status, (TextPart(text),))
        for part, (_, status, text) in zip(parts, outcomes, strict=True)
    ]
    for call_id, (part, result) in zip(ids[len(outcomes) :], more, strict=True):
        parts.append(replace(part, id=call_id))
        results.append(replace(result, call_id=call_id))
    signed_reasoning = ReasoningPart("secretly", opaque=Opaque("anthropic", "model", {"signature": "SIGNED"}))
    return Message("assistant", (signed_reasoning, TextPart("I do."), *parts)), Message("tool", tuple(results))


READS = [(("read", {"path": path, "lines": 1}), "success", "the same") for path in "abc"]


@example("mistral-v3", [READS])  # its results name their calls
@given(st.sampled_from(NAMES), st.lists(batches, min_size=1, max_size=2))
@settings(max_examples=fewer(200), deadline=None)
def test_calls_made_together_and_their_failures_survive_in_every_dialect(name, batches_made):
    messages = [
        Message.user("go"),
        *(each for turn, batch in enumerate(batches_made, 1) for each in batch_of(turn, batch)),
    ]
    texts = get_dialect(name).render(messages, TOOLS.specs)
    entries = read_back(get_dialect(name), texts)
    every = [one for batch in batches_made for one in batch]
    # Where a turn holds one call, a batch becomes several turns: the calls and the results keep their order.
    assert [entry[1:] for entry in entries if entry[0] == "call"] == [call for call, _, _ in every]
    assert [entry[1:] for entry in entries if entry[0] == "result"] == [(status, text) for _, status, text in every]
    assert [entry[1] for entry in entries if entry[0] == "said" and entry[1]] == ["I do."] * len(batches_made)
    assert not any("SIGNED" in message.text for message in texts)
    assert_thoughts(get_dialect(name), texts, ["secretly"] * len(batches_made))


@pytest.mark.parametrize("name", NAMES)
def test_malformed_calls_and_images_are_told_in_every_dialect(name):
    malformed_call = MalformedCall("", '{"name": "write", "arguments": {"pa', "truncated", "the call was cut off")
    image_call = ToolCall("", "read", {"path": "picture.png", "lines": 1})
    image = ToolResult("", "read", "success", (TextPart("a red square"), ImagePart("image/png", b"\x89PNG-bytes")))
    refusal = ToolResult("", "", "failure", (TextPart("mend this call"),), code="malformed")
    outcomes = [(("write", {"path": "a.txt", "content": "x"}), "success", "wrote it")]
    batch = batch_of(1, outcomes, (malformed_call, refusal), (image_call, image))
    messages = get_dialect(name).render([Message.user("go"), *batch, Message.assistant("Done.")], TOOLS.specs)
    text = "\n".join(message.text for message in messages)
    places = [text.index(word) for word in ("wrote it", "mend this call", "a red square", "Done.")]
    assert places == sorted(places)
    for word in ("a.txt", "picture.png", "image/png"):
        assert word in text
    assert not any(word in text for word in ("PNG-bytes", "SIGNED"))
    assert_thoughts(get_dialect(name), messages, ["secretly"])
    roles = [message.role for message in messages]
    assert (roles[0], roles[-1]) == ("user", "assistant")
    assert get_dialect(name).render([Message.user("go"), *batch], TOOLS.specs) == messages[:-1]
