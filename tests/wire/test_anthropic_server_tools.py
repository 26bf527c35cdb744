"""What of Anthropic's own tools stands in an answer goes back as it came, so that a paused turn goes on."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from toolspeak.data.messages import Message, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import TurnCollector
from toolspeak.errors import ConfigurationError
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import ModelRequest

MODEL = "claude-opus-5-5"
USER = Message.user("What is new?")


def searching(number: int) -> dict[str, Any]:
    return {"type": "server_tool_use", "id": f"srvtoolu_{number}", "name": "web_search", "input": {"query": "n°ews"}}


def search_result(number: int) -> dict[str, Any]:
    page = {
        "type": "web_search_result",
        "url": "https://x",
        "title": "X",
        "encrypted_content": "eHh4",
        "page_age": None,
    }
    return {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{number}", "content": [page]}


def text_block(text: str, *citations: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **({"citations": [*citations]} if citations else {})}


CITATION = {"type": "web_search_result_location", "url": "https://x", "encrypted_index": "eXk", "cited_text": "x"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}}


def events_of(content: list[Any], reason: str) -> list[Any]:
    """The events that bring this content, texts and inputs in pieces."""
    events: list[Any] = [{"type": "message_start", "message": {"model": MODEL, "usage": {"input_tokens": 1}}}]
    for index, block in enumerate(content):
        start, deltas = dict(block), list[Any]()
        for field, kind, name in (
            ("input", "input_json_delta", "partial_json"),
            ("text", "text_delta", "text"),
            ("thinking", "thinking_delta", "thinking"),
        ):
            if field in block:
                whole = json.dumps(block[field]) if field == "input" else block[field]
                start[field] = {} if field == "input" else ""
                deltas += [{"type": kind, name: whole[at : at + 4]} for at in range(0, len(whole), 4)]
        if "citations" in block:
            start["citations"] = []
            deltas += [{"type": "citations_delta", "citation": each} for each in block["citations"]]
        if "signature" in start:
            start["signature"] = ""
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    return [*events, {"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]


def read(content: list[Any], reason: str = "pause_turn", *, stream: bool = True) -> Message:
    collector = TurnCollector(lambda index: f"call_{index}")
    if stream:
        decoder = ANTHROPIC.decoder(model=MODEL)
        deltas = [delta for event in events_of(content, reason) for delta in decoder.feed(event)] + decoder.close()
    else:
        body = {"model": MODEL, "content": copy.deepcopy(content), "stop_reason": reason}
        deltas = ANTHROPIC.decode_response(body, model=MODEL)
    for delta in deltas:
        collector.add(delta)
    return collector.turn().message


def messages_of(*messages: Message, model: str = MODEL, **more: Any) -> list[Any]:
    return ANTHROPIC.encode_request(ModelRequest(messages, **more), model=model, stream=True)["messages"]


CONTENTS: list[list[Any]] = [
    [searching(1)],
    [THOUGHT, text_block("I look."), searching(1), search_result(1), searching(2)],
    [
        text_block("I look."),
        searching(1),
        searching(2),
        search_result(1),
        search_result(2),
        text_block("There is "),
        text_block("news", CITATION, CITATION),
    ],
    [
        searching(1),
        search_result(1),
        text_block("There is "),
        text_block("news", CITATION),
        text_block(" and more. "),
        text_block("Also", CITATION),
        text_block("."),
    ],
    [{"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "x", "server_name": "y", "input": {}}],
    [searching(1), search_result(1), {"type": "container_upload", "file_id": "file_1"}, text_block("Done.")],
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("content", CONTENTS, ids=range(len(CONTENTS)))
def test_a_paused_turn_goes_back_as_it_came(content: list[Any], stream: bool):
    paused_message = read(content, stream=stream)
    assert messages_of(USER, paused_message)[1] == {"role": "assistant", "content": content}
    assert messages_of(USER, paused_message)[1]["content"] == content  # the first encoding has changed nothing
    cached_blocks = messages_of(USER, paused_message, cache=True)[1]["content"]
    blocks = [{name: value for name, value in block.items() if name != "cache_control"} for block in cached_blocks]
    assert (blocks, read(content, stream=stream)) == (content, paused_message)
    marked_types = [block["type"] for block in cached_blocks if "cache_control" in block]
    assert marked_types in ([], ["text"])


def test_what_follows_a_pause_is_the_same_message_to_the_api():
    messages = [
        USER,
        read([text_block("I look."), searching(1)]),
        read([search_result(1), text_block("News.", CITATION)], "end_turn"),
    ]
    (_, answer) = messages_of(*messages)
    assert answer["content"] == [text_block("I look."), searching(1), search_result(1), text_block("News.", CITATION)]


def test_another_model_gets_the_text_alone():
    paused_message = read(CONTENTS[3])
    assert messages_of(USER, paused_message, model="other")[1]["content"] == [
        text_block("There is "), text_block("news"), text_block(" and more. "), text_block("Also"), text_block(".")
    ]  # fmt: skip


def test_a_call_that_the_api_never_answered_is_left_out_once_it_is_too_late():
    cut = read([text_block("I look."), searching(1), search_result(1), searching(2)], "max_tokens")
    assert messages_of(USER, cut, USER)[1]["content"] == [text_block("I look."), searching(1), search_result(1)]
    assert [message["role"] for message in messages_of(USER, read([searching(1)]), USER)] == ["user", "user"]


def test_a_call_of_the_apis_beside_one_of_ours_goes_on_with_our_result():
    both = read([searching(1), CALL], "tool_use")
    result = Message("tool", (ToolResult("call_0", "read", "success", ()),))
    assert messages_of(USER, both, result)[1]["content"] == [searching(1), CALL]
    after = read([search_result(1), text_block("So.")], "end_turn")
    assert messages_of(USER, both, result, after, USER)[1]["content"] == [searching(1), CALL]


def test_the_apis_own_tools_are_an_option_beside_the_requests():
    search = {"type": "web_search_20260209", "name": "web_search"}
    request = ModelRequest([USER], [ToolSpec("read", "", {})], options={"tools": [search]})
    tools = ANTHROPIC.encode_request(request, model=MODEL, stream=True)["tools"]
    assert [tool["name"] for tool in tools] == ["read", "web_search"]
    assert tools[1] == search
    for wrong in ({"name": "read"}, "x", [{"name": "mine", "input_schema": {}}], [3]):
        with pytest.raises(ConfigurationError, match="the option 'tools' must be a list of tools that the API"):
            ANTHROPIC.encode_request(ModelRequest([USER], options={"tools": wrong}), model=MODEL, stream=True)
