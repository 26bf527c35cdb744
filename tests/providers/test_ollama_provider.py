from __future__ import annotations

import asyncio
import json

import pytest
from loopback_server import serve, whole
from native import KEY, OLLAMA_API, line, ndjson, turn

from toolspeak.data.deltas import CallCompleted, TextDelta
from toolspeak.errors import ConfigurationError, ProviderError
from toolspeak.providers import get_provider
from toolspeak.providers.ollama import OllamaProvider, host_url

ANSWER = OLLAMA_API.stream(*OLLAMA_API.frames)


def test_what_is_sent():
    _, server = OLLAMA_API.ask(ANSWER)
    [exchange] = server.exchanges
    assert exchange.request_line == "POST /api/chat HTTP/1.1"
    assert exchange.headers["authorization"] == f"Bearer {KEY}"
    assert exchange.json == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüß\ufffd"}],
        "stream": True,
        "options": {"temperature": 0},
        "truncate": False,
        "shift": False,
    }


def test_options_of_the_provider_may_have_the_conversation_cut():
    async def run() -> dict[str, object]:
        async with serve(ANSWER) as server:
            options = {"truncate": True, "shift": None, "num_ctx": 4096}
            provider = OllamaProvider("m", host=f"127.0.0.1:{server.port}", options=options)
            await turn(provider)
            await provider.aclose()
            assert "authorization" not in server.exchanges[0].headers
            return server.exchanges[0].json

    body = asyncio.run(run())
    assert body["truncate"] is True
    assert "shift" not in body
    assert body["options"] == {"temperature": 0, "num_ctx": 4096}


def test_calls_and_a_line_separator_inside_a_text():
    call = {"function": {"name": "read", "arguments": {"path": "a\u2028b"}}}
    first = {
        **line("x\u2028y\x85z"),
        "message": {"role": "assistant", "content": "x\u2028y\x85z", "tool_calls": [call]},
    }
    deltas, _ = OLLAMA_API.ask(OLLAMA_API.stream(ndjson(first), OLLAMA_API.frames[1]))
    assert deltas[0] == TextDelta("x\u2028y\x85z")
    assert CallCompleted(0, "read", {"path": "a\u2028b"}) in deltas


def failure(status: str, message: str) -> ProviderError:
    return OLLAMA_API.fail(whole(status, json.dumps({"error": message}).encode()))


def test_a_model_that_was_not_fetched():
    error = failure("404 Not Found", "model 'm' not found")
    assert "has no model 'm' (HTTP 404). Fetch it: ollama pull m." in str(error)
    assert (error.status, error.retryable) == (404, False)


def test_a_model_that_has_no_native_calls():
    error = failure("400 Bad Request", "registry.ollama.ai/library/m:latest does not support tools")
    assert str(error).endswith("Choose a dialect: the model then writes its calls as text.")
    assert error.status == 400


@pytest.mark.parametrize(
    "message",
    [
        "the prompt is longer than the context length currently available to the model",
        '{"error":{"code":400,"message":"request (8889 tokens) exceeds the available context size (4096 tokens)"}}',
    ],
)
def test_a_conversation_that_is_longer_than_the_context(message: str):
    assert "longer than the model's context: shorten it" in str(failure("400 Bad Request", message))


# As Ollama's own clients read OLLAMA_HOST.
HOSTS = [
    ("", "http://127.0.0.1:11434"),
    (" ", "http://127.0.0.1:11434"),
    ("1.2.3.4", "http://1.2.3.4:11434"),
    (":56789", "http://127.0.0.1:56789"),
    ("0.0.0.0", "http://127.0.0.1:11434"),
    ("0.0.0.0:56789", "http://127.0.0.1:56789"),
    ("http://1.2.3.4", "http://1.2.3.4:80"),
    ("https://1.2.3.4", "https://1.2.3.4:443"),
    ("https://ollama.com", "https://ollama.com:443"),
    ("example.com/", "http://example.com:11434"),
    ("example.com:56789/path/", "http://example.com:56789/path"),
    ("[::1]", "http://[::1]:11434"),
    ("https://[::1]:56789/path", "https://[::1]:56789/path"),
]


@pytest.mark.parametrize(("host", "url"), HOSTS)
def test_the_host(host: str, url: str):
    assert host_url(host) == url


def test_the_host_of_the_environment():
    async def run() -> str:
        async with serve(ANSWER) as server:
            provider = get_provider("ollama:qwen3:8b", {"OLLAMA_HOST": f":{server.port}", "OLLAMA_API_KEY": ""})
            await turn(provider)
            await provider.aclose()
            assert provider.name == "ollama:qwen3:8b"
            return server.exchanges[0].json["model"]

    assert asyncio.run(run()) == "qwen3:8b"
    assert get_provider("ollama:m", {}).capabilities.tools


def test_a_host_that_is_none():
    with pytest.raises(ConfigurationError, match="must start with http"):
        OllamaProvider("m", host="ftp://x")
    with pytest.raises(ConfigurationError, match="characters that are not ASCII"):
        OllamaProvider("m", api_key="a b")
