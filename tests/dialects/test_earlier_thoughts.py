"""The model's earlier thoughts in a history: kept, kept for a run, or left out, as its chat template does."""

from __future__ import annotations

import pytest
from dialect_strategies import TOOLS

from toolspeak.data.messages import Message, Part, ReasoningPart, TextMessage, TextPart, ToolCall, ToolResult
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn
from toolspeak.dialects.prompts.rendering import render_all

KEEPS = [dialect for dialect in DIALECTS if dialect.info.earlier]
each_that_keeps = pytest.mark.parametrize("dialect", KEEPS, ids=lambda dialect: dialect.name)

# What llama.cpp's copies of the chat templates keep of four thoughts, with a user message after the second.
TEMPLATES = {
    "run": "hermes qwen3-coder step3p5 glm45 glm47 kimi-k2 minimax-m2 minicpm5 deepseek-v32 gemma4 lfm2 harmony",
    "always": "seed-oss spark25 ling3 poolside-v1 kimi-k3 minimax-m3 deepseek-v4 hy-v3-opensource cohere-command muse",
    "never": "deepseek-v3 deepseek-v31 nemotron-v2 granite3 granite4 apertus apriel llama3-json gigachat3",
}


@pytest.mark.parametrize(("keep", "name"), [(keep, name) for keep in TEMPLATES for name in TEMPLATES[keep].split()])
def test_it_is_kept_as_the_chat_template_keeps_it(keep: str, name: str):
    earlier = get_dialect(name).info.earlier
    assert (earlier.keep if earlier else "never") == keep


def turn(thought: str, text: str, *calls: str) -> Message:
    parts: list[Part] = [ReasoningPart(thought)]
    parts += [TextPart(text)] if text else []
    return Message("assistant", (*parts, *(ToolCall(call, "read", {"file": call}) for call in calls)))


def result(call: str) -> Message:
    return Message("tool", (ToolResult(call, "read", "success", (TextPart("content"),)),))


def conversation(text: str = "") -> list[Message]:
    return [
        Message.user("One?"),
        turn("thought 1", text, "callid001"),
        result("callid001"),
        turn("thought 2", "Answer."),
        Message.user("Two?"),
        turn("thought 3", text, "callid003"),
        result("callid003"),
        turn("thought 4", text, "callid004"),
        result("callid004"),
    ]


def thoughts_in(messages: list[TextMessage]) -> list[int]:
    texts_sent = "\n".join(message.text for message in messages)
    return [number for number in (1, 2, 3, 4) if f"thought {number}" in texts_sent]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("text", ["", "I look."])
def test_the_thoughts_of_a_run_and_of_those_before(dialect: Dialect, text: str):
    earlier = dialect.info.earlier
    expected = [] if earlier is None else [3, 4] if earlier.keep == "run" else [1, 2, 3, 4]
    if earlier is not None and earlier.calls_only and 2 in expected:
        expected.remove(2)
    assert thoughts_in(dialect.render(conversation(text), TOOLS)) == expected
    plain = [
        Message(each.role, tuple(p for p in each.parts if not isinstance(p, ReasoningPart)))
        for each in conversation(text)
    ]
    without = dialect.render([*plain, Message.user("Three?")], TOOLS)
    if earlier is None or earlier.keep == "run":
        assert dialect.render([*conversation(text), Message.user("Three?")], TOOLS) == without


@each_that_keeps
def test_within_a_run_a_history_only_grows(dialect: Dialect):
    messages = conversation("I look.")
    history, before = dialect.history(TOOLS), list[TextMessage]()
    for i, message in enumerate(messages):
        history.add(message)
        if message.role != "user":
            assert history.messages[: len(before)] == before
        before = list(history.messages)
        assert before == dialect.render(messages[: i + 1], TOOLS), "step by step, and at once"


@each_that_keeps
def test_what_is_kept_is_read_as_it_was_thought(dialect: Dialect):
    rendered_text = dialect.render([turn("a plan", "Well.", "callid001")], TOOLS)[0].text
    read = read_turn(dialect, rendered_text, TOOLS)
    assert (read.reasoning.strip(), read.message.text, len(read.calls)) == ("a plan", "Well.", 1)


@each_that_keeps
def test_no_thought_forges_a_marker(dialect: Dialect):
    """Its own end would make an answer of its rest, a call that it quotes would be one more."""
    call = dialect.render([Message("assistant", (ToolCall("callid009", "read", {"file": "b"}),))], TOOLS)[0].text
    earlier = dialect.info.earlier
    assert earlier is not None
    for thought in (f"so {earlier.after.strip()} it ends", f"maybe {call} not", f"{earlier.before.strip()} again"):
        rendered_text = dialect.render([turn(thought, "", "callid001")], TOOLS)[0].text
        read = read_turn(dialect, rendered_text, TOOLS)
        assert (read.message.text, [dict(each.arguments) for each in read.calls if isinstance(each, ToolCall)]) == (
            "",
            [{"file": "callid001"}],
        ), rendered_text


def test_a_turn_of_thoughts_alone():
    thinking = Message("assistant", (ReasoningPart("hm"),))
    for name, texts in (("hermes", ["Go.", "And?"]), ("cogency-json", ["Go.", "<think>hm</think>\n", "And?"])):
        history = get_dialect(name).history(TOOLS)
        texts_sent = [
            message.text for message in render_all(history, [Message.user("Go."), thinking, Message.user("And?")])
        ]
        assert texts_sent == texts or texts_sent == ["\n\n".join(texts)]


def test_published_protocols():
    assert all(get_dialect(name).info.earlier is not None for name in ("cogency-json", "cogency-xml"))
    assert get_dialect("tool-call").info.earlier is None
