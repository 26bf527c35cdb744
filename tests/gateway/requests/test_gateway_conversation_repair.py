"""Conversations whose calls and results do not pair: each is healed, with a warning that says how."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback_server import serve, whole
from serving import ENDPOINTS, at, in_turn, run_gateway, texts

from growth import LINEAR, growth
from toolspeak.data.messages import Message, ReasoningPart, ToolResult
from toolspeak.gateway.requests.conversation_repair import repair_conversation
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import ModelRequest, WireFormat
from toolspeak.wire.openai_chat import OPENAI_CHAT
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

UNKNOWN_OUTCOME = "it may have run or not"
TOOL = {"type": "object", "properties": {"city": {"type": "string"}}}
USER = ("user", "Hm.")
REPLY = ("assistant", "I see.")

# A conversation as a test writes it: ("user", text), ("assistant", text), ("calls", id, …), ("result", id, text).
Item = tuple[str, ...]


def chat(items: Sequence[Item]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for kind, *rest in items:
        if kind == "calls":
            function = {"name": "weather", "arguments": '{"city": "Rome"}'}
            calls = [{"id": each, "type": "function", "function": function} for each in rest]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        elif kind == "result":
            messages.append({"role": "tool", "tool_call_id": rest[0], "content": rest[1]})
        elif kind == "thought":
            messages.append({"role": "assistant", "content": "", "reasoning_content": rest[0]})
        else:
            messages.append({"role": kind, "content": rest[0]})
    tool = {"type": "function", "function": {"name": "weather", "parameters": TOOL}}
    return {"model": "m", "messages": messages, "tools": [tool]}


def responses(items: Sequence[Item]) -> dict[str, Any]:
    input_items: list[dict[str, Any]] = []
    for kind, *rest in items:
        if kind == "calls":
            call = {"type": "function_call", "name": "weather", "arguments": '{"city": "Rome"}'}
            input_items += [{**call, "call_id": each} for each in rest]
        elif kind == "result":
            input_items.append({"type": "function_call_output", "call_id": rest[0], "output": rest[1]})
        elif kind == "thought":
            input_items.append({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": rest[0]})
        else:
            input_items.append({"type": "message", "role": kind, "content": rest[0]})
    return {"model": "m", "input": input_items, "tools": [{"type": "function", "name": "weather", "parameters": TOOL}]}


def messages(items: Sequence[Item]) -> dict[str, Any]:
    turns: list[dict[str, Any]] = []
    for kind, *rest in items:
        if kind == "calls":
            use = {"type": "tool_use", "name": "weather", "input": {"city": "Rome"}}
            turns.append({"role": "assistant", "content": [{**use, "id": each} for each in rest]})
        elif kind == "result":
            block = {"type": "tool_result", "tool_use_id": rest[0], "content": rest[1]}
            turns.append({"role": "user", "content": [block]})
        elif kind == "thought":
            block = {"type": "thinking", "thinking": rest[0], "signature": "s"}
            turns.append({"role": "assistant", "content": [block]})
        else:
            turns.append({"role": kind, "content": [{"type": "text", "text": rest[0]}]})
    tool = {"name": "weather", "input_schema": TOOL}
    return {"model": "m", "max_tokens": 100, "messages": turns, "tools": [tool]}


BODY_WRITERS = {"/v1/chat/completions": chat, "/v1/responses": responses, "/v1/messages": messages}

BROKEN_CONVERSATIONS: dict[str, tuple[list[Item], set[str], list[str]]] = {
    # what is asked, the warnings, and what the upstream reads behind the first message
    "a call that the user interrupted": (
        [USER, ("calls", "a"), ("user", "Stop.")],
        {"call_without_result"},
        ["call", UNKNOWN_OUTCOME, "Stop."],
    ),
    "a last turn of calls": (
        [USER, ("calls", "a", "b")],
        {"call_without_result"},
        ["call", UNKNOWN_OUTCOME, UNKNOWN_OUTCOME],
    ),
    "one of two results": (
        [USER, ("calls", "a", "b"), ("result", "b", "snow"), USER],
        {"call_without_result"},
        ["call", UNKNOWN_OUTCOME, "snow", "Hm."],
    ),
    "a result without a call": (
        [USER, ("result", "a", "snow"), REPLY, USER],
        {"result_without_call"},
        ["not in this conversation", "I see.", "Hm."],
    ),
    "a result behind a message of the user": (
        [USER, ("calls", "a"), ("user", "Quick!"), ("result", "a", "snow")],
        {"result_moved"},
        ["call", "snow", "Quick!"],
    ),
    "a result behind a later turn": (
        [USER, ("calls", "a"), USER, REPLY, ("result", "a", "snow")],
        {"result_moved"},
        ["call", "snow", "Hm.", "I see."],
    ),
    "a result before its call": (
        [USER, ("result", "a", "snow"), USER, ("calls", "a"), USER],
        {"result_moved"},
        ["Hm.", "call", "snow", "Hm."],
    ),
    "the same result twice": (
        [USER, ("calls", "a"), ("result", "a", "snow"), ("result", "a", "snow"), USER],
        {"result_repeated"},
        ["call", "snow", "Hm."],
    ),
    "two results of one call": (
        [USER, ("calls", "a"), ("result", "a", "snow"), ("result", "a", "rain"), USER],
        {"result_repeated"},
        ["call", "snow", "Another result of the call of weather:\nrain", "Hm."],
    ),
    "calls with one id in one turn": (
        [USER, ("calls", "a", "a"), ("result", "a", "snow"), ("result", "a", "rain"), USER],
        {"call_id_repeated"},
        ["call", "snow", "rain", "Hm."],
    ),
    "results that name no call": (
        [USER, ("calls", "a", "b"), ("result", "", "snow"), ("result", "b", "rain"), USER],
        {"result_without_id"},
        ["call", "snow", "rain", "Hm."],
    ),
    "all at once": (
        [
            ("result", "x", "lost"),
            ("calls", "a"),
            USER,
            ("calls", "a"),
            ("result", "a", "snow"),
            ("result", "", "rain"),
        ],
        {"result_without_call", "call_without_result"},
        ["call", UNKNOWN_OUTCOME, "Hm.", "call", "snow", "not in this conversation"],
    ),
}

SOUND: dict[str, list[Item]] = {
    "nothing of tools": [USER, REPLY, USER],
    "a call and its result": [USER, ("calls", "a"), ("result", "a", "snow"), USER],
    "results in another order": [USER, ("calls", "a", "b"), ("result", "b", "1"), ("result", "a", "2"), USER],
    "ids that count anew": [
        *(USER, ("calls", "c"), ("result", "c", "1")),
        *(("calls", "c"), ("result", "c", "2"), REPLY, USER),
    ],
}


def sent_items(path: str, items: Sequence[Item], **more: Any) -> tuple[list[dict[str, Any]], set[str]]:
    """What an upstream is sent, and the codes of the warnings."""

    async def run() -> tuple[list[dict[str, Any]], set[str]]:
        async with serve(in_turn(texts("Fine."))) as upstream, run_gateway(at(upstream, **more)) as gateway:
            response = await gateway.client.post(path, json=BODY_WRITERS[path](items))
            assert response.status_code == 200, response.text
            codes = {code for code in response.headers.get("x-toolspeak-warning", "").split(", ") if code}
            warnings = response.json().get("toolspeak", {"warnings": []})["warnings"]
            assert {each["code"] for each in warnings} == codes
            return upstream.exchanges[0].json["messages"], codes - {"usage_estimated"}

    return asyncio.run(run())


def as_read(message: dict[str, Any]) -> str:
    return "call" if message.get("tool_calls") else str(message["content"])


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("which", BROKEN_CONVERSATIONS)
def test_a_native_upstream_gets_a_conversation_that_it_takes(which: str, path: str):
    items, warnings, expected_parts = BROKEN_CONVERSATIONS[which]
    upstream_messages, codes = sent_items(path, items, dialect="native")
    assert codes == warnings
    read = [as_read(message) for message in upstream_messages][-len(expected_parts) :]
    assert all(part in text for part, text in zip(expected_parts, read, strict=True)), read
    assert_chat_takes(upstream_messages)


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("which", BROKEN_CONVERSATIONS)
def test_a_model_whose_calls_are_text_reads_every_result_once(which: str, path: str):
    items, warnings, _ = BROKEN_CONVERSATIONS[which]
    upstream_messages, codes = sent_items(path, items, dialect="hermes")
    assert codes == warnings
    text = "\n".join(message["content"] for message in upstream_messages)
    for result_text in {item[2] for item in items if item[0] == "result"}:
        assert text.count(result_text) == 1
    calls = sum(len(item) - 1 for item in items if item[0] == "calls")
    assert text.count("<tool_response>") == calls


@pytest.mark.parametrize("dialect", ["native", "hermes"])
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("which", SOUND)
def test_a_sound_conversation_has_no_warning(which: str, path: str, dialect: str):
    upstream_messages, codes = sent_items(path, SOUND[which], dialect=dialect)
    assert codes == set()
    if dialect == "native":
        assert_chat_takes(upstream_messages)
        results = [message["content"] for message in upstream_messages if message["role"] == "tool"]
        assert results == [item[2] for item in SOUND[which] if item[0] == "result"]


def test_messages_of_the_old_form_are_calls_and_results():
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "Hm."},
            {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": "{}"}},
            {"role": "function", "name": "weather", "content": "snow"},
        ],
    }

    async def run() -> None:
        async with serve(in_turn(texts("Fine."))) as upstream, run_gateway(at(upstream, dialect="native")) as gateway:
            response = await gateway.client.post("/v1/chat/completions", json=body)
            assert response.headers["x-toolspeak-warning"] == "result_without_id"
            upstream_messages = upstream.exchanges[0].json["messages"]
            assert_chat_takes(upstream_messages)
            assert upstream_messages[-1]["content"] == "snow"

    asyncio.run(run())


def test_results_of_anthropic_that_do_not_come_first_and_images_of_a_lost_call():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
    body = messages([USER, ("calls", "a")])
    result = {"type": "tool_result", "tool_use_id": "a", "content": "snow"}
    stray_result = {"type": "tool_result", "tool_use_id": "x", "content": [image], "is_error": True}
    body["messages"].append({"role": "user", "content": [{"type": "text", "text": "Here:"}, result, stray_result]})

    async def run() -> None:
        async with serve(in_turn(texts("Fine."))) as upstream, run_gateway(at(upstream, dialect="native")) as gateway:
            response = await gateway.client.post("/v1/messages", json=body)
            assert response.headers["x-toolspeak-warning"] == "result_moved, result_without_call"
            *_, result, text, aside = upstream.exchanges[0].json["messages"]
            assert (result["role"], result["content"], text["content"]) == ("tool", "snow", "Here:")
            assert "(it failed)" in aside["content"][0]["text"]
            assert aside["content"][1]["image_url"]["url"] == "data:image/png;base64,iVBO"

    asyncio.run(run())


def test_counting_tokens_warns_too():
    async def run() -> None:
        async with (
            serve(whole("404 Not Found", b"{}")) as upstream,
            run_gateway(at(upstream, dialect="hermes")) as gateway,
        ):
            response = await gateway.client.post("/v1/messages/count_tokens", json=messages([USER, ("calls", "a")]))
            assert response.status_code == 200
            assert response.headers["x-toolspeak-warning"] == "call_without_result, usage_estimated"

    asyncio.run(run())


# --- every conversation ------------------------------------------------------------------------------------------

IDS = st.sampled_from(["a", "b", "c", "", "a-1"])
TEXTS = st.sampled_from(["snow", "rain"])
ITEMS = st.lists(
    st.tuples(st.sampled_from(["user", "assistant"]), TEXTS)
    | st.lists(IDS, min_size=1, max_size=3).map(lambda ids: ("calls", *ids))
    | st.tuples(st.just("result"), IDS, TEXTS)
    | st.tuples(st.just("result"), IDS, TEXTS)
    | st.tuples(st.just("thought"), TEXTS),
    min_size=1,
    max_size=12,
)
FORMATS: list[tuple[WireFormat, Any]] = [
    (OPENAI_CHAT, chat),
    (OPENAI_RESPONSES, responses),
    (ANTHROPIC, messages),
]


@pytest.mark.parametrize(("wire", "write"), FORMATS, ids=[wire.name for wire, _ in FORMATS])
@given(items=ITEMS)
def test_whatever_comes_every_api_takes_it_healed(wire: WireFormat, write: Any, items: list[Item]):
    originals = [m for m in wire.decode_request(write([USER, *items])).request.messages if isinstance(m, Message)]
    repaired_messages, notes = repair_conversation(originals)
    assert bool(notes) == (repaired_messages != originals)
    assert repair_conversation(repaired_messages) == (repaired_messages, [])
    # Nothing is lost: every text that was said, and every result, is there.
    assert len([part for m in repaired_messages for part in m.calls]) == len(
        [part for m in originals for part in m.calls]
    )
    before, behind = (sorted({*_texts(each)}) for each in (originals, repaired_messages))
    assert {text for text in before if not any(text in other for other in behind)} == set()
    request = ModelRequest(repaired_messages)
    assert_chat_takes(OPENAI_CHAT.encode_request(request, model="m", stream=False)["messages"])
    assert_responses_takes(OPENAI_RESPONSES.encode_request(request, model="m", stream=False)["input"])
    assert_anthropic_takes(ANTHROPIC.encode_request(request, model="m", stream=False)["messages"])
    for other, _ in FORMATS:
        body = other.encode_request(request, model="m", stream=False)
        again = [m for m in other.decode_request(body).request.messages if isinstance(m, Message)]
        assert repair_conversation(again) == (again, [])


SOUND_TURNS = st.lists(
    st.tuples(st.lists(IDS.filter(bool), unique=True, max_size=3), st.randoms(use_true_random=False)), max_size=4
)


@pytest.mark.parametrize(("wire", "write"), FORMATS, ids=[wire.name for wire, _ in FORMATS])
@given(turns=SOUND_TURNS)
def test_a_sound_conversation_stays_the_same_object(wire: WireFormat, write: Any, turns: Any):
    items: list[Item] = [USER]
    for ids, chance in turns:
        order = chance.sample(ids, len(ids))
        items += [("calls", *ids), *(("result", each, f"of {each}") for each in order)] if ids else [REPLY]
        items.append(USER)
    read = wire.decode_request(write(items)).request.messages
    repaired_messages, notes = repair_conversation(read)  # type: ignore[arg-type]
    assert repaired_messages is read
    assert notes == []


@pytest.mark.parametrize("kind", ["orphans", "doubled", "calls", "one id", "late"])
def test_a_long_conversation_is_healed_in_linear_time(kind: str):
    def items(n: int) -> list[Item]:
        match kind:
            case "orphans":
                return [("result", f"x{i}", "r") for i in range(n)]
            case "doubled":
                return [("calls", "a"), *(("result", "a", f"r{i}") for i in range(n))]
            case "calls":
                return [("calls", *(f"c{i}" for i in range(n))), *(("result", "", "r") for _ in range(n))]
            case "one id":
                return [("calls", *("c" for _ in range(n))), *(("result", "c", "r") for _ in range(n))]
            case _:
                return [*(("calls", f"c{i}") for i in range(n)), *(("result", f"c{i}", "r") for i in range(n))]

    def prepare(n: int) -> Callable[[], object]:
        bodies = [(wire, write(items(n))) for wire, write in FORMATS]
        return lambda: [repair_conversation(wire.decode_request(body).request.messages) for wire, body in bodies]  # type: ignore[arg-type]

    assert growth(prepare, 2_000) < LINEAR


def _texts(messages: Sequence[Message]) -> list[str]:
    texts = [message.text for message in messages]
    texts += [part.text for message in messages for part in message.results]
    return [text for text in texts if text]


# --- what the APIs refuse ----------------------------------------------------------------------------------------


def assert_chat_takes(messages: Any) -> None:
    """OpenAI: "An assistant message with 'tool_calls' must be followed by tool messages responding to each
    'tool_call_id'", and a tool message "must be a response to a preceding message with 'tool_calls'"."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert waiting == []
        waiting = [call["id"] for call in message.get("tool_calls", ())]
        assert len({*waiting}) == len(waiting)
    assert waiting == []


def assert_responses_takes(items: Any) -> None:
    """OpenAI: "No tool output found for function call", "No tool call found for function call output", "Item of type
    'reasoning' was provided without its required following item"."""
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    outputs = [item["call_id"] for item in items if item["type"] == "function_call_output"]
    assert sorted(calls) == sorted(outputs)
    assert len({*calls}) == len(calls)
    for n, item in enumerate(items):
        if item["type"] == "function_call_output":
            assert item["call_id"] in {each.get("call_id") for each in items[:n]}
        if item["type"] == "reasoning":
            behind = items[n + 1]
            assert behind["type"] in ("reasoning", "function_call") or behind.get("role") == "assistant"


def assert_anthropic_takes(messages: Any) -> None:
    """Anthropic: "`tool_use` ids were found without `tool_result` blocks immediately after", "unexpected `tool_use_id`
    found in `tool_result` blocks", "`tool_use` ids must be unique", "the final block cannot be `thinking`"."""
    waiting: list[str] = []
    ids: set[str] = set()
    for message in messages:
        blocks = message["content"]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(results) == sorted(waiting)
        assert all(block["type"] == "tool_result" for block in blocks[: len(results)])
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert not ids & {*waiting}
        assert len({*waiting}) == len(waiting)
        ids |= {*waiting}
        assert message["role"] != "assistant" or blocks[-1]["type"] != "thinking"
    assert waiting == []


def test_reasoning_that_nothing_follows_is_left_out_of_responses_alone():
    items = [USER, ("thought", "Well."), USER]
    for wire, write in FORMATS:
        read = wire.decode_request(write(items)).request.messages
        repaired_messages, notes = repair_conversation(read)  # type: ignore[arg-type]
        thoughts = [part for m in repaired_messages for part in m.parts if isinstance(part, ReasoningPart)]
        assert bool(thoughts) == (wire is OPENAI_CHAT)
        assert [note.code for note in notes] == ([] if wire is OPENAI_CHAT else ["reasoning_left_out"])


def test_a_placeholder_is_a_failure_of_unknown_outcome():
    read = OPENAI_CHAT.decode_request(chat([("calls", "a")])).request.messages
    repaired_messages, (note,) = repair_conversation(read)  # type: ignore[arg-type]
    (result,) = repaired_messages[-1].results
    assert (result.status, result.code, result.name) == ("failure", "unknown_outcome", "weather")
    assert isinstance(result, ToolResult)
    assert note.message.endswith("1 (weather)")
