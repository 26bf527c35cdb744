"""What becomes of calls that are malformed, missing, forbidden, one too many, or in the wrong place."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from loopback_server import STREAM_HEAD, Exchange, Server, event, http_chunks, says, serve, until_client_leaves
from serving import ENDPOINTS, TOOLS, at, call_text, events, in_turn, pieces, run_gateway, texts

from toolspeak.data.messages import ImagePart, Message, TextPart, ToolCall, ToolChoice, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.wire.base import ModelRequest, OutputSchema

QUESTION = Message.user("How is it?")
ROME = ("weather", {"city": "Rome"})
OSLO = ("weather", {"city": "Oslo"})
NOON = ("clock", {"zone": "UTC"})
BROKEN_CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"\n</tool_call>'
NAMELESS = '<tool_call>\n{"name": , "arguments": {}}\n</tool_call>'

pytestmark = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def exchange_of(
    *turns: str | list[bytes],
    stream: bool,
    path: str = "/v1/chat/completions",
    request: ModelRequest | None = None,
    settings: dict[str, Any] | None = None,
    **upstream: Any,
):
    """One turn through the gateway: as the client reads it, what it was warned of, what the upstream was asked."""

    async def run():
        upstream_turns = [texts(*pieces(turn, 4)) if isinstance(turn, str) else turn for turn in turns]
        options = {"dialect": "hermes", **upstream}
        async with (
            serve(in_turn(*upstream_turns)) as server,
            run_gateway(at(server, **options), **(settings or {})) as gateway,
        ):
            turn, response = await gateway.ask(path, request or ModelRequest([QUESTION], TOOLS), stream=stream)
            return turn, warnings(response, stream), [exchange.json for exchange in server.exchanges]

    return asyncio.run(run())


def warnings(response: Any, stream: bool) -> list[str]:
    if not stream:
        header = response.headers.get("x-toolspeak-warning", "")
        notes = response.json().get("toolspeak", {"warnings": []})["warnings"]
        assert [*dict.fromkeys(note["code"] for note in notes)] == [code for code in header.split(", ") if code]
    else:
        frames_with_notes = [each for each in events(response.text) if isinstance(each, dict) and "toolspeak" in each]
        assert len(frames_with_notes) <= 1
        notes = frames_with_notes[0]["toolspeak"]["warnings"] if frames_with_notes else []
    assert all(note["message"] for note in notes)
    return [note["code"] for note in notes]


def calls_of(turn: Any) -> list[tuple[str, Any]]:
    return [(call.name, call.arguments) for call in turn.calls if isinstance(call, ToolCall)]


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_malformed_call_is_never_one(path: str, stream: bool):
    turn, codes, requests = exchange_of("Look. " + BROKEN_CALL, stream=stream, path=path)
    assert calls_of(turn) == []
    assert codes == ["malformed_call"]
    assert len(requests) == 1
    if not stream:  # nothing of it had left: it stands in the text
        assert '{"name": "weather", "arguments": {"city": "Rome"' in turn.text
        assert turn.finish == "stop"


@pytest.mark.parametrize("path", ENDPOINTS)
def test_one_of_which_nothing_has_left_stands_in_the_text(path: str, stream: bool):
    turn, codes, _ = exchange_of("Look. " + NAMELESS, stream=stream, path=path)
    assert (calls_of(turn), codes, turn.finish) == ([], ["malformed_call"], "stop")
    assert turn.text.startswith("Look. ")
    assert '{"name": , "arguments": {}}' in turn.text


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_malformed_call_is_asked_for_again(path: str, stream: bool):
    turn, codes, requests = exchange_of(
        "Look. " + BROKEN_CALL, call_text("hermes", ROME), stream=stream, path=path, repair=1, hold_calls=True
    )
    assert calls_of(turn) == [ROME]
    assert codes == ["repaired_call"]
    assert turn.finish == "tool_calls"
    messages = requests[1]["messages"]
    assert messages[-2]["role"] == "assistant"
    assert BROKEN_CALL.splitlines()[1] in messages[-2]["content"]
    assert "ERROR: expected ',' or '}'" in messages[-1]["content"]


def test_a_call_that_has_begun_to_leave_is_not_asked_for_again(stream: bool):
    turn, codes, requests = exchange_of(BROKEN_CALL, call_text("hermes", ROME), stream=stream, repair=1)
    assert len(requests) == (1 if stream else 2)
    assert codes == (["malformed_call"] if stream else ["repaired_call"])
    assert calls_of(turn) == ([] if stream else [ROME])


def test_asking_again_has_an_end(stream: bool):
    turn, codes, requests = exchange_of(NAMELESS, NAMELESS, ROME[0], stream=stream, repair=1, hold_calls=True)
    assert len(requests) == 2
    assert codes == ["repaired_call", "malformed_call"]
    assert calls_of(turn) == []
    assert NAMELESS.splitlines()[1] in turn.text


def test_usage_is_that_of_all_attempts(stream: bool):
    async def run() -> dict[str, int]:
        first, second = texts(BROKEN_CALL), texts(call_text("hermes", ROME))
        async with (
            serve(in_turn(first, second)) as server,
            run_gateway(at(server, dialect="hermes", repair=1, hold_calls=True)) as gateway,
        ):
            more = {"stream_options": {"include_usage": True}} if stream else {}
            request = ModelRequest([QUESTION], TOOLS)
            turn, _ = await gateway.ask("/v1/chat/completions", request, stream=stream, **more)
            return {"input": turn.usage.input or 0, "output": turn.usage.output or 0}

    assert asyncio.run(run()) == {"input": 60, "output": 24}


def test_an_attempt_that_nobody_counted_is_estimated(stream: bool):
    async def run():
        first, second = texts(BROKEN_CALL, usage=False), texts(call_text("hermes", ROME))
        async with (
            serve(in_turn(first, second)) as server,
            run_gateway(at(server, dialect="hermes", repair=1, hold_calls=True)) as gateway,
        ):
            more = {"stream_options": {"include_usage": True}} if stream else {}
            request = ModelRequest([QUESTION], TOOLS)
            turn, response = await gateway.ask("/v1/chat/completions", request, stream=stream, **more)
            return turn, warnings(response, stream)

    turn, codes = asyncio.run(run())
    assert codes == ["repaired_call", "usage_estimated"]
    assert (turn.usage.input or 0) > 30
    assert (turn.usage.output or 0) > 12


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    "choice", [ToolChoice("required"), ToolChoice("specific", "weather")], ids=["required", "named"]
)
def test_a_required_call_is_insisted_on(choice: ToolChoice, path: str, stream: bool):
    request = ModelRequest([QUESTION], TOOLS, choice)
    turn, codes, requests = exchange_of(
        "I would rather talk.", call_text("hermes", ROME), stream=stream, path=path, request=request
    )
    assert (calls_of(turn), turn.text.strip(), codes, turn.finish) == ([ROME], "", ["asked_again"], "tool_calls")
    assert "must call" in requests[0]["messages"][-1]["content"]
    assert "must call" in requests[1]["messages"][-1]["content"]
    assert "no tool call" in requests[1]["messages"][-1]["content"]


def test_a_model_that_will_not_call_is_believed_in_the_end(stream: bool):
    request = ModelRequest([QUESTION], TOOLS, ToolChoice("required"))
    turn, codes, requests = exchange_of("No.", "Still no.", stream=stream, request=request)
    assert (calls_of(turn), turn.text, turn.finish) == ([], "Still no.", "stop")
    assert codes == ["asked_again", "tool_choice_not_followed"]
    assert len(requests) == 2


def test_another_tool_than_the_named_one_is_left_out(stream: bool):
    request = ModelRequest([QUESTION], TOOLS, ToolChoice("specific", "clock"))
    turn, codes, _ = exchange_of(call_text("hermes", ROME, NOON), stream=stream, request=request)
    assert calls_of(turn) == [NOON]
    assert codes == ["call_left_out"]


def test_a_refused_turn_is_not_insisted_on(stream: bool):
    request = ModelRequest([QUESTION], TOOLS, ToolChoice("required"))
    cut = [event(says("I ca")), event(says("", "length")), event("[DONE]")]
    turn, codes, requests = exchange_of(cut, stream=stream, request=request)
    assert len(requests) == 1
    assert turn.finish == "length"
    assert codes[0] == "tool_choice_not_followed"


@pytest.mark.parametrize("hold_calls", [False, True])
def test_one_call_where_parallel_ones_are_forbidden(hold_calls: bool, stream: bool):
    request = ModelRequest([QUESTION], TOOLS, parallel=False)
    turn, codes, _ = exchange_of(call_text("hermes", ROME, OSLO), stream=stream, request=request, hold_calls=hold_calls)
    assert (calls_of(turn), codes) == ([ROME], ["call_left_out"])


def test_no_call_where_none_is_allowed(stream: bool):
    request = ModelRequest([QUESTION], TOOLS, ToolChoice("none"))
    turn, codes, requests = exchange_of("Well. " + call_text("hermes", ROME), stream=stream, request=request)
    assert (calls_of(turn), turn.text.strip(), turn.finish) == ([], "Well.", "stop")
    assert codes == ["call_left_out"]
    assert "Do not call tools" in requests[0]["messages"][-1]["content"]


def test_only_the_last_call_of_a_dialect_that_says_so(stream: bool):
    both = call_text("tool-call", ROME) + "\n" + call_text("tool-call", OSLO)
    turn, codes, _ = exchange_of(both, stream=stream, dialect="tool-call")
    assert (calls_of(turn), codes) == ([OSLO], [])


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_block_that_breaks_after_a_whole_call(path: str, stream: bool):
    whole = call_text("cogency-json", ROME, OSLO)
    broken_text = whole[: whole.index("Oslo")] + '"]]]</execute>'

    async def run() -> None:
        turn = in_turn(texts(*pieces(broken_text, 4)))
        async with serve(turn) as server, run_gateway(at(server, dialect="cogency-json")) as gateway:
            body = ENDPOINTS[path].encode_request(ModelRequest([QUESTION], TOOLS), model="m", stream=stream)
            response = await gateway.client.post(path, json=body)
        assert response.status_code == 200
        if not stream:
            assert "Oslo" not in response.text
            assert response.headers["x-toolspeak-warning"] == "malformed_call"
            assert "Rome" in response.text
            return
        stream_events = events(response.text)
        if path == "/v1/chat/completions":
            calls = [call for each in stream_events[:-2] for call in each["choices"][0]["delta"].get("tool_calls", ())]
            first = "".join(call["function"]["arguments"] for call in calls if call["index"] == 0)
            with pytest.raises(ValueError, match="Extra data"):
                json.loads(first)
        else:
            error = stream_events[-1].get("error") or stream_events[-1]["response"]["error"]
            assert "must not run" in error["message"]

    asyncio.run(run())


def leaking_frames(text: str, *native: dict[str, Any]) -> list[bytes]:
    calls = [{"index": i, "id": f"n{i}", "type": "function", "function": each} for i, each in enumerate(native)]
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": None}]}
    return [*(event(says(piece)) for piece in pieces(text, 4)), *([event(chunk)] if calls else []), *texts("")]


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_leaked_call_of_a_native_upstream_is_one(path: str, stream: bool):
    turn, codes, requests = exchange_of(
        leaking_frames("Hm. " + call_text("hermes", ROME)), stream=stream, path=path, dialect="native"
    )
    assert (calls_of(turn), turn.text.strip(), turn.finish) == ([ROME], "Hm.", "tool_calls")
    assert codes == ["leaked_call"]
    assert requests[0]["tools"]


def test_a_leaked_call_that_came_natively_too_leaves_once(stream: bool):
    upstream_turn = leaking_frames(call_text("hermes", ROME), {"name": "weather", "arguments": '{"city": "Rome"}'})
    turn, codes, _ = exchange_of(upstream_turn, stream=stream, dialect="native")
    assert (calls_of(turn), codes) == ([ROME], [])


def test_a_server_that_takes_no_tools_gets_them_as_text(stream: bool):
    async def refuse(exchange: Exchange) -> None:
        body = b'{"error": {"message": "auto tool choice requires --enable-auto-tool-choice", "code": 400}}'
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        await exchange.send(head.encode(), body)

    async def run():
        answer = in_turn(texts(call_text("cogency-json", ROME)))
        async with serve(refuse, answer) as server, run_gateway(at(server, provider="vllm", model="x")) as gateway:
            request = ModelRequest([Message.system("Be brief."), QUESTION], TOOLS)
            turn, _ = await gateway.ask("/v1/chat/completions", request, stream=stream)
            return turn, server.exchanges[1].json["messages"]

    turn, messages = asyncio.run(run())
    assert calls_of(turn) == [ROME]
    assert [message["role"] for message in messages] == ["system", "user"]
    assert messages[0]["content"].startswith("Be brief.")


def test_after_its_calls_a_model_is_read_for_its_usage_alone(stream: bool):
    text = call_text("cogency-json", ROME)
    turn, codes, _ = exchange_of(texts(text, "\n<end>"), stream=stream, dialect="cogency-json")
    assert (calls_of(turn), codes) == ([ROME], [])
    if not stream:
        assert (turn.usage.input, turn.usage.output) == (30, 12)


@pytest.mark.parametrize("chatty", [True, False])
def test_one_that_goes_on_is_closed_and_its_usage_estimated(chatty: bool, stream: bool):
    text = call_text("cogency-json", ROME)

    async def run():
        servers: list[Server] = []
        behind = [event(says("made-up results " * 40))] if chatty else []
        content = http_chunks([event(says(text)), *behind])
        answer = until_client_leaves(lambda: servers[0], STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n", content)
        grace = 30.0 if chatty else 0.05
        async with (
            serve(answer) as server,
            run_gateway(at(server, dialect="cogency-json"), grace_seconds=grace) as gateway,
        ):
            servers.append(server)
            more = {"stream_options": {"include_usage": True}} if stream else {}
            request = ModelRequest([QUESTION], TOOLS)
            turn, response = await gateway.ask("/v1/chat/completions", request, stream=stream, **more)
            await server.client_gone.wait()
            return turn, warnings(response, stream)

    turn, codes = asyncio.run(run())
    assert (calls_of(turn), turn.text, turn.finish) == ([ROME], "", "tool_calls")
    assert codes == ["usage_estimated"]
    assert turn.usage.input
    assert turn.usage.output


def test_a_grammar_where_the_upstream_has_one(stream: bool):
    request = ModelRequest([QUESTION], TOOLS, ToolChoice("required"))
    turn, codes, (body,) = exchange_of(
        call_text("hermes", ROME), stream=stream, request=request, capabilities={"grammar": "gbnf"}
    )
    assert calls_of(turn) == [ROME]
    assert "root ::=" in body["grammar"]
    assert codes == []


def test_strict_tools_reach_a_native_upstream(stream: bool):
    tool = ToolSpec("weather", "", {"type": "object", "properties": {}}, extra={"strict": True})
    _, _, (body,) = exchange_of(texts("Hi."), stream=stream, request=ModelRequest([QUESTION], [tool]), dialect="native")
    assert body["tools"][0]["function"]["strict"] is True


def test_images_and_unknown_fields_pass(stream: bool):
    image = ImagePart("image/png", b"\x89PNG")
    asked_with_image = Message("user", (TextPart("What is "), image, TextPart("this?")))
    options = {"temperature": 0.5, "stop": ["\n\n"], "top_secret": {"x": 1}}
    for tools in (TOOLS, ()):
        request = ModelRequest([asked_with_image], tools, options=options)
        _, _, (body,) = exchange_of("A cat.", stream=stream, request=request)
        assert {name: body[name] for name in options} == options
        content = body["messages"][-1]["content"]
        assert [part["type"] for part in content] == ["text", "image_url", "text"]
        assert content[1]["image_url"]["url"] == "data:image/png;base64,iVBORw=="


def test_the_form_of_an_answer_is_asked_for_in_words_where_calls_are_text(stream: bool):
    output = OutputSchema("city", {"type": "object", "properties": {"name": {"type": "string"}}})
    _, _, (body,) = exchange_of(
        '{"name": "Rome"}', stream=stream, request=ModelRequest([QUESTION], TOOLS, output=output)
    )
    assert "response_format" not in body
    assert '"name": {"type": "string"}' in body["messages"][0]["content"]
    _, _, (body,) = exchange_of('{"name": "Rome"}', stream=stream, request=ModelRequest([QUESTION], output=output))
    assert body["response_format"]["json_schema"]["name"] == "city"
    plain = ModelRequest([QUESTION], TOOLS, options={"response_format": {"type": "json_object"}})
    _, _, (body,) = exchange_of("{}", stream=stream, request=plain)
    assert "response_format" not in body
    assert "JSON" in body["messages"][0]["content"]


# --- a turn that reaches its limit of tokens ---------------------------------------------------------------------

LIMIT = 12  # what the upstream counts in each turn here (`serving.USAGE`)
LIMITS = {"/v1/chat/completions": "max_tokens", "/v1/responses": "max_output_tokens", "/v1/messages": "max_tokens"}
UNCLOSED_CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n'


def native_events(*calls: tuple[str, dict[str, Any]]) -> list[bytes]:
    """A turn with the API's own calls, of which the server says that it ended by itself."""
    frames: list[bytes] = []
    for at_, (name, arguments) in enumerate(calls):
        head = {"index": at_, "id": f"call_{at_}", "type": "function", "function": {"name": name, "arguments": ""}}
        frames.append(event({"choices": [{"index": 0, "delta": {"tool_calls": [head]}}]}))
        for piece in pieces(json.dumps(arguments), 4):
            more = {"index": at_, "function": {"arguments": piece}}
            frames.append(event({"choices": [{"index": 0, "delta": {"tool_calls": [more]}}]}))
    return [*frames, *texts(finish="tool_calls")]


@pytest.mark.parametrize("over", [0, 1], ids=["at the limit", "below it"])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_last_call_at_the_limit_reaches_no_client(path: str, over: int, stream: bool):
    request = ModelRequest([QUESTION], TOOLS, options={LIMITS[path]: LIMIT + over})
    frames = native_events(ROME, OSLO)
    turn, codes, _ = exchange_of(
        frames, stream=stream, path=path, request=request, dialect="native", capabilities={"tools": True}
    )
    if over:
        assert (calls_of(turn), codes, turn.finish) == ([ROME, OSLO], [], "tool_calls")
    else:
        assert (calls_of(turn), codes, turn.finish) == ([ROME], ["malformed_call"], "length")


@pytest.mark.parametrize("over", [0, 1], ids=["at the limit", "below it"])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_call_in_text_without_its_end_at_the_limit_reaches_no_client(path: str, over: int, stream: bool):
    request = ModelRequest([QUESTION], TOOLS, options={LIMITS[path]: LIMIT + over})
    turn, codes, _ = exchange_of(UNCLOSED_CALL, stream=stream, path=path, request=request)
    if over:
        assert (calls_of(turn), codes, turn.finish) == ([ROME], [], "tool_calls")
    else:
        assert (calls_of(turn), {*codes}, turn.finish) == ([], {"malformed_call"}, "length")


def test_of_a_block_that_is_cut_the_last_call_is_never_complete(stream: bool):
    """Nothing of the block counts. The first call had left whole: only what follows it spoils it for most clients."""
    cut = call_text("jamba", ROME, OSLO).removesuffix("]</tool_calls>")
    turn, codes, _ = exchange_of(texts(*pieces(cut, 4), finish="length"), stream=stream, dialect="jamba")
    assert OSLO not in calls_of(turn)
    assert stream or calls_of(turn) == []
    assert ({*codes}, turn.finish) == ({"malformed_call"}, "length")


@pytest.mark.parametrize("answered_ids", [("b", "a"), ("b",)], ids=["in another order", "one alone"])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_results_are_told_in_the_order_of_their_calls(path: str, answered_ids: tuple[str, ...], stream: bool):
    """A client appends them as they come, and in text the order alone says whose they are."""
    calls = (ToolCall("a", *ROME, provider_id="a"), ToolCall("b", *OSLO, provider_id="b"))
    towns = {"a": "sunny in Rome", "b": "snow in Oslo"}
    results = tuple(ToolResult(each, "weather", "success", (TextPart(towns[each]),)) for each in answered_ids)
    history = [QUESTION, Message("assistant", calls), Message("tool", results)]
    _, _, (body,) = exchange_of("Hm.", stream=stream, path=path, request=ModelRequest(history, TOOLS))
    text = body["messages"][-1]["content"]
    first, second = text.split("</tool_response>")[:2]
    assert "snow in Oslo" in second
    assert ("sunny in Rome" if "a" in answered_ids else "no result") in first
