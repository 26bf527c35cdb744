import asyncio

from executor_helpers import Recorder, a_call, run_batch
from hypothesis import given
from hypothesis import strategies as st

from toolspeak.data.messages import MalformedCall, ToolCall
from toolspeak.execute.calls.prepare import unique
from toolspeak.tools import tool


@tool(read_only=True)
async def echo(word: str) -> str:
    return word


def test_missing_and_repeated_ids_become_unique_in_results_and_facts():
    recorder = Recorder()

    @tool(read_only=True)
    async def look(word: str) -> str:
        return word

    calls = [
        ToolCall("a", "look", {"word": "1"}),
        ToolCall("a", "look", {"word": "2"}),
        ToolCall("", "look", {"word": "3"}),
        MalformedCall("a", "{", "no_json", "write JSON"),
        ToolCall("a#2", "look", {"word": "4"}),
    ]
    results = asyncio.run(run_batch([look], calls, emit=recorder)).results
    assert [result.text for result in results] == ["1", "2", "3", "write JSON", "4"]
    ids = [result.call_id for result in results]
    assert len(set(ids)) == 5
    assert (ids[0], ids[4]) == ("a", "a#2")
    assert sorted(recorder.finishes) == sorted(ids)
    keys = [event.idempotency_key for event in recorder.events if hasattr(event, "idempotency_key")]
    assert len(set(keys)) == 4


def test_the_models_own_id_stays_beside_the_new_one():
    first, second, third, malformed_call = unique(
        [
            ToolCall("a", "x", {}),
            ToolCall("a", "x", {}),
            ToolCall("a", "x", {}, provider_id="toolu_1"),
            MalformedCall("a", "{", "c", "r"),
        ]
    )
    assert (first.id, first.provider_id) == ("a", None)
    assert second.provider_id == "a"
    assert third.provider_id == "toolu_1"
    assert malformed_call.extra == {"provider_id": "a"}


@given(st.lists(st.sampled_from(["", "a", "b", "a#2", "a#3", "call#2"]), max_size=12))
def test_every_call_has_an_id_of_its_own(ids):
    calls = unique([a_call("echo", name or None) if name else ToolCall("", "echo", {}) for name in ids])
    call_ids = [call.id for call in calls]
    assert len(set(call_ids)) == len(call_ids)
    assert all(call_ids)
    for position, name in enumerate(ids):  # the first bearer keeps its id
        if name and name not in ids[:position]:
            assert call_ids[position] == name


def test_ten_thousand_equal_ids_are_renamed_in_linear_time():
    calls = unique([ToolCall("a", "echo", {})] * 10_000)
    assert len({call.id for call in calls}) == 10_000
