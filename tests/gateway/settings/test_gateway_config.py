"""What the gateway is told, by file and by command line, and what is wrong with it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from loopback_server import serve, whole
from serving import at, in_turn, run_gateway, texts

from toolspeak.cli.server_commands.serve_command import serve_command
from toolspeak.data.messages import Message
from toolspeak.errors import ConfigurationError, ProviderError
from toolspeak.gateway.requests.request_mapping import translate_options
from toolspeak.gateway.settings.api_keys import digest, keys_of, read_keys, unnamed_key
from toolspeak.gateway.settings.gateway_settings import Bounds, Settings, checked_settings, read_config, with_server
from toolspeak.gateway.settings.upstream_settings import Upstream, upstream_of
from toolspeak.gateway.upstreams.routing import MAX_MODELS, Route, Router, Routes, UnknownModel
from toolspeak.providers.http_settings import Timeouts
from toolspeak.wire.base import ModelRequest

WHOLE = """
[server]
host = "0.0.0.0"
port = 9000
api_keys = "keys.txt"
streams = 7
drain_seconds = 5
log_content = true

[[model]]
name = "coder"
upstream = "vllm:Qwen/Qwen3-Coder"
url = "http://10.0.0.5:8000/v1"
dialect = "qwen3-coder"
key_env = "VLLM_KEY"
repair = 1
hold_calls = true
starts_in = "reasoning"
capabilities = { grammar = "xgrammar", context = 32768 }
timeouts = { connect = 1, silence = 2.5 }
options = { temperature = 0.2 }

[[model]]
name = ["llama*", "qwen*"]
upstream = "http://127.0.0.1:11434/v1"
"""


def test_a_whole_file(tmp_path: Path):
    path = tmp_path / "gateway.toml"
    path.write_text(WHOLE)
    configuration = read_config(path)
    assert configuration.upstreams == (
        Upstream(
            ("coder",),
            "vllm",
            "http://10.0.0.5:8000/v1",
            "Qwen/Qwen3-Coder",
            "qwen3-coder",
            "reasoning",
            "VLLM_KEY",
            {"grammar": "xgrammar", "context": 32768},
            Timeouts(connect=1, silence=2.5),
            options={"temperature": 0.2},
            repair=1,
            hold_calls=True,
        ),
        Upstream(("llama*", "qwen*"), url="http://127.0.0.1:11434/v1"),
    )
    assert configuration.server["api_keys"] == str(tmp_path / "keys.txt")
    settings = with_server(
        Settings(configuration.upstreams), {k: v for k, v in configuration.server.items() if k != "api_keys"}
    )
    assert (settings.host, settings.port, settings.drain_seconds, settings.log_content) == ("0.0.0.0", 9000, 5, True)
    assert settings.bounds == Bounds(streams=7)


ROW = '[[model]]\nname = "m"\nupstream = "http://h/v1"\n'
WRONG = [
    ("[[model]", "not TOML"),
    ("", "model: write a table [[model]]"),
    ("[servr]\n" + ROW, "servr: unknown key 'servr'. Did you mean 'server'?"),
    ("server = 1\n" + ROW, "server: expected a table"),
    ("[server]\nprot = 1\n" + ROW, "server.prot: unknown key 'prot'. Did you mean 'port'?"),
    ('[server]\nport = "x"\n' + ROW, "server.port: expected a number, found 'x'"),
    ("[server]\nport = true\n" + ROW, "server.port: expected a number, found True"),
    ("[server]\nqueue = -1\n" + ROW, "server.queue: -1 is less than 0"),
    ("[server]\napi_keys = 3\n" + ROW, "server.api_keys: expected text"),
    (ROW + "dialekt = 'x'\n", "model[0].dialekt: unknown key 'dialekt'. Did you mean 'dialect'?"),
    (ROW + "dialect = 'hermez'\n", "model[0].dialect: There is no dialect 'hermez'. Did you mean 'hermes'?"),
    (ROW + "repair = 9\n", "model[0].repair: expected 0 (never) to 3, found 9"),
    (ROW + "starts_in = 'x'\n", "model[0].starts_in: expected text or reasoning, found 'x'"),
    (ROW + "hold_calls = 1\n", "model[0].hold_calls: expected true or false"),
    (ROW + "options = 1\n", "model[0].options: expected a table"),
    (ROW + "timeouts = 1\n", "model[0].timeouts: expected a table"),
    (ROW + "timeouts = { first = 1 }\n", "model[0].timeouts.first: unknown key"),
    (ROW + "timeouts = { silence = -1 }\n", "model[0].timeouts.silence: -1"),
    (ROW + "capabilities = { grammar = 'bnf' }\n", "model[0].capabilities.grammar: expected gbnf"),
    (ROW + "capabilities = { tool = true }\n", "model[0].capabilities.tool: unknown key"),
    (ROW + "capabilities = 1\n", "model[0].capabilities: expected a table"),
    ('[[model]]\nupstream = "http://h/v1"\n', "model[0].name: missing"),
    ('[[model]]\nname = "m"\n', "model[0].upstream: missing"),
    ('[[model]]\nname = "m"\nupstream = "olama:x"\n', "model[0].upstream: the upstream 'olama:x'"),
    ('[[model]]\nname = "m"\nprovider = "vlm"\nurl = "http://h"\n', "model[0].provider: there is no 'vlm'"),
    ('[[model]]\nname = 7\nupstream = "http://h/v1"\n', "model[0].name: expected text"),
    ("model = [1]\n", "model[0]: expected a table"),
    (ROW + 'url = "http://other/v1"\n', "is an address, and url is another one"),
    (
        '[[model]]\nname = "m"\nupstream = "vllm:a"\nprovider = "ollama"\n',
        "'vllm:a' names the provider 'vllm', but provider is 'ollama'",
    ),
    (
        '[[model]]\nname = "m"\nupstream = "vllm:a"\nmodel = "b"\n',
        "'vllm:a' names the model 'a', but model is 'b'; set only one of them",
    ),
    ("[server]\nping_seconds = nan\n" + ROW, "server.ping_seconds: nan is not a number"),
]


@pytest.mark.parametrize(("text", "problem"), WRONG, ids=[problem[:40] for _, problem in WRONG])
def test_an_error_names_file_and_key(text: str, problem: str, tmp_path: Path):
    path = tmp_path / "gateway.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as raised_error:
        read_config(path)
    assert str(path) in str(raised_error.value)
    assert problem in str(raised_error.value)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"workers": 0}, "workers: 0 is out of range; expected 1 or more"),
        ({"streams": 0}, "streams: 0 is out of range"),
        ({"port": 70_000}, "port: 70000 is out of range; expected from 0 to 65535"),
        ({"ping_seconds": 0}, "ping_seconds: 0 is out of range"),
    ],
)
def test_numbers_with_which_nothing_could_be_served(options: dict[str, Any], problem: str):
    with pytest.raises(ConfigurationError, match=problem):
        checked_settings(with_server(Settings((Upstream(url="http://h/v1"),)), options))


def test_a_file_that_is_not_there():
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml cannot be read: No such file"):
        read_config("nowhere.toml")


def test_upstreams_in_short():
    assert upstream_of("http://h/v1") == Upstream(url="http://h/v1")
    assert upstream_of("ollama:qwen3:8b") == Upstream(provider="ollama", model="qwen3:8b")
    assert upstream_of("vllm") == Upstream(provider="vllm")
    with pytest.raises(ConfigurationError, match=r"'qwen3'.*neither an address"):
        upstream_of("qwen3")


def test_an_open_port_needs_a_key():
    upstreams = (Upstream(url="http://h/v1"),)
    with pytest.raises(ConfigurationError, match="--api-keys"):
        checked_settings(Settings(upstreams, host="0.0.0.0"))
    checked_settings(Settings(upstreams, host="0.0.0.0", keys=(unnamed_key(digest("x" * 20)),)))
    checked_settings(Settings(upstreams, host="::1"))
    with pytest.raises(ConfigurationError, match="two upstreams serve the model name 'a'"):
        checked_settings(Settings((Upstream(("a",)), Upstream(("a", "b")))))


def test_keys(tmp_path: Path):
    path = tmp_path / "keys"
    path.write_text(f"# ours\n{'a' * 16}\n\nsha256:{digest('b' * 16).upper()} # theirs\n")
    assert read_keys(path) == (unnamed_key(digest("a" * 16)), unnamed_key(digest("b" * 16)))
    assert keys_of({"TOOLSPEAK_API_KEYS": f"{'a' * 16}, sha256:{digest('b' * 16)}"}) == read_keys(path)
    assert keys_of({}) == ()
    path.write_text(f"{'a#' * 16} # a key may hold the sign\n")
    assert read_keys(path) == (unnamed_key(digest("a#" * 16)),)
    for text, problem in (
        ("short\n", ":1: an API key has at least 16"),
        ("\nsha256:12\n", ":2: sha256:"),
        ("#\n", "no API key"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigurationError) as raised_error:
            read_keys(path)
        assert f"{path}" in str(raised_error.value)
        assert problem in str(raised_error.value)
        assert "short" not in str(raised_error.value)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_keys(tmp_path / "none")
    # A key that is none is named by its place among those that are there: it must not be shown.
    with pytest.raises(
        ConfigurationError, match="TOOLSPEAK_API_KEYS, key 2: an API key has at least 16"
    ) as raised_error:
        keys_of({"TOOLSPEAK_API_KEYS": f"{'a' * 16}, ,short"})
    assert "short" not in str(raised_error.value)


def test_which_upstream_serves_a_model():
    rows = (
        Upstream(("big", "b?g-*"), url="http://one/v1", model="real"),
        Upstream(("b*",), provider="anthropic", key_variable="KEY"),
        Upstream(("big-exact",), url="http://three/v1"),
    )
    router = Router(Settings(rows), {"KEY": "sk-ant-0123456789"})
    routes: dict[str, Route] = {}
    for name in ("big", "bag-1", "boo", "big-exact"):
        with router.routes(name) as candidates:
            (routes[name],) = candidates.routes
    assert {name: route.provider.name for name, route in routes.items()} == {
        "big": "openai:real",
        "bag-1": "openai:real",
        "boo": "anthropic:boo",
        "big-exact": "openai:big-exact",
    }
    assert [route.wire for route in routes.values()] == ["openai-chat", "openai-chat", "anthropic", "openai-chat"]
    with router.routes("big") as again:
        assert again.routes[0] is routes["big"]
    with pytest.raises(UnknownModel, match=r"'ig'\. Did you mean 'big'"), router.routes("ig"):
        pass


def test_a_model_that_nobody_asked_for_of_late_is_forgotten_once_its_last_turn_is_over():
    closed_error = ConfigurationError, "this provider is closed"
    connection_error = ProviderError, "Start the server"

    async def ask_once(routes: Routes, expected: tuple[type[Exception], str]) -> None:
        with pytest.raises(expected[0], match=expected[1]):
            async for _ in routes.routes[0].provider.stream(ModelRequest([Message.user("Hi.")])):
                pass

    async def run() -> None:
        rows = Upstream(("*",), url="http://127.0.0.1:9/v1", retries=0), Upstream(("own",), url="http://127.0.0.1:9/v1")
        router = Router(Settings(rows), {})
        with router.routes("own") as own, router.routes("idle") as idle:
            pass
        with router.routes("busy") as busy:
            for i in range(MAX_MODELS - 1):
                with router.routes(f"other-{i}"), router.routes("kept") as kept_routes:
                    pass
            await asyncio.sleep(0)
            await ask_once(idle, closed_error)
            await ask_once(busy, connection_error)
            with router.routes("busy") as again:
                assert again is not busy
        await asyncio.sleep(0)
        await ask_once(busy, closed_error)
        await ask_once(own, connection_error)
        with router.routes("kept") as again:
            assert again is kept_routes
        await router.aclose()
        await ask_once(again, closed_error)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("upstream", "environ", "problem"),
    [
        (Upstream(provider="anthropic"), {}, "ANTHROPIC_API_KEY"),
        (Upstream(provider="groq"), {}, "GROQ_API_KEY"),
        (Upstream(url="http://h/v1", key_variable="MY_KEY"), {}, "MY_KEY is not set"),
        (Upstream(url="ftp://h/v1"), {}, "must start with http"),
        (Upstream(provider="scripted", model="nowhere.json"), {}, "nowhere.json cannot be read"),
    ],
)
def test_what_is_wrong_with_an_upstream_is_told_at_once(upstream: Upstream, environ: dict[str, str], problem: str):
    with pytest.raises(ConfigurationError, match=problem):
        Router(Settings((upstream,)), environ)


def test_the_key_of_one_service_does_not_go_to_another_address():
    async def run() -> list[dict[str, str]]:
        async with serve(in_turn(texts("a"), texts("b"))) as server:
            rows = (at(server, names=("plain",)), at(server, names=("keyed",), key_variable="SERVICE_KEY"))
            async with run_gateway(*rows) as gateway:
                for model in ("plain", "keyed"):
                    await gateway.ask(
                        "/v1/chat/completions", ModelRequest([Message.user("?")]), stream=False, model=model
                    )
            return [exchange.headers for exchange in server.exchanges]

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai-0123")
        monkeypatch.setenv("SERVICE_KEY", "sk-of-the-service")
        plain_headers, service_headers = asyncio.run(run())
    assert "authorization" not in plain_headers
    assert service_headers["authorization"] == "Bearer sk-of-the-service"


def test_models_are_listed():
    async def list_models(exchange) -> None:
        assert exchange.request_line.startswith("GET /v1/models")
        body = b'{"data": [{"id": "llama3"}, {"id": "qwen3"}, {"name": "models/llama4"}, 7, {"id": 5}]}'
        await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
        await exchange.send(b"content-length: %d\r\n\r\n" % len(body), body)

    async def run():
        async with serve(list_models) as server:
            rows = (at(server, names=("coder", "llama*")), at(server, names=("one",), model="x"))
            async with run_gateway(*rows) as gateway:
                whole = (await gateway.client.get("/v1/models")).json()
                one = (await gateway.client.get("/v1/models/llama3")).json()
                ready = await gateway.client.get("/readyz")
                return [row["id"] for row in whole["data"]], one["id"], ready.status_code

    assert asyncio.run(run()) == (["coder", "one", "llama3", "llama4"], "llama3", 200)


def test_what_an_upstream_says_of_a_model_stays():
    row = {"id": "real", "object": "model", "created": 7, "owned_by": "vllm", "root": "real", "max_model_len": 4096}
    models = {"data": [{**row, "meta": {"n_ctx_train": 8192, "x": [1]}}, {"id": "big", "context_length": 9}]}

    async def run():
        async with serve(whole("200 OK", json.dumps(models).encode())) as server:
            lost_upstream = Upstream(url="http://127.0.0.1:9/v1", names=("lost",))
            async with run_gateway(
                at(server, names=("mine",), model="real"), at(server, names=("b*",)), lost_upstream
            ) as gateway:
                return (await gateway.client.get("/v1/models")).json(), (
                    await gateway.client.get("/v1/models/mine")
                ).json()

    listing, one = asyncio.run(run())
    here = {"object": "model", "created": 0, "owned_by": "toolspeak"}
    assert one == {**row, "id": "mine", "root": "mine", "meta": {"n_ctx_train": 8192, "x": [1]}}
    assert listing["data"] == [one, {**here, "id": "lost"}, {**here, "id": "big", "context_length": 9}]


TRANSLATIONS = [
    ("anthropic", "openai-chat", {"max_tokens": 5, "stop_sequences": ["x"], "top_k": 3, "metadata": {}},
     {"max_tokens": 5, "stop": ["x"], "top_k": 3}),
    ("openai-chat", "anthropic", {"max_completion_tokens": 5, "stop": "x", "temperature": 1, "user": "u"},
     {"max_tokens": 5, "stop_sequences": ["x"]}),
    ("openai-chat", "gemini", {"max_tokens": 5, "stop": ["a"], "top_p": 0.5, "seed": 1},
     {"maxOutputTokens": 5, "stopSequences": ["a"], "topP": 0.5, "seed": 1}),
    ("openai-responses", "ollama", {"max_output_tokens": 5, "temperature": 0, "include": []},
     {"num_predict": 5, "temperature": 0}),
    ("openai-responses", "openai-chat", {"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}),
    ("openai-chat", "openai-responses", {"reasoning_effort": "low", "stop": ["x"]}, {"reasoning": {"effort": "low"}}),
    ("openai-chat", "openai-chat", {"anything": 1, "stop": "x"}, {"anything": 1, "stop": "x"}),
]  # fmt: skip


@pytest.mark.parametrize(("client_api", "upstream", "options", "expected"), TRANSLATIONS)
def test_options_of_one_api_in_the_words_of_another(client_api, upstream, options, expected):
    assert translate_options(options, client_api, upstream) == expected


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "the upstream is missing"),
        (["--upstream", "nothing"], "neither an address"),
        (["--upstream", "http://h/v1", "--config", "x"], "use --config or upstream"),
        (["--config", "x", "--dialect", "hermes"], "use --config or dialect"),
        (["--upstream", "ollama:x", "--provider", "vllm"], "--provider is the kind of server"),
        (["--upstream", "http://h/v1", "--provider", "vlm"], "there is no 'vlm'"),
        (["--upstream", "http://h/v1", "--dialect", "hermez"], "hermez"),
        (["--upstream", "http://h/v1", "--host", "0.0.0.0"], "--api-keys"),
        (["--upstream", "http://h/v1", "--api-keys", "nowhere"], "nowhere cannot be read"),
    ],
)
def test_a_command_line_that_cannot_be(arguments: list[str], problem: str):
    result = CliRunner().invoke(serve_command, arguments)
    assert isinstance(result.exception, ConfigurationError)
    assert problem in str(result.exception)
