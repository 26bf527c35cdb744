"""Endpoints that the gateway relays to a model's server: embeddings, completions, reranking, audio, tokens."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import re
from contextlib import suppress
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback_server import (
    STREAM_HEAD,
    Answer,
    Exchange,
    Server,
    event,
    hang_up,
    http_chunks,
    serve,
    stream,
    until_client_leaves,
    whole,
)
from serving import PATIENCE, at, events, run_gateway

from sweeps import fewer
from toolspeak.gateway.http.error_responses import Failure
from toolspeak.gateway.http.multipart_forms import read_form
from toolspeak.gateway.responses.endpoint_relay import RELAY_PATHS
from toolspeak.gateway.settings.api_keys import Key, digest
from toolspeak.gateway.settings.gateway_settings import Bounds

FORMS = ["/v1/audio/transcriptions", "/v1/audio/translations"]
OBJECTS = [path for path in RELAY_PATHS if path not in FORMS]
HEAD = STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n"
AUDIO_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ntransfer-encoding: chunked\r\n\r\n"
SOUND = bytes(range(256)) * 40


def relay_request(
    answer: Answer, path: str, *, upstream: dict[str, Any] | None = None, key: str = "", **request: Any
) -> tuple[httpx2.Response, Server]:
    """Sends a request through a gateway with one upstream; the response, and the upstream's server."""

    async def run() -> tuple[httpx2.Response, Server]:
        keys = (Key("alice", digest("alice" * 5), models=("m", "mine")),) if key else ()
        async with serve(answer) as server, run_gateway(at(server, **(upstream or {})), keys=keys) as gateway:
            headers = {**request.pop("headers", {}), **({"authorization": f"Bearer {key}"} if key else {})}
            return await gateway.client.post(path, headers=headers, **request), server

    return asyncio.run(run())


def sent_as(path: str) -> dict[str, Any]:
    """A request of the endpoint."""
    if path in FORMS:
        return {"data": {"model": "m", "language": "de"}, "files": {"file": ("a.wav", SOUND, "audio/wav")}}
    return {"json": {"model": "m", "input": ["x", "ü"], "x_new": {"deep": [1, None]}}}


@pytest.mark.parametrize("path", RELAY_PATHS)
def test_request_and_answer_pass_unchanged(path: str):
    answer = json.dumps({"object": "list", "model": "m", "x": [0.10, 1e-9], "y": "ü"}, indent=1).encode()
    response, server = relay_request(whole("200 OK", answer), path, **sent_as(path))
    assert (response.status_code, response.content) == (200, answer)
    assert response.headers["content-type"] == "application/json"
    (exchange,) = server.exchanges
    assert exchange.request_line == f"POST {path} HTTP/1.1"
    if path in FORMS:
        assert SOUND in exchange.body
        assert exchange.headers["content-type"].startswith("multipart/form-data; boundary=")
    else:
        assert exchange.json == sent_as(path)["json"]


@pytest.mark.parametrize("path", RELAY_PATHS)
def test_the_upstream_reads_its_configured_model_name_and_the_client_its_own(path: str):
    answer = whole("200 OK", b'{"model": "there", "data": [1]}')
    response, server = relay_request(answer, path, upstream={"names": ("m",), "model": "there"}, **sent_as(path))
    assert response.json() == {"model": "m", "data": [1]}
    if path in FORMS:
        assert b'name="model"\r\n\r\nthere\r\n' in server.exchanges[0].body
        assert SOUND in server.exchanges[0].body
    else:
        assert server.exchanges[0].json["model"] == "there"


def test_the_upstreams_key_takes_the_place_of_the_clients_and_no_other_header_passes():
    answer, body = whole("200 OK", b"{}"), {"model": "m"}
    headers = {
        "cookie": "a=b",
        "x-api-key": "k",
        "te": "trailers",
        "x-forwarded-for": "1.2.3.4",
        "openai-organization": "o",
    }
    _, server = relay_request(answer, "/v1/embeddings", key="alice" * 5, json=body, headers=headers)
    upstream_headers = server.exchanges[0].headers
    assert not {"cookie", "x-api-key", "authorization", "te", "x-forwarded-for", "openai-organization"} & set(
        upstream_headers
    )


def test_of_an_upstreams_headers_only_the_content_type_passes():
    answer = whole("200 OK", b"{}", "application/json", "set-cookie: a=b", "x-powered-by: y", "keep-alive: timeout=5")
    response, _ = relay_request(answer, "/v1/embeddings", json={"model": "m"})
    assert not {"set-cookie", "x-powered-by", "keep-alive"} & set(response.headers)


@pytest.mark.parametrize("path", ["/v1/embeddings", *FORMS])
def test_a_key_can_request_only_its_own_models(path: str):
    request = sent_as(path)
    request["json" if "json" in request else "data"]["model"] = "secret"
    response, server = relay_request(whole("200 OK", b"{}"), path, key="alice" * 5, **request)
    assert (response.status_code, server.exchanges) == (404, [])
    response, _ = relay_request(whole("200 OK", b"{}"), path, **sent_as(path), key="alice" * 5)
    assert response.status_code == 200


def test_a_request_with_two_models_goes_to_the_model_that_was_checked():
    body = b'{"model": "secret", "input": "x", "model": "m"}'
    headers = {"content-type": "application/json"}
    _, server = relay_request(whole("200 OK", b"{}"), "/v1/embeddings", key="alice" * 5, content=body, headers=headers)
    assert server.exchanges[0].body.count(b'"model"') == 1
    assert server.exchanges[0].json == {"model": "m", "input": "x"}


@pytest.mark.parametrize("provider", ["anthropic", "ollama", "gemini"])
@pytest.mark.parametrize("path", ["/v1/embeddings", "/tokenize"])
def test_a_model_whose_server_speaks_another_api(path: str, provider: str):
    upstream = {"provider": provider, "key_variable": ""}
    response, server = relay_request(whole("200 OK", b"{}"), path, upstream=upstream, json={"model": "m"})
    assert response.status_code == 404
    assert provider in response.json()["error"]["message"]
    assert not server.exchanges


@pytest.mark.parametrize("path", ["/tokenize", "/infill", "/rerank"])
def test_a_server_specific_request_without_a_model_goes_to_the_only_model(path: str):
    async def run() -> None:
        async with serve(whole("200 OK", b'{"tokens": [1]}')) as server:
            async with run_gateway(at(server, names=("only",))) as gateway:
                response = await gateway.client.post(path, json={"content": "x"})
                assert response.json() == {"tokens": [1]}
                assert server.exchanges[0].json == {"content": "x"}
            async with run_gateway(at(server, names=("a",)), at(server, names=("b",))) as gateway:
                response = await gateway.client.post(path, json={"content": "x"})
                assert (response.status_code, len(server.exchanges)) == (400, 1)
                assert "model: missing" in response.text

    asyncio.run(run())


@pytest.mark.parametrize("base", ["/v1", "/v1/", "/proxy/v1", ""])
def test_a_path_at_the_servers_root_has_no_version_prefix(base: str):
    async def run() -> None:
        async with serve(whole("200 OK", b"{}")) as server:
            url = f"http://127.0.0.1:{server.port}{base}"
            async with run_gateway(at(server, url=url)) as gateway:
                await gateway.client.post("/tokenize", json={"model": "m"})
                await gateway.client.post("/v1/rerank", json={"model": "m"})
            above = base.rstrip("/").removesuffix("/v1")
            assert [each.request_line.split()[1] for each in server.exchanges] == [
                f"{above}/tokenize",
                f"{base.rstrip('/')}/rerank",
            ]

    asyncio.run(run())


# --- streams and bytes ----------------------------------------------------------------------------------------------

CHUNKS = [
    b": hello\n\n",
    event(
        {"id": "c", "model": "m", "choices": [{"index": 0, "text": "a", "logprobs": {"x": 1}, "finish_reason": None}]}
    ),
    event(
        {"id": "c", "model": "m", "choices": [{"index": 0, "text": "b", "finish_reason": "stop"}], "timings": {"y": 2}}
    ),
]
USAGE = event({"model": "m", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
END = b"data: [DONE]\n\n"


@pytest.mark.parametrize("wanted", [True, False])
def test_a_streamed_completion_passes_byte_for_byte_and_its_usage_is_counted(wanted: bool):
    body: dict[str, Any] = {"model": "m", "prompt": "x", "suffix": "y", "stream": True}
    if wanted:
        body["stream_options"] = {"include_usage": True, "x": 1}

    async def run() -> None:
        async with serve(stream(*CHUNKS, USAGE, END)) as server, run_gateway(at(server, names=("m",))) as gateway:
            response = await gateway.client.post("/v1/completions", json=body)
            assert response.content == b"".join([*CHUNKS, *([USAGE] if wanted else []), END])
            assert response.headers["content-type"].startswith("text/event-stream")
            upstream_body = server.exchanges[0].json
            assert upstream_body["stream_options"] == (
                {"include_usage": True, "x": 1} if wanted else {"include_usage": True}
            )
            metrics = (await gateway.client.get("/metrics")).text
            assert 'toolspeak_tokens_total{kind="output",model="m"} 2.0' in metrics
            labels = 'endpoint="/v1/completions",model="m",status="200",stream="true"'
            assert f"toolspeak_requests_total{{{labels}}} 1.0" in metrics

    asyncio.run(run())


def test_a_streamed_completion_has_the_model_name_that_the_client_knows():
    response, _ = relay_request(
        stream(*CHUNKS, END), "/v1/completions", upstream={"model": "m"}, json={"model": "mine", "stream": True}
    )
    chunks = [data for data in events(response.text) if data != "[DONE]"]
    assert [data["model"] for data in chunks] == ["mine", "mine"]
    assert chunks[1]["timings"] == {"y": 2}


def test_speech_passes_as_it_arrives():
    async def run() -> None:
        arrival = asyncio.Event()

        async def answer(exchange: Exchange) -> None:
            await exchange.send(AUDIO_HEAD, http_chunks([SOUND]))
            await arrival.wait()
            await exchange.send(http_chunks([SOUND[:7]]), b"0\r\n\r\n")

        async with serve(answer) as server, run_gateway(at(server)) as gateway:
            async with gateway.client.stream("POST", "/v1/audio/speech", json={"model": "m", "input": "x"}) as response:
                assert response.headers["content-type"] == "audio/mpeg"
                got = b""
                async for piece in response.aiter_raw():
                    got += piece
                    if len(got) >= len(SOUND):
                        arrival.set()
            assert got == SOUND + SOUND[:7]

    asyncio.run(run())


def test_a_streamed_or_plain_text_transcription_passes():
    events_of = [event({"type": "transcript.text.delta", "delta": "a"}), event({"type": "transcript.text.done"})]
    request = {"data": {"model": "m", "stream": "true"}, "files": {"file": SOUND}}
    response, _ = relay_request(stream(*events_of), FORMS[0], **request)
    assert response.content == b"".join(events_of)
    response, _ = relay_request(whole("200 OK", b"Hello.", "text/plain; charset=utf-8"), FORMS[0], **sent_as(FORMS[0]))
    assert (response.content, response.headers["content-type"]) == (b"Hello.", "text/plain; charset=utf-8")


def test_an_empty_answer_passes():
    response, _ = relay_request(whole("200 OK", b"", "audio/mpeg"), "/v1/audio/speech", json={"model": "m"})
    assert (response.status_code, response.content, response.headers["content-type"]) == (200, b"", "audio/mpeg")


def test_a_whole_completion_becomes_a_stream_for_a_client_that_streams():
    answer = {"choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]}
    response, _ = relay_request(
        whole("200 OK", json.dumps(answer).encode()), "/v1/completions", json={"model": "m", "stream": True}
    )
    assert events(response.text) == [answer, "[DONE]"]


def test_a_large_answer_is_counted_and_renamed():
    rows = [{"embedding": [0.5] * 2000, "index": i} for i in range(40)]
    body = {"model": "m", "data": rows, "usage": {"prompt_tokens": 9, "details": {"x": 1}}}
    answer = json.dumps(body).encode()
    assert len(answer) > 256 * 1024

    async def run() -> None:
        async with (
            serve(whole("200 OK", answer)) as server,
            run_gateway(at(server, names=("m",)), at(server, names=("mine",), model="m")) as gateway,
        ):
            response = await gateway.client.post("/v1/embeddings", json={"model": "m"})
            assert response.content == answer
            response = await gateway.client.post("/v1/embeddings", json={"model": "mine"})
            assert response.json() == {**body, "model": "mine"}
            metrics = (await gateway.client.get("/metrics")).text
            assert 'toolspeak_tokens_total{kind="input",model="m"} 9.0' in metrics
            assert 'toolspeak_tokens_total{kind="input",model="mine"} 9.0' in metrics

    asyncio.run(run())


def test_a_compressed_answer_is_decompressed():
    answer = b'{"data": "' + b"x" * 5000 + b'"}'
    compressed_answer = whole("200 OK", gzip.compress(answer), "application/json", "content-encoding: gzip")
    response, _ = relay_request(compressed_answer, "/v1/embeddings", json={"model": "m"})
    assert response.content == answer
    assert "content-encoding" not in response.headers


# --- what fails -----------------------------------------------------------------------------------------------------

FAULTS: list[tuple[Answer, int, str]] = [
    (whole("404 Not Found", b'{"detail": "Not Found"}'), 404, "Not Found"),
    (whole("400 Bad", b'{"error": {"message": "input too long at http://10.0.0.5/v1"}}'), 400, "input too long"),
    (whole("401 Unauthorized", b'{"error": {"message": "bad key"}}'), 502, "operator"),
    (whole("302 Found", b"", "text/plain", "location: http://10.0.0.5/login"), 502, "302"),
    (whole("502 Bad", b"<html>http://10.0.0.5/</html>", "text/html"), 503, "502"),
    (whole("200 OK", b"<html>Log in at http://10.0.0.5/</html>", "text/html"), 502, "HTML"),
    (whole("200 OK", b'{"error": {"message": "out of memory at http://10.0.0.5/v1", "code": 500}}'), 503, "memory"),
    (whole("200 OK", b'{"error": "no such model"}'), 502, "no such model"),
    (whole("200 OK", b'{"error": {"message": "see http://10.0.0.5/"}}', "application/problem+json"), 502, "see"),
    (hang_up(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{"), 502, "dropped"),
    (hang_up(b""), 502, ""),
]


@pytest.mark.parametrize("path", ["/v1/embeddings", FORMS[0]])
@pytest.mark.parametrize(("answer", "status", "word"), FAULTS)
def test_a_failure_before_the_answer_has_a_status_and_shows_no_address(
    answer: Answer, status: int, word: str, path: str
):
    response, _ = relay_request(answer, path, **sent_as(path))
    error = response.json()["error"]
    assert (response.status_code, word in error["message"]) == (status, True), error
    assert "10.0.0.5" not in response.text
    assert "127.0.0.1" not in response.text


BREAKS: list[tuple[bytes, bytes, str]] = [
    (event({"error": {"message": "out of memory at http://10.0.0.5/v1"}}), b"", "memory"),
    (b"", b"", "dropped"),
    (b"", b"0\r\n\r\n", "before the answer was whole"),
]


@pytest.mark.parametrize(("broken_event", "end", "word"), BREAKS, ids=["error", "dropped", "ended"])
def test_a_stream_that_breaks_off_ends_in_an_error(broken_event: bytes, end: bytes, word: str):
    answer = hang_up(HEAD, http_chunks([CHUNKS[1], broken_event]), end)
    response, _ = relay_request(answer, "/v1/completions", json={"model": "m", "stream": True})
    assert response.content.startswith(CHUNKS[1])
    error = events(response.text)[-1]["error"]
    assert word in error["message"]
    assert error["code"]
    assert "10.0.0.5" not in response.text
    assert "[DONE]" not in response.text


def test_a_truncated_body_is_not_taken_for_whole():
    with pytest.raises(httpx2.RemoteProtocolError):
        relay_request(hang_up(AUDIO_HEAD, http_chunks([SOUND])), "/v1/audio/speech", json={"model": "m"})


def test_a_request_that_fails_before_an_answer_is_sent_again():
    async def run() -> None:
        faults = [hang_up(b""), whole("503 X", b"", "text/plain", "retry-after: 0"), whole("200 OK", b'{"data": 1}')]
        async with serve(*faults) as server, run_gateway(at(server, retries=2)) as gateway:
            response = await gateway.client.post("/v1/embeddings", json={"model": "m"})
            assert (response.json(), len(server.exchanges)) == ({"data": 1}, 3)

    asyncio.run(run())


@pytest.mark.parametrize("head", [HEAD, AUDIO_HEAD, b""], ids=["events", "bytes", "nothing yet"])
def test_a_client_that_leaves_closes_the_upstreams_answer(head: bytes):
    async def run() -> None:
        came = asyncio.Event()

        async def answer(exchange: Exchange) -> None:
            came.set()
            beginning = http_chunks([CHUNKS[1]]) if head else b""
            await until_client_leaves(lambda: server, head, beginning)(exchange)

        async with serve(answer) as server, run_gateway(at(server)) as gateway:
            body = {"model": "m", "stream": head == HEAD}
            path = "/v1/audio/speech" if head == AUDIO_HEAD else "/v1/completions"
            if head:
                async with gateway.client.stream("POST", path, json=body) as response:
                    async for _ in response.aiter_raw():
                        break
            else:
                asking = asyncio.ensure_future(gateway.client.post(path, json=body))
                await came.wait()
                asking.cancel()
            async with asyncio.timeout(PATIENCE):
                await server.client_gone.wait()

    asyncio.run(run())


def test_limits_apply():
    async def run() -> list[int]:
        bounds = Bounds(body_bytes=5000, json_values=50, name_chars=8, depth=5)
        async with serve(whole("200 OK", b"{}")) as server, run_gateway(at(server), bounds=bounds) as gateway:
            responses = [
                await gateway.client.post("/v1/embeddings", json={"model": "m" * 9}),
                await gateway.client.post("/v1/embeddings", json={"model": "m", "input": [1] * 60}),
                await gateway.client.post("/v1/embeddings", json={"model": "m", "input": [[[[[[1]]]]]]}),
                await gateway.client.post("/v1/embeddings", json={"model": 7}),
                await gateway.client.post("/v1/embeddings", json={"input": "x"}),
                await gateway.client.post("/v1/embeddings", json=["m"]),
                await gateway.client.post("/v1/embeddings", content=b"model=m"),
                await gateway.client.post("/v1/embeddings", **sent_as(FORMS[0])),
                await gateway.client.post(FORMS[0], **sent_as(FORMS[0])),
                await gateway.client.post(FORMS[0], json={"model": "m"}),
                await gateway.client.get("/v1/embeddings"),
            ]
            assert not server.exchanges
            return [response.status_code for response in responses]

    assert asyncio.run(run()) == [400, 413, 400, 400, 400, 400, 415, 415, 413, 415, 405]


def test_the_log_of_contents_holds_no_upload(caplog: pytest.LogCaptureFixture):
    async def run() -> None:
        async with serve(whole("200 OK", b"{}")) as server, run_gateway(at(server), log_content=True) as gateway:
            await gateway.client.post(FORMS[0], **sent_as(FORMS[0]))
            await gateway.client.post("/v1/embeddings", json={"model": "m", "input": "said"})

    with caplog.at_level(logging.INFO, "toolspeak.gateway"):
        asyncio.run(run())
    form, embedding = (vars(line)["fields"]["request"] for line in caplog.records if line.getMessage() == "request")
    assert re.fullmatch(r"a form of \d+ bytes", form)
    assert "said" in embedding


def test_these_requests_take_places_like_any_other():
    async def run() -> None:
        came, go = asyncio.Event(), asyncio.Event()

        async def answer(exchange: Exchange) -> None:
            came.set()
            await go.wait()
            await whole("200 OK", b"{}")(exchange)

        async with serve(answer) as server, run_gateway(at(server), bounds=Bounds(streams=1, queue=0)) as gateway:
            first = asyncio.ensure_future(gateway.client.post("/v1/embeddings", json={"model": "m"}))
            await came.wait()
            response = await gateway.client.post("/v1/embeddings", json={"model": "m"})
            assert (response.status_code, response.headers["retry-after"]) == (429, "1")
            go.set()
            assert (await first).status_code == 200

    asyncio.run(run())


# --- forms ----------------------------------------------------------------------------------------------------------

KIND = "multipart/form-data; boundary=B"
MODEL = 'content-disposition: form-data; name="model"\r\n\r\nm'
FILE = 'Content-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\nabc'
PLAIN = 'content-disposition: form-data; name="x"\r\n\r\n1'


def form(*parts: str, end: str = "--B--\r\n") -> bytes:
    return "".join([*(f"--B\r\n{part}\r\n" for part in parts), end]).encode()


def test_a_form_is_read_as_it_is_written():
    for parts in ((MODEL, FILE), (FILE, MODEL), (MODEL,), (PLAIN, MODEL.replace('"', ""), FILE)):
        upload = read_form(KIND, form(*parts))
        assert upload.text("model") == "m"
        assert upload.with_model("other") == form(*(part.replace("\r\n\r\nm", "\r\n\r\nother") for part in parts))
    assert read_form('Multipart/Form-Data; boundary="B"', form(MODEL)).text("model") == "m"
    assert read_form(KIND, form(FILE)).text("model") is None
    star = FILE.replace('"a.wav"', "\"a.wav\"; filename*=utf-8''%C3%BC.wav")
    assert read_form(KIND, form(star, MODEL)).text("model") == "m"


@pytest.mark.parametrize("body", [
    b"", b"--B", form(), form(MODEL, end=""), form(MODEL)[:-6], b"x" + form(MODEL), form(FILE),
    form(MODEL, MODEL), form(MODEL, MODEL.replace("model", "Model")), form(MODEL.replace("model", "MODEL")),
    form(MODEL, PLAIN.replace('"x"', '"x"; name="model"')),
    form(PLAIN.replace('"x"', "\"x\"; name*=utf-8''model"), MODEL),
    form(MODEL, PLAIN.replace('"x"', '"x"; filename="a\\"; name="model"')),
    form(MODEL, PLAIN.replace('"x"', '"mo\\del"')), form(MODEL, PLAIN.replace("content-", "content-\r\n ")),
    form(MODEL, PLAIN.replace('"x"', '"x"\r\ncontent-disposition: form-data; name="model"')),
    form(MODEL, PLAIN.replace('"x"', '"x"\r\ncontent-disposition : form-data; name="model"')),
    form(MODEL, PLAIN.replace('"x"', '"x"\ncontent-disposition: form-data; name="model"')),
    form(MODEL, "content-type: text/plain\r\n\r\n1"), form(MODEL, "x"), form(MODEL, ""),
    form(MODEL, PLAIN + f"\n--B\n{MODEL}"), form(MODEL, PLAIN + "--B"), form(MODEL, f"{PLAIN}\n--B--"),
    form(MODEL.replace("\r\n\r\n", "\r\ncontent-transfer-encoding: base64\r\n\r\n")),
    form(MODEL.replace('"model"', '"model"; filename="m"')),
    form(MODEL).replace(b"\r\n\r\nm", b"\r\n\r\n\xff"), form(MODEL) + form(MODEL), form(MODEL).replace(b"\r\nm", b"m"),
])  # fmt: skip
def test_an_ambiguous_form_is_refused(body: bytes):
    request = {"content": body, "headers": {"content-type": KIND}}
    response, server = relay_request(whole("200 OK", b"{}"), FORMS[0], **request)
    assert (response.status_code, server.exchanges) == (400, [])


@pytest.mark.parametrize("kind", [
    "multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=A; boundary=B",
    'multipart/form-data; x="; boundary=A"; boundary=B', "multipart/form-data; boundary*0=B",
])  # fmt: skip
def test_a_form_needs_one_boundary(kind: str):
    request = {"content": form(MODEL, FILE), "headers": {"content-type": kind}}
    response, server = relay_request(whole("200 OK", b"{}"), FORMS[0], **request)
    assert (response.status_code, server.exchanges) == (400, [])
    assert "boundary" in response.json()["error"]["message"]


def test_a_form_of_many_parts_is_refused():
    with pytest.raises(Failure) as failure:
        read_form(KIND, form(*[PLAIN] * 1001))
    assert failure.value.status == 413


@settings(max_examples=fewer(200), deadline=None)
@given(
    st.lists(st.sampled_from([MODEL, FILE, PLAIN, "\r\n", "--B", "--", "\n", '"', ";", "name=model", "m"]), max_size=12)
)
def test_an_accepted_form_names_its_model_once_and_any_other_form_is_refused(pieces: list[str]):
    body = "--B\r\n" + "".join(pieces) + "\r\n--B--\r\n"
    with suppress(Failure):
        upload = read_form(KIND, body.encode())
        model = upload.text("model")
        if model is not None:
            assert body.count("\r\n--B\r\n" + MODEL[:46]) + body.startswith("--B\r\n" + MODEL[:46]) == 1
            assert upload.with_model(model) == body.encode()


def test_a_web_page_cannot_send_a_form_to_a_gateway_without_keys():
    page = {**sent_as(FORMS[0]), "headers": {"origin": "https://evil.example"}}
    response, server = relay_request(whole("200 OK", b"{}"), FORMS[0], **page)
    assert (response.status_code, server.exchanges) == (403, [])
    response, _ = relay_request(whole("200 OK", b"{}"), FORMS[0], key="alice" * 5, **page)
    assert response.status_code == 200
