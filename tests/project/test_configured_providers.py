"""Providers of the user's own: real ones, for every API, with the key that they name and no other."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest
from configured_folder import ConfiguredFolder
from every_api import API_CASES
from loopback_server import serve, whole

PATHS = {
    "openai": "/v1/chat/completions", "openai-responses": "/v1/responses", "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/m:streamGenerateContent?alt=sse", "ollama": "/api/chat",
}  # fmt: skip
KEYS = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}
ALL_KEYS = {
    name: f"{name.lower()}-must-not-leave"
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OLLAMA_API_KEY")
}


@pytest.fixture
def folder(tmp_path):
    return ConfiguredFolder(tmp_path)


def requests_of(folder, api, answer, more="", *, arguments=("--model", "lab:m"), **env):
    """What a server of the API is sent by `run`, and how the command ends."""

    async def main():
        async with serve(answer) as server:
            root = f"http://127.0.0.1:{server.port}"
            base = f"{root}/v1" if api.startswith("openai") else root
            folder.user(f'[providers.lab]\napi = "{api}"\nbase_url = "{base}"\n{more}')
            options = ["--dialect", "hermes", "--json"]
            process = await asyncio.to_thread(folder.toolspeak, "run", "Hi", *options, *arguments, **ALL_KEYS, **env)
            return server.exchanges, process

    return asyncio.run(main())


@pytest.mark.parametrize("api", API_CASES)
def test_a_configured_provider_of_each_api_answers(folder, api):
    exchanges, process = requests_of(folder, api, API_CASES[api].turn, 'key_env = "LAB_KEY"', LAB_KEY="lab-key-1234")
    records = [json.loads(line) for line in process.stdout.splitlines()]
    assert (process.returncode, records[-1]["event"]["answer"]) == (0, "Hél😀"), process.stderr
    assert exchanges[0].request_line.split()[1] == PATHS[api]
    value = exchanges[0].headers[KEYS.get(api, "authorization")]
    assert value.removeprefix("Bearer ") == "lab-key-1234"
    models = {record["event"]["model"] for record in records if "model" in record["event"]}
    assert models == {"lab:m"}
    assert "lab-key-1234" not in process.stdout


@pytest.mark.parametrize("api", API_CASES)
def test_no_key_goes_to_an_address_that_names_none(folder, api):
    exchanges, process = requests_of(folder, api, API_CASES[api].turn)
    assert process.returncode == 0, process.stderr
    assert exchanges
    assert "must-not-leave" not in str([exchange.headers for exchange in exchanges])


def test_headers_and_options_are_sent_and_a_secret_of_a_header_is_not_shown(folder):
    more = 'headers = { X-Team = "shop", X-Auth-Token = "${TEAM_TOKEN}" }\noptions = { temperature = 0.5 }\n'
    refusal = whole("400 Bad Request", b'{"error": {"message": "no team-token-9876 here"}}')
    exchanges, process = requests_of(folder, "openai", refusal, more, TEAM_TOKEN="team-token-9876")
    assert exchanges[0].headers["x-team"] == "shop"
    assert exchanges[0].headers["x-auth-token"] == "team-token-9876"
    assert exchanges[0].json["temperature"] == 0.5
    assert process.returncode == 1
    assert "no [API key] here" in process.stderr
    assert "team-token-9876" not in process.stderr + process.stdout


@pytest.mark.parametrize("more", ['key_env = "LAB_KEY"', 'headers = { X-Token = "${LAB_KEY}" }'])
def test_a_variable_that_is_not_set_is_named(folder, more):
    exchanges, process = requests_of(folder, "openai", API_CASES["openai"].turn, more)
    assert (exchanges, process.returncode) == ([], 2)
    assert "provider 'lab': the variable LAB_KEY is not set" in process.stderr


def test_an_alias_leads_to_a_configured_provider_and_resume_has_both(folder):
    async def main():
        async with serve(API_CASES["openai"].turn) as server:
            provider = f'[providers.lab]\napi = "openai"\nbase_url = "{server.base_url}"\n'
            folder.user(f'model = "quick"\n[aliases]\nquick = "lab:m"\n{provider}')
            first = await asyncio.to_thread(folder.toolspeak, "run", "Hi", "--dialect", "hermes")
            folder.user("")
            again = await asyncio.to_thread(folder.toolspeak, "run", "-c", "More", "--dialect", "hermes")
            return server.exchanges, first, again

    exchanges, first, again = asyncio.run(main())
    assert (first.stdout, again.stdout) == ("Hél😀\n", "Hél😀\n"), again.stderr
    assert {exchange.json["model"] for exchange in exchanges} == {"m"}


def test_a_misspelt_provider_names_the_configured_one(folder):
    folder.user('[providers.laboratory]\napi = "openai"\nbase_url = "http://127.0.0.1:9/v1"\n')
    process = folder.toolspeak("run", "Hi", "--model", "labratory:m")
    assert process.returncode == 2
    assert "Did you mean 'laboratory'?" in process.stderr


def test_the_name_of_a_provider_says_nothing_about_its_models(folder):
    folder.user('[providers.deepseek-lab]\napi = "openai"\nbase_url = "http://127.0.0.1:9/v1"\n')
    findings = {}
    for model in ("deepseek-lab:qwen3-8b", "deepseek-lab:some-model"):
        rows = json.loads(folder.toolspeak("doctor", model, "--json").stdout)["findings"]
        findings[model] = next(row["text"] for row in rows if row["subject"] == "dialect")
    assert "hermes" in findings["deepseek-lab:qwen3-8b"]
    assert "cogency-json" in findings["deepseek-lab:some-model"]


@pytest.mark.over_a_second
@pytest.mark.parametrize(("is_up", "code"), [(True, 0), (False, 1)])
def test_agents_of_a_worker_use_them_too(folder, is_up, code):
    program = (
        "import os\nfrom toolspeak import Agent\nfrom toolspeak.journal import open_journal\n"
        "journal = open_journal(os.environ['TOOLSPEAK_JOURNAL'])\n"
        "support = Agent('lab:m', dialect='hermes', name='support', journal=journal)\n"
    )
    (folder.work / "support.py").write_text(program)
    refusal = whole("400 Bad Request", b'{"error": {"message": "no"}}')

    async def main():
        async with serve(API_CASES["openai"].turn if is_up else refusal) as server:
            folder.user(f'[providers.lab]\napi = "openai"\nbase_url = "{server.base_url}"\n')
            command = [sys.executable, "-m", "toolspeak", "worker", "support.py"]
            worker = await asyncio.create_subprocess_exec(*command, cwd=folder.work, env=folder.env)
            try:
                return await asyncio.to_thread(folder.toolspeak, "submit", "support", "Hi", "--wait")
            finally:
                worker.terminate()
                await worker.wait()

    process = asyncio.run(main())
    assert (process.returncode, process.stdout == "Hél😀\n") == (code, is_up), process.stderr


def test_the_gateway_serves_a_model_of_a_configured_provider(folder):
    async def main():
        models = whole("200 OK", b'{"data": [{"id": "m"}]}')
        async with serve(models) as server:
            folder.user(
                f'[aliases]\nquick = "lab:m"\n[providers.lab]\napi = "openai"\nbase_url = "{server.base_url}"\n'
                'key_env = "LAB_KEY"\n'
            )
            check = ["serve", "--upstream", "quick", "--dialect", "hermes", "--check"]
            process = await asyncio.to_thread(folder.toolspeak, *check, LAB_KEY="lab-key-1234", **ALL_KEYS)
            return server, process

    server, process = asyncio.run(main())
    assert f"openai:m at {server.base_url}" in process.stdout, process.stderr
    assert server.exchanges[0].headers["authorization"] == "Bearer lab-key-1234"
