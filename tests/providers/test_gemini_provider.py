from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from loopback_server import serve
from native import GEMINI_API, KEY, REQUEST, part, turn

from toolspeak.data.deltas import CallCompleted
from toolspeak.data.messages import Opaque
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import ConfigurationError, UnknownProvider
from toolspeak.providers import get_provider
from toolspeak.providers.gemini import GEMINI_URL, GeminiProvider

ANSWER = GEMINI_API.stream(*GEMINI_API.frames)


def test_what_is_sent():
    _, server = GEMINI_API.ask(ANSWER)
    [exchange] = server.exchanges
    assert exchange.request_line == "POST /v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse HTTP/1.1"
    assert exchange.headers["x-goog-api-key"] == KEY
    assert "authorization" not in exchange.headers
    assert exchange.json == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [{"role": "user", "parts": [{"text": "Grüß\ufffd"}]}],
        "generationConfig": {"temperature": 0},
    }


@pytest.mark.parametrize(
    ("model", "base", "path"),
    [
        ("models/gemini-3-pro", "", "/v1beta/models/gemini-3-pro:"),
        ("tunedModels/mine", "", "/v1beta/tunedModels/mine:"),
        ("a b?c#d:e", "", "/v1beta/models/a%20b%3Fc%23d%3Ae:"),
        ("m", "/v1beta", "/v1beta/models/m:"),
        ("m", "/proxy/v1/", "/proxy/v1/models/m:"),
        ("m", "/proxy", "/proxy/v1beta/models/m:"),
    ],
)
def test_the_path(model: str, base: str, path: str):
    async def run() -> str:
        async with serve(ANSWER) as server:
            provider = GeminiProvider(model, base_url=f"http://127.0.0.1:{server.port}{base}")
            await turn(provider)
            await provider.aclose()
            return server.exchanges[0].request_line

    assert asyncio.run(run()) == f"POST {path}streamGenerateContent?alt=sse HTTP/1.1"


def test_a_signature_comes_back_to_the_model_that_was_asked_whatever_it_calls_itself():
    call = {"functionCall": {"name": "read", "args": {}}, "thoughtSignature": "c2ln"}
    frame = GEMINI_API.frame({**part(call, finishReason="STOP"), "modelVersion": "gemini-3-pro-2026-11"})
    deltas, _ = GEMINI_API.ask(GEMINI_API.stream(frame))
    [call] = [delta for delta in deltas if isinstance(delta, CallCompleted)]
    assert call.opaque == Opaque("gemini", "gemini-3-pro", {"thoughtSignature": "c2ln"})


def test_options_of_the_request_come_before_those_of_the_provider():
    async def run() -> object:
        async with serve(ANSWER) as server:
            url = f"http://127.0.0.1:{server.port}"
            provider = GeminiProvider("m", base_url=url, options={"temperature": 1, "topK": 3})
            await turn(provider, replace(REQUEST, tools=[ToolSpec("a", "", {"type": "object"})]))
            await provider.aclose()
            return server.exchanges[0].json

    body = asyncio.run(run())
    assert isinstance(body, dict)
    assert body["generationConfig"] == {"temperature": 0, "topK": 3}
    assert body["tools"] == [{"functionDeclarations": [{"name": "a", "parametersJsonSchema": {"type": "object"}}]}]


@pytest.mark.parametrize(
    "environ",
    [
        {"GEMINI_API_KEY": KEY, "GOOGLE_API_KEY": "other-key-000"},
        {"GEMINI_API_KEY": " ", "GOOGLE_API_KEY": KEY},
        {"GEMINI_API_KEY": f" {KEY}\n"},
    ],
)
def test_the_key_of_the_environment(environ: dict[str, str]):
    async def run() -> str:
        async with serve(ANSWER) as server:
            url = f"http://127.0.0.1:{server.port}"
            provider = get_provider("gemini:m", {**environ, "GEMINI_BASE_URL": url})
            await turn(provider)
            await provider.aclose()
            return server.exchanges[0].headers["x-goog-api-key"]

    assert asyncio.run(run()) == KEY


def test_what_is_missing_or_wrong():
    with pytest.raises(UnknownProvider, match=r"Set GEMINI_API_KEY \(or GOOGLE_API_KEY\)"):
        get_provider("gemini:gemini-3-pro", {})
    with pytest.raises(ConfigurationError, match="characters that are not ASCII"):
        GeminiProvider("m", api_key="a b")
    provider = GeminiProvider("gemini-3-pro", api_key=KEY)
    assert provider.name == "gemini:gemini-3-pro"
    assert (provider.capabilities.tools, provider.capabilities.tool_choice) == (True, True)
    assert GEMINI_URL.startswith("https://")
