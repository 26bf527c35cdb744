"""A conversation in one dialect, turned into another's and back."""

from __future__ import annotations

import itertools

import pytest
from dialect_strategies import TOOLS

from toolspeak.data.messages import JsonPart, Message, TextMessage, TextPart, ToolCall, ToolChoice, ToolResult
from toolspeak.dialects import Dialect, Translation, get_dialect, read_results, read_turn, translate

# One of every family, and every way to lay results out: with and without frames, as JSON, with names and with ids.
NAMES = (
    *("cogency-json", "cogency-xml", "hermes", "apertus", "cohere-command", "command-r-plus", "llama3-json", "kimi-k2"),
    *("functionary-v32", "harmony", "qwen3-coder", "deepseek-v41", "muse", "glm45", "kimi-k3", "pythonic", "gemma4"),
)
FIRST = (
    ToolCall("c1", "read", {"file": "a <b> & 'c'.txt"}),
    ToolCall("c2", "write", {"file": "x", "content": "two\nlines <tool_call>"}),
)
SECOND = ToolCall("c3", "read", {"file": "</tool_response>"})
TEXT = "&lt;b> <tool_call> &lt;tool_call> &amp;lt;tool_call> <|tool_call>x [TOOL_CALLS] {}\n<｜tool▁call▁begin｜>"
IDS = {"cohere-command"}  # they write the ids of calls, which other dialects do not


def conversation(dialect: Dialect, *, tool_role: bool = False) -> list[TextMessage]:
    results = (
        ToolResult("c1", "read", "success", (TextPart("line one; or two"),)),
        ToolResult("c2", "write", "failure", (TextPart("no such folder"),)),
    )
    messages = [
        Message.system("Be nice.\n\n" + dialect.instructions(TOOLS, ToolChoice("required")) + "\n\nBe brief."),
        Message.user("go"),
        Message("assistant", (TextPart("Let me see."), *FIRST)),
        Message("tool", results),
        Message("assistant", (SECOND,)),
        Message("tool", (ToolResult("c3", "read", "success", (TextPart(TEXT),)),)),
        Message.assistant("Done."),
        Message.user("thanks"),
    ]
    return dialect.render(messages, TOOLS, tool_role=tool_role)


def calls_of(dialect: Dialect, messages: list[TextMessage]) -> list[tuple[str, dict]]:
    texts = [message.text for message in messages if message.role == "assistant"]
    return [
        (call.name or "", dict(call.arguments))
        for text in texts
        for call in read_turn(dialect, text, TOOLS).calls
        if isinstance(call, ToolCall)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_there_and_back_gives_the_same_text(name):
    source = get_dialect(name)
    before = conversation(source)
    for target in map(get_dialect, NAMES):
        there = translate(before, source, target, TOOLS)
        back = translate(there.messages, target, source, TOOLS)
        assert (there.warnings, back.warnings) == ((), ())
        expected_calls = [(call.name, call.arguments) for call in (*FIRST, SECOND)]
        assert calls_of(target, list(there.messages)) == expected_calls
        assert target.instructions(TOOLS, ToolChoice("required")) in there.messages[0].text
        if name not in IDS:
            assert list(back.messages) == before, target.name
            assert list(there.messages) == conversation(target) or target.name in IDS


@pytest.mark.parametrize("name", ["tool-call", "mistral-ids", "cohere-command"])
def test_calls_and_results_survive_where_the_text_cannot(name):
    """A turn of one call each, or ids that stand for others."""
    source = get_dialect("hermes")
    there = translate(conversation(source), source, get_dialect(name), TOOLS)
    back = translate(there.messages, get_dialect(name), source, TOOLS)
    assert calls_of(source, list(back.messages)) == [(call.name, call.arguments) for call in (*FIRST, SECOND)]
    text = "\n".join(message.text for message in back.messages if message.role == "user")
    for results_sent in ("line one; or two", "ERROR: no such folder", "&amp;amp;lt;tool_call>"):
        assert results_sent in text


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "kimi-k2", "harmony", "tool-call"])
def test_results_in_tool_messages_stay_there(name):
    source, target = get_dialect(name), get_dialect("gemma4")
    before = conversation(source, tool_role=True)
    there = translate(before, source, target, TOOLS)
    assert "tool" in {message.role for message in there.messages}
    assert list(translate(there.messages, target, source, TOOLS).messages) == before or name == "tool-call"


def test_a_tool_message_for_each_result_is_one_batch():
    """In the dialect's frame, or bare, where the model's template writes the frame."""
    source, target = get_dialect("hermes"), get_dialect("cogency-json")
    (request,) = (message for message in conversation(source) if message.text.startswith("Let me"))
    results_sent = [
        TextMessage("tool", "<tool_response>\none\n</tool_response>"),
        TextMessage("tool", "two, as it came"),
    ]
    translation = translate([TextMessage("user", "go"), request, *results_sent], source, target, TOOLS)
    assert '"content": "one"' in translation.messages[-1].text
    assert '"content": "two, as it came"' in translation.messages[-1].text
    assert translation.warnings == ()


def test_a_tool_message_that_is_no_result_of_the_dialect_is_carried_over_as_text():
    source, target = get_dialect("gemma4"), get_dialect("cogency-json")
    (request,) = (message for message in conversation(source) if message.text.startswith("Let me"))
    results_sent = [
        TextMessage("tool", source.render_results([ToolResult("c1", "read", "success", (TextPart("one"),))]))
    ]
    translation = translate(
        [TextMessage("user", "go"), request, *results_sent, TextMessage("tool", "two")], source, target, TOOLS
    )
    assert '"content": "one"' in translation.messages[-1].text
    assert '"content": "two"' in translation.messages[-1].text
    assert translation.warnings == ("message 3: the results are not as gemma4 writes them; carried over as text",)


def test_a_prompt_as_trained_is_written_as_the_other_model_was_trained():
    """Where the template of the one has the tools in the system text, and that of the other before the user's."""
    qwen, llama, mistral = get_dialect("hermes"), get_dialect("llama3-json"), get_dialect("mistral-v3")
    chat = [TextMessage("user", "go"), TextMessage("assistant", "Done."), TextMessage("user", "And now?")]
    prompts = {each.name: each.prompt("Be nice.", TOOLS).before(chat) for each in (qwen, llama, mistral)}
    for source, target in itertools.permutations((qwen, llama, mistral), 2):
        translation = translate(prompts[source.name], source, target, TOOLS)
        assert translation == Translation(tuple(prompts[target.name]), ()), (source.name, target.name)


def test_a_user_who_writes_after_results_is_kept_apart():
    source, target = get_dialect("hermes"), get_dialect("glm45")
    messages = [
        *source.render([Message("assistant", (SECOND,))]),
        TextMessage("user", "<tool_response>\nx\n</tool_response>\n\nAnd then?"),
    ]
    assert translate(messages, source, target).messages[-1].text == (
        "<tool_response>\nx\n</tool_response>\n\nAnd then?"
    )


def test_what_cannot_be_carried_over_is_told_with_its_message():
    hermes, json_protocol = get_dialect("hermes"), get_dialect("cogency-json")
    messages = [
        TextMessage("system", hermes.instructions(TOOLS[:1])),
        TextMessage("user", "go"),
        TextMessage("assistant", '<tool_call>{"name": "read", "arguments": {]}</tool_call>'),
        TextMessage("assistant", '<execute>[{"name": "a", "args": {}}]</execute><execute>[]</execute>'),
    ]
    translation = translate(messages[:3], hermes, json_protocol, TOOLS)
    assert translation.messages[0] == messages[0]
    assert '{"name": "read", "arguments": {]}' in translation.messages[-1].text
    assert [warning.partition(": ")[0] for warning in translation.warnings] == ["message 0", "message 2"]
    (warning,) = translate(messages[3:], json_protocol, hermes).warnings
    assert warning.startswith("message 0: calls that did not count are left out: 1")


@pytest.mark.parametrize("pair", list(itertools.permutations(["hermes", "gemma4", "kimi-k3", "cogency-xml"], 2)))
def test_reasoning_stands_in_the_others_markers(pair):
    source, target = map(get_dialect, pair)
    there = translate([TextMessage("assistant", _thought(pair[0]) + "Hi")], source, target)
    read = read_turn(target, there.messages[0].text)
    assert (read.reasoning.strip(), read.text.strip(), there.warnings) == ("hm", "Hi", ())


def _thought(name: str) -> str:
    return {
        "gemma4": "<|channel>thought\nhm<channel|>",
        "kimi-k3": "<|open|>think<|sep|>hm<|close|>think<|sep|>",
    }.get(name, "<think>hm</think>")


def test_a_dialect_without_reasoning_says_that_it_is_left_out():
    message = TextMessage("assistant", "<think>hm</think>Hi")
    translation = translate([message], get_dialect("hermes"), get_dialect("functionary-v32"))
    assert translation.messages[-1].text == "Hi"
    assert "no place for the reasoning" in translation.warnings[0]


def test_results_that_cannot_be_told_apart_are_carried_over_in_one():
    source, target = get_dialect("apertus"), get_dialect("hermes")
    results = [ToolResult(call.id, call.name, "success", (TextPart("one, two"),)) for call in FIRST]
    messages = source.render([Message("assistant", FIRST), Message("tool", tuple(results))])
    translation = translate(messages, source, target)
    assert translation.messages[-1].text == "<tool_response>\n[one, two, one, two]\n</tool_response>"
    assert translation.warnings == ("message 1: the results are not as apertus writes them; carried over as text",)


def test_json_results_stay_json():
    dialect = get_dialect("cogency-json")
    results = [ToolResult("a", "read", "success", (JsonPart({"x": [1, "</results>"]}),))]
    calls = [ToolCall("a", "read", {})]
    assert read_results(dialect, dialect.render_results(results), calls) == (results, "")
    assert read_results(dialect, "something else", calls) is None
    assert read_results(dialect, dialect.render_results(results), []) is None
