from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolspeak import Agent
from toolspeak.data.deltas import Delta, ReasoningDelta, TextDelta, TurnEnded
from toolspeak.data.messages import JsonPart, Message, TextMessage, TextPart, ToolResult, Usage
from toolspeak.errors import ConfigurationError, ProviderError
from toolspeak.providers import Capabilities, ModelRequest
from toolspeak.providers.scripted_provider import ScriptedProvider, ScriptedTurn


def request(*texts: str) -> ModelRequest:
    return ModelRequest([TextMessage("user", text) for text in texts])


def play(provider: ScriptedProvider, *texts: str) -> list[Delta]:
    async def run() -> list[Delta]:
        return [delta async for delta in provider.stream(request(*texts))]

    return asyncio.run(run())


def played_text(provider: ScriptedProvider, *texts: str) -> str:
    return "".join(delta.text for delta in play(provider, *texts) if isinstance(delta, TextDelta))


def test_turns_are_given_in_order_and_requests_recorded():
    provider = ScriptedProvider(["one", ScriptedTurn("two", "length", "hm", Usage(1, 2))])
    assert play(provider, "a") == [TextDelta("one"), TurnEnded("stop", Usage(), "scripted")]
    assert play(provider, "a", "b") == [
        ReasoningDelta("hm"),
        TextDelta("two"),
        TurnEnded("length", Usage(1, 2), "scripted"),
    ]
    assert [len(request.messages) for request in provider.requests] == [1, 2]


def test_a_turn_too_many_says_which_and_how_many_there_are():
    provider = ScriptedProvider(["only"])
    play(provider)
    with pytest.raises(ProviderError, match="turn 2 was requested, and the playbook has 1"):
        play(provider)
    with pytest.raises(ProviderError, match="turn 3 was requested"):
        play(provider)


def test_a_turn_may_be_a_function_of_the_messages():
    provider = ScriptedProvider(
        [lambda messages: messages[-1].text.upper(), lambda messages: ScriptedTurn("x", "length")]
    )
    assert played_text(provider, "hi") == "HI"
    assert play(provider)[-1] == TurnEnded("length", Usage(), "scripted")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("got {{last}}.", "got id=77 id=78 new."),
        (r"{{find:id=(\d+)}}", "78"),
        (r"{{find:id=\d{2}}}", "id=78"),
        (r"{{find:old (\w+)}}!", "thing!"),
        (r"{{find:(absent)?old}}", ""),
        (r'{"a":{"b":{{find:id=(\d{2})}}}}', '{"a":{"b":78}}'),
        (r"{{find:id=(\d)(\d)}}{{find:new}}", "7new"),
        ("{{unknown}} {{find:}} {last}", "{{unknown}} {{find:}} {last}"),
    ],
)
def test_quotations(text: str, expected: str):
    assert played_text(ScriptedProvider([text]), "old thing id=1", "id=77 id=78 new") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("{{last}}", 'found 42\n{"n": "é"}'), ("{{find:found (\\d+)}}", "42"), ('{{find:"n": "(.)"}}', "é")],
)
def test_native_results_are_quoted(text: str, expected: str):
    contents = (TextPart("found 42"),), (JsonPart({"n": "é"}),)
    results = tuple(ToolResult(f"c{i}", "look", "success", content) for i, content in enumerate(contents))
    request = ModelRequest([Message.user("Look."), Message("tool", results)])

    async def run() -> list[Delta]:
        return [delta async for delta in ScriptedProvider([text]).stream(request)]

    assert asyncio.run(run())[0] == TextDelta(expected)


def test_a_quoted_text_is_not_searched_for_quotations():
    assert played_text(ScriptedProvider(["{{last}}"]), "{{find:x}}") == "{{find:x}}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{find:nowhere}}", "scripted: turn 1: 'nowhere' matches nothing in the 1 messages"),
        ("{{find:(}}", r"scripted: turn 1: '\(' is not a regular expression"),
    ],
)
def test_a_quotation_that_finds_nothing(text: str, problem: str):
    with pytest.raises(ProviderError, match=problem):
        played_text(ScriptedProvider([text]), "a message")


def test_the_last_message_of_none():
    with pytest.raises(ProviderError, match="there is no message"):
        play(ScriptedProvider(["{{last}}"]))


@pytest.mark.parametrize(
    ("chunk", "pieces"),
    [
        (None, ["abcdefg"]),
        (3, ["abc", "def", "g"]),
        (7, ["abcdefg"]),
        (99, ["abcdefg"]),
        ([1, 2], ["a", "bc", "defg"]),
        ([7, 1], ["abcdefg"]),
        ([], ["abcdefg"]),
    ],
)
def test_text_is_cut_as_asked(chunk: Any, pieces: list[str]):
    cut = [TextDelta(piece) for piece in pieces]
    assert play(ScriptedProvider(["abcdefg"], chunk=chunk))[:-1] == cut
    assert play(ScriptedProvider([ScriptedTurn("abcdefg", chunk=chunk)]))[:-1] == cut


def test_a_turns_own_chunk_comes_before_the_providers():
    assert len(play(ScriptedProvider([ScriptedTurn("abcd", reasoning="ab", chunk=1)], chunk=4))) == 7


@given(st.text(), st.none() | st.integers(1, 9) | st.lists(st.integers(1, 5)))
def test_the_pieces_join_to_the_text(text: str, chunk: Any):
    provider = ScriptedProvider([lambda _: ScriptedTurn(text.replace("{", "("), chunk=chunk)])
    assert played_text(provider) == text.replace("{", "(")


@pytest.mark.parametrize("chunk", [0, -1, [1, 0]])
def test_sizes_below_one_are_refused(chunk: Any):
    with pytest.raises(ConfigurationError, match="at least 1 character"):
        ScriptedProvider([], chunk=chunk)


def test_an_error_comes_after_the_text():
    provider = ScriptedProvider([ScriptedTurn("so far", error=ProviderError("down", retryable=True)), "again"])
    deltas: list[Delta] = []

    async def run() -> None:
        async for delta in provider.stream(request()):
            deltas.append(delta)  # noqa: PERF401 (the loop ends in an exception)

    with pytest.raises(ProviderError, match="down"):
        asyncio.run(run())
    assert deltas == [TextDelta("so far")]
    assert played_text(provider) == "again"


def test_it_can_play_a_server_that_takes_role_tool():
    assert ScriptedProvider([], tool_role=True).capabilities.tool_role


# --- files -------------------------------------------------------------------------------------------------------


def test_a_playbook_file(tmp_path: Path):
    path = tmp_path / "book.json"
    turns = [
        "é",
        {"text": "b", "finish": "length", "reasoning": "r", "usage": {"input": 3}, "chunk": [1]},
        {"text": "", "error": "down"},
    ]
    path.write_text(json.dumps({"turns": turns, "chunk": 4}), encoding="utf-8")
    provider = ScriptedProvider.from_file(path)
    assert provider.name == f"scripted:{path}"
    assert played_text(provider) == "é"
    assert play(provider) == [ReasoningDelta("r"), TextDelta("b"), TurnEnded("length", Usage(3), provider.name)]
    with pytest.raises(ProviderError, match="down"):
        play(provider)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "the playbook: expected an object"),
        ("{}", "turns: expected a list"),
        ('{"turns": [], "chunks": 1}', "the playbook: unknown field 'chunks'; known: turns, chunk"),
        ('{"turns": ["a", 5]}', r"turns\[1\]: expected a string or an object"),
        ('{"turns": [{"finish": "stop"}]}', r"turns\[0\].text: missing"),
        ('{"turns": [{"text": 5}]}', r"turns\[0\].text: expected a string"),
        (
            '{"turns": [{"text": "", "finish": "done"}]}',
            r"turns\[0\].finish: unknown value 'done'; known: stop, length",
        ),
        ('{"turns": [{"text": "", "txt": ""}]}', r"turns\[0\]: unknown field 'txt'"),
        ('{"turns": [{"text": "", "usage": 5}]}', r"turns\[0\].usage: expected an object"),
        ('{"turns": [{"text": "", "usage": {"input": "5"}}]}', r"turns\[0\].usage.input: expected a number of tokens"),
        ('{"turns": [{"text": "", "chunk": "5"}]}', r"turns\[0\].chunk: expected a number"),
        ('{"turns": [], "chunk": [0]}', "chunk: expected a number of characters of at least 1"),
    ],
)
def test_a_broken_playbook_file_names_file_and_place(tmp_path: Path, content: str, problem: str):
    path = tmp_path / "book.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=problem) as raised_error:
        ScriptedProvider.from_file(path)
    assert str(path) in str(raised_error.value)


def test_a_missing_or_binary_file(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        ScriptedProvider.from_file(tmp_path / "absent.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="is not JSON"):
        ScriptedProvider.from_file(tmp_path / "binary.json")


@pytest.mark.parametrize("turn", [None, {"text": "x"}, 3, ["x"]])
def test_what_is_no_turn_is_refused_with_its_place(turn: Any):
    with pytest.raises(
        ConfigurationError, match=r"turns\[1\]: expected a string, a ScriptedTurn or a function that returns one, not"
    ):
        ScriptedProvider(["x", turn])


def test_a_function_that_makes_no_turn_is_named():
    async def later(messages: Any) -> str:
        return "x"

    for function in (lambda _: None, later):
        provider = ScriptedProvider(["x", function])  # type: ignore[list-item]
        turn_of(provider)
        with pytest.raises(
            ConfigurationError, match=r"turns\[1\]: its function returned .* expected a string or a ScriptedTurn"
        ):
            turn_of(provider)


def turn_of(provider: ScriptedProvider) -> list[Delta]:
    async def read() -> list[Delta]:
        return [delta async for delta in provider.stream(ModelRequest([Message.user("Hi")]))]

    return asyncio.run(read())


def test_it_plays_a_server_that_can_what_a_test_needs():
    provider = ScriptedProvider(['{"value": 7}'], capabilities=Capabilities(tools=True, output=True))
    assert Agent(provider, output=int).run_sync("How many?").output == 7
    assert provider.requests[0].output is not None


def test_a_turn_of_a_file_may_be_nothing_but_an_error(tmp_path: Path):
    path = tmp_path / "book.json"
    path.write_text('{"turns": [{"error": "no power"}]}', encoding="utf-8")
    with pytest.raises(ProviderError, match="no power"):
        turn_of(ScriptedProvider.from_file(path))
