"""`toolspeak doctor`: what it says of servers of the five APIs, whole and broken, and of what else a run needs."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from configured_folder import ConfiguredFolder
from loopback_server import serve, whole

MCP_SERVER = Path(__file__).parents[1] / "mcp" / "mcp_server.py"
TLS = Path(__file__).parents[1] / "providers" / "tls"
KEY = "lab-key-0123456789"

LISTS = {
    "openai": {"data": [{"id": "qwen3-8b", "owned_by": "vllm", "max_model_len": 32_768}]},
    "openai-responses": {"data": [{"id": "qwen3-8b", "owned_by": "openai"}]},
    "anthropic": {"data": [{"type": "model", "id": "qwen3-8b"}], "has_more": False},
    "gemini": {"models": [{"name": "models/qwen3-8b", "inputTokenLimit": 1000}]},
    "ollama": {"models": [{"name": "qwen3-8b", "model": "qwen3-8b"}]},
}
PATHS = {
    "openai": "/v1/models", "openai-responses": "/v1/models", "anthropic": "/v1/models", "gemini": "/v1beta/models",
    "ollama": "/api/tags",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    return ConfiguredFolder(tmp_path)


def findings_of(process):
    """The findings of `doctor --json`, as (subject, state) and as text by subject."""
    report = json.loads(process.stdout)
    assert report["ok"] is (process.returncode == 0)
    rows = report["findings"]
    return {row["subject"]: (row["state"], row["text"] + " " + row["remedy"]) for row in rows}


def examine(folder, api, *answers, model="lab:qwen3-8b", tls=None, before="", more="", is_silent=False, **env):
    """What the doctor finds at a server that gives these answers, and the requests that it sent. Asks again if the
    server was late, as on a machine that stands still, unless it `is_silent`."""

    async def main():
        async with serve(*answers, tls=tls) as server:
            scheme = "https" if tls else "http"
            base = f"{scheme}://127.0.0.1:{server.port}" + ("/v1" if api.startswith("openai") else "")
            folder.user(f'{before}[providers.lab]\napi = "{api}"\nbase_url = "{base}"\nkey_env = "LAB_KEY"\n{more}')
            options = {"LAB_KEY": KEY, **env}
            process = await asyncio.to_thread(folder.toolspeak, "doctor", model, "--json", **options)
            assert KEY not in process.stdout + process.stderr
            return findings_of(process), server.exchanges

    for _ in range(3):
        findings, exchanges = asyncio.run(main())
        if is_silent or "no answer within" not in findings.get("server", ("", ""))[1]:
            break
    return findings, exchanges


@pytest.mark.parametrize("api", LISTS)
def test_a_working_server_of_each_api(folder, api):
    findings, exchanges = examine(folder, api, whole("200 OK", json.dumps(LISTS[api]).encode()))
    assert exchanges[0].request_line.split()[:2] == ["GET", PATHS[api]]
    assert len(exchanges) == (3 if api == "ollama" else 1)  # Ollama's list does not say the window
    assert {subject: state for subject, (state, _) in findings.items() if state == "problem"} == {}
    assert findings["server"][0] == "ok"
    assert "http://127.0.0.1:" in findings["server"][1]
    assert findings["key"] == ("ok", "LAB_KEY is set, and the server accepts it ")
    assert findings["model"] == ("ok", "qwen3-8b is one of the server's 1 ")
    assert findings["dialect"][0] == "ok"


def test_who_serves_and_the_window_are_what_the_server_says(folder):
    answer = whole("200 OK", json.dumps(LISTS["openai"]).encode())
    findings, _ = examine(folder, "vllm", answer)
    assert "(vllm)" in findings["server"][1]
    text = "32,768 tokens (max_model_len of the server), and none is set set window = 32768, "
    assert findings["window"][0] == "warning"
    assert findings["window"][1].startswith(text)
    findings, _ = examine(folder, "vllm", answer, before="window = 40000\n")
    assert findings["window"][1].startswith("you set 40,000 tokens, and the model has 32,768")
    findings, _ = examine(folder, "vllm", answer, before="window = 32000\n")
    assert findings["window"][0] == "ok"


@pytest.mark.parametrize(
    ("loaded_model", "description", "text"),
    [
        (
            {"name": "qwen3-8b:latest", "context_length": 8192},
            None,
            "8,192 tokens (context_length of the loaded model)",
        ),
        (
            {"name": "other", "context_length": 1},
            {"parameters": "stop x\nnum_ctx    16384\n"},
            "16,384 tokens (num_ctx",
        ),
        (None, {"model_info": {"qwen3.context_length": 40960}}, "40,960 tokens (qwen3.context_length, the most"),
        (None, {"model_info": 7, "parameters": "num_ctx lots"}, "unknown: the server does not report it"),
        (None, [], "unknown"),
    ],
)
def test_ollama_says_which_window_it_gives_the_model(folder, loaded_model, description, text):
    replies = [LISTS["ollama"], {"models": [loaded_model] if loaded_model else []}, description]
    answers = [whole("200 OK", json.dumps(each).encode()) for each in replies if each is not None]
    findings, exchanges = examine(folder, "ollama", *answers)
    assert findings["window"][1].startswith(text)
    paths = ["/api/tags", "/api/ps", "/api/show"][: len(answers)]
    assert [each.request_line.split()[1] for each in exchanges] == paths


@pytest.mark.parametrize("api", LISTS)
def test_a_refused_key(folder, api):
    refusal = whole("401 Unauthorized", b'{"error": {"message": "Incorrect API key provided"}}')
    findings, _ = examine(folder, api, refusal)
    assert findings["key"][0] == "problem"
    assert "LAB_KEY is set, and the server refuses it: http://127.0.0.1:" in findings["key"][1]
    assert findings["server"][0] == "ok"
    assert "model" not in findings


@pytest.mark.parametrize(("api", "state"), [("openai", "problem"), ("ollama", "problem"), ("anthropic", "warning")])
def test_a_model_that_the_server_does_not_list(folder, api, state):
    answer = whole("200 OK", json.dumps(LISTS[api]).encode())
    findings, _ = examine(folder, api, answer, model="lab:qwen3-80b")
    assert findings["model"][0] == state
    assert "no model 'qwen3-80b' the nearest names: qwen3-8b" in findings["model"][1]
    assert ("ollama pull qwen3-80b" in findings["model"][1]) == (api == "ollama")


@pytest.mark.parametrize("api", LISTS)
def test_a_server_that_is_no_model_api(folder, api):
    page = whole("200 OK", b"<html>Welcome to nginx!</html>", "text/html")
    findings, _ = examine(folder, api, page)
    assert findings["server"][0] == "problem"
    assert "answered with 'text/html' instead of" in findings["server"][1]
    missing = whole("404 Not Found", b"<html>404</html>", "text/html")
    findings, _ = examine(folder, api, missing)
    assert findings["server"][0] == "problem"
    assert "HTTP 404" in findings["server"][1]


def test_a_server_that_repeats_the_key_and_controls_a_terminal(folder):
    rows = [{"id": f"x-{KEY}", "owned_by": KEY}, {"id": "\x1b[2Jm", "owned_by": "\x1b]0;x\x07"}]
    findings, _ = examine(folder, "openai", whole("200 OK", json.dumps({"data": rows}).encode()))
    assert "[API key]" in findings["server"][1]
    assert "x-[API key]" in findings["model"][1]


def test_a_server_without_a_list_that_has_the_api(folder):
    missing, refusal = whole("404 Not Found", b""), whole("400 Bad Request", b'{"error": {"message": "no messages"}}')
    findings, exchanges = examine(folder, "openai", missing, refusal)
    assert [each.request_line.split()[0] for each in exchanges] == ["GET", "POST"]
    assert (findings["server"][0], findings["model"][0]) == ("ok", "warning")


@pytest.mark.over_a_second
def test_a_server_that_never_answers(folder):
    async def silent(exchange):
        await exchange.reader.read()  # until the client leaves

    findings, _ = examine(folder, "openai", silent, is_silent=True)
    assert findings["server"][0] == "problem"
    assert "no answer within 5 seconds" in findings["server"][1]


def test_a_port_on_which_nobody_listens(folder):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    folder.user(f'[providers.lab]\napi = "openai"\nbase_url = "http://127.0.0.1:{port}/v1"\n')
    process = folder.toolspeak("doctor", "lab:m", "--json")
    findings = findings_of(process)
    assert (process.returncode, findings["server"][0]) == (1, "problem")
    assert "the connection was refused. Start the server there, or correct the base URL." in findings["server"][1]


def test_the_model_may_be_named_as_for_run(folder):
    model = folder.plays("m", "Hi")
    process, same = (folder.toolspeak("doctor", *words, "--json") for words in ([model], ["--model", model]))
    assert (process.returncode, process.stdout) == (same.returncode, same.stdout)
    assert model in process.stdout
    both = folder.toolspeak("doctor", model, "--model", "openai:other")
    assert both.returncode == 2
    assert "name one model" in both.stderr


def test_a_certificate_that_nobody_trusts_and_the_wrong_scheme(folder):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem")
    answer = whole("200 OK", json.dumps(LISTS["openai"]).encode())
    findings, _ = examine(folder, "openai", answer, tls=context)
    assert findings["server"][0] == "problem"
    assert "securely" in findings["server"][1]
    assert "SSL_CERT_FILE" in findings["server"][1]
    findings, _ = examine(folder, "openai", answer, tls=context, more=f'ca_file = "{TLS / "ca.pem"}"\n')
    assert findings["server"][0] == "ok"


@pytest.mark.parametrize(
    ("model", "subject", "text"),
    [
        ("groq:llama", "key", "GROQ_API_KEY is not set"),
        ("anthropic:claude", "key", "ANTHROPIC_API_KEY"),
        ("lab:m", "key", "the variable LAB_KEY is not set"),
        ("opnai:gpt", "model", "Did you mean 'openai'?"),
        (None, "model", "none is named"),
    ],
)
def test_what_is_missing_before_a_server_is_asked(folder, model, subject, text):
    folder.user('[providers.lab]\napi = "openai"\nbase_url = "http://127.0.0.1:9/v1"\nkey_env = "LAB_KEY"\n')
    process = folder.toolspeak("doctor", *([model] if model else []), "--json")
    assert process.returncode == 1
    state, message = findings_of(process)[subject]
    assert (state, text in message) == ("problem", True), message


def test_each_mcp_server_is_started_and_its_tools_are_counted(folder):
    folder.user(
        f'[mcp.good]\ncommand = "{sys.executable}"\nargs = ["{MCP_SERVER}", "."]\n'
        '[mcp.gone]\ncommand = "no-such-program"\n[mcp.away]\nurl = "http://127.0.0.1:9/mcp"\n'
    )
    process = folder.toolspeak("doctor", folder.plays("m", "Hi"), "--json")
    findings = findings_of(process)
    assert process.returncode == 1
    rows = json.loads(process.stdout)["findings"]
    first = next(row for row in rows if row["subject"] == "mcp good")
    assert first["state"] == "ok"
    assert int(first["text"].removesuffix(" tools")) > 5
    assert findings["mcp good"][0] == "warning"  # of its tools, one cannot be used
    assert findings["mcp gone"][0] == findings["mcp away"][0] == "problem"
    assert "no-such-program" in findings["mcp gone"][1]


def test_a_mistake_in_the_configuration_is_one_finding_among_the_others(folder):
    folder.user("modle = 'x'\n")
    process = folder.toolspeak("doctor", folder.plays("m", "Hi"), "--json")
    findings = findings_of(process)
    assert process.returncode == 1
    assert "journal" in findings
    first = json.loads(process.stdout)["findings"][0]
    assert (first["subject"], first["state"]) == ("configuration", "problem")
    assert "config.toml:1: modle: unknown key 'modle'. Did you mean 'model'?" in first["text"]


def test_journals(folder, tmp_path):
    model = folder.plays("m", "Hi")
    assert findings_of(folder.toolspeak("doctor", model, "--json"))["journal"][0] == "ok"
    assert not (tmp_path / "toolspeak.db").exists()
    folder.toolspeak("run", "a task", "--model", model)
    assert "can be read and written" in findings_of(folder.toolspeak("doctor", model, "--json"))["journal"][1]
    data = bytearray((tmp_path / "toolspeak.db").read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    (tmp_path / "broken.db").write_bytes(data)
    (tmp_path / "file").write_text("")
    for place in ("broken.db", "file/x.db", "."):
        process = folder.toolspeak("doctor", model, "--json", "--journal", str(tmp_path / place))
        assert (process.returncode, findings_of(process)["journal"][0]) == (1, "problem"), place
    assert findings_of(folder.toolspeak("doctor", model, "--json", "--journal", "none"))["journal"][0] == "warning"


@pytest.mark.over_a_second
def test_each_finding_is_a_line_for_a_person(folder):
    folder.project('model = "x"\n')
    process = folder.toolspeak("doctor", folder.plays("m", "Hi"))
    assert process.returncode == 0
    lines = process.stdout.splitlines()
    assert {line[0] for line in lines} == {"✓", "!"}
    assert [line for line in lines if line.startswith("! configuration  ") and "is ignored" in line]
    command = [sys.executable, "-m", "toolspeak", "doctor", folder.plays("m", "Hi")]
    env = {**folder.env, "PYTHONIOENCODING": "ascii"}
    plain = subprocess.run(command, cwd=folder.work, env=env, capture_output=True, text=True, check=True)
    assert {line[:2] for line in plain.stdout.splitlines()} == {"ok", "!!"}
