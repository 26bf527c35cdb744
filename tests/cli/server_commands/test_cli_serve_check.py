"""`toolspeak serve --check`, as an operator starts it before model servers."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from loopback_server import Exchange, event, serve, stream, whole

from forked_commands import completed_text

VLLM_MODEL = "Qwen/Qwen3-Coder-30B-A3B-Instruct"


def listing(*rows: dict[str, Any]) -> bytes:
    return json.dumps({"object": "list", "data": [{"object": "model", **row} for row in rows]}).encode()


async def answer(exchange: Exchange) -> None:
    """A vLLM that writes tools into its prompt: a request with one has 60 tokens more."""
    if exchange.request_line.split()[1].endswith("/models"):
        rows = listing({"id": VLLM_MODEL, "max_model_len": 40960}, {"id": "google/gemma-3-27b-it"})
        await whole("200 OK", rows)(exchange)
        return
    if not exchange.request_line.split()[1].endswith("/chat/completions"):
        await whole("404 Not Found", b"{}")(exchange)
        return
    tokens = 70 if exchange.json.get("tools") else 10
    usage = {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1}
    chunk = {"id": "a", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": "length"}
    chunks = [{**chunk, "choices": [choice]}, {**chunk, "choices": [], "usage": usage}]
    await stream(*(event(each) for each in chunks), event("[DONE]"))(exchange)


async def refuse(exchange: Exchange) -> None:
    await whole("401 Unauthorized", b'{"error": {"message": "wrong key", "code": "invalid_api_key"}}')(exchange)


async def check_output(config: Path | None, *arguments: str, **environ: str) -> tuple[int, str, str]:
    command = ["serve", "--check", *arguments, *(["--config", str(config)] if config else [])]
    env = {**os.environ, "NO_COLOR": "1", **environ}
    for _ in range(3):  # a machine may stand still for as long as an answer may take
        process = await asyncio.to_thread(completed_text, command, cwd=Path.cwd(), env=env)
        if "no answer within" not in process.stdout:
            break
    return process.returncode, process.stdout, process.stderr


def parts(out: str) -> dict[str, str]:
    """What stands under each model's line."""
    sections: dict[str, str] = {}
    name = ""
    for line in out.splitlines():
        if " → " in line:
            name = line.partition(" → ")[0]
            sections[name] = line
        elif line.startswith("  "):
            sections[name] += "\n" + " ".join(line.split())
    return sections


def test_each_model_is_told_with_what_it_gets_and_why(tmp_path: Path):
    async def run() -> tuple[int, str, str]:
        async with serve(answer) as server:
            config = tmp_path / "gateway.toml"
            config.write_text(
                f"""
                [server]
                port = 9000
                [[model]]
                name = "coder"
                upstream = "vllm:{VLLM_MODEL}"
                url = "{server.base_url}"
                dialect = "qwen3-coder"
                [[model]]
                name = "native"
                upstream = "vllm:{VLLM_MODEL}"
                url = "{server.base_url}"
                [[model]]
                name = "wrong"
                upstream = "{server.base_url}"
                model = "qwen3-coder"
                dialect = "hermes"
                listing = "signatures"
                [[model]]
                name = "google/*"
                upstream = "{server.base_url}"
                [[model]]
                name = "unknown"
                upstream = "{server.base_url}"
                model = "{VLLM_MODEL}"
                capabilities = {{ grammar = "gbnf", context = 8192 }}
                """,
                "utf-8",
            )
            return await check_output(config)

    code, out, err = asyncio.run(run())
    assert code == 0, out + err
    sections = parts(out)
    assert list(sections) == ["coder", "native", "wrong", "google/gemma-3-27b-it", "unknown"]
    assert "calls in text, in qwen3-coder (as configured)" in sections["coder"]
    assert "prompt the server writes it with the chat template" in sections["coder"]
    assert "required enforced by a grammar (xgrammar)" in sections["coder"]
    assert "window 40,960 tokens (max_model_len of the server)" in sections["coder"]
    assert "calls native: the server reads and writes them (vllm is known to have calls)" in sections["native"]
    assert "warning the server lists no model 'qwen3-coder'" in sections["wrong"]
    assert "warning by its name, the model was trained on qwen3-coder, not on hermes" in sections["wrong"]
    assert "prompt toolspeak writes it, with the tools as signatures" in sections["wrong"]
    assert "required requested in words" in sections["wrong"]
    assert (
        "calls in text, in gemma" in sections["google/gemma-3-27b-it"] or "cogency" in sections["google/gemma-3-27b-it"]
    )
    assert "calls in text, in qwen3-coder (by the model's name)" in sections["unknown"]
    assert "prompt toolspeak writes it like the chat template of qwen3-coder's models" in sections["unknown"]
    assert "required enforced by a grammar (gbnf)" in sections["unknown"]
    assert out.splitlines()[-1] == "models: 5 answer. It would serve at http://127.0.0.1:9000 with no API keys."


def test_what_cannot_answer_is_told_with_its_remedy(tmp_path: Path):
    async def run() -> tuple[int, str, str]:
        async with serve(answer) as server, serve(refuse) as refusing_server:
            config = tmp_path / "gateway.toml"
            config.write_text(
                f"""
                [[model]]
                name = "dead"
                upstream = "http://127.0.0.1:1/v1"
                [[model]]
                name = "locked"
                upstream = "{refusing_server.base_url}"
                [[model]]
                name = "nothing*"
                upstream = "{server.base_url}"
                [[model]]
                name = "{VLLM_MODEL}"
                upstream = "{server.base_url}"
                """,
                "utf-8",
            )
            return await check_output(config, "--api-keys", str(tmp_path / "keys"))

    (tmp_path / "keys").write_text("a-key-of-some-length\n", "utf-8")
    code, out, err = asyncio.run(run())
    assert code == 1, out + err
    sections = parts(out)
    assert "problem cannot connect to http://127.0.0.1:1/v1: the connection was refused" in sections["dead"]
    assert "wrong key" in sections["locked"]
    assert "problem it lists no model that fits nothing*" in sections["nothing*"]
    assert "problem" not in sections[VLLM_MODEL]
    assert "3 of 4 do not answer" in out.splitlines()[-1]
    assert out.splitlines()[-1].endswith("with 1 API keys.")


def test_each_of_several_upstreams_is_told_and_a_model_is_broken_if_none_answers(tmp_path: Path):
    async def run() -> tuple[int, str, str]:
        async with serve(answer) as server, serve(refuse) as refusing_server:
            config = tmp_path / "gateway.toml"
            dead = "http://127.0.0.1:1/v1"
            config.write_text(
                f"""
                [[model]]
                name = "{VLLM_MODEL}"
                upstreams = ["{dead}", "{server.base_url}"]
                [[model]]
                name = "google/*"
                upstreams = ["{dead}", "{server.base_url}"]
                [[model]]
                name = "broken"
                upstreams = ["{dead}", "{refusing_server.base_url}"]
                """,
                "utf-8",
            )
            return await check_output(config)

    code, out, err = asyncio.run(run())
    assert code == 1, out + err
    lines = [line for line in out.splitlines() if "(another upstream of the model answers)" in line]
    assert len(lines) == 2
    assert all("127.0.0.1:1/v1" in line for line in lines)
    assert out.count("broken → openai:broken at") == 2
    assert "wrong key" in out
    assert "1 of " in out.splitlines()[-1]


def test_a_wrong_configuration_is_an_error_as_without_the_check(tmp_path: Path):
    config = tmp_path / "gateway.toml"
    config.write_text('[[model]]\nname = "a"\nupstream = "ollama"\ndialect = "hermess"\n', "utf-8")
    code, out, err = asyncio.run(check_output(config))
    assert (code, out) == (2, "")
    assert "model[0].dialect" in err
    assert "hermes" in err


def test_a_store_that_cannot_be_is_wrong_before_the_gateway_starts(tmp_path: Path):
    config = tmp_path / "gateway.toml"
    model = '[[model]]\nname = "m"\nupstream = "http://127.0.0.1:9/v1"\n'
    for table in ("usage", "responses"):
        config.write_text(f'{model}[{table}]\nstore = "mysql://x"\n')
        code, _, err = asyncio.run(check_output(config))
        assert (code, f"{table}.store: mysql:// is not supported" in err) == (2, True), err


async def nowhere(exchange: Exchange) -> None:
    """A vLLM whose API begins at /v1, and whose address was written without."""
    if exchange.request_line.split()[1].startswith("/v1/"):
        await answer(exchange)
    else:
        await whole("404 Not Found", b'{"detail": "Not Found"}')(exchange)


async def list_nothing(exchange: Exchange) -> None:
    """Has no list of models, and answers a request that is none as such servers do."""
    status = "404 Not Found" if exchange.request_line.startswith("GET") else "422 Unprocessable Entity"
    await whole(status, b'{"detail": "messages: missing"}')(exchange)


def test_an_address_without_the_api_is_a_problem_and_one_without_a_list_is_none(tmp_path: Path):
    async def run() -> tuple[int, str, str]:
        async with serve(nowhere) as wrong, serve(list_nothing) as right:
            config = tmp_path / "gateway.toml"
            config.write_text(
                f"""
                [[model]]
                name = "wrong"
                upstream = "{wrong.base_url.removesuffix("/v1")}"
                [[model]]
                name = "right"
                upstream = "{right.base_url}"
                """,
                "utf-8",
            )
            return await check_output(config)

    code, out, err = asyncio.run(run())
    assert code == 1, out + err
    sections = parts(out)
    assert "problem" in sections["wrong"]
    assert "it usually ends in /v1" in sections["wrong"]
    assert "problem" not in sections["right"]


def other_database(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "other.db")) as db:
        db.execute("CREATE TABLE theirs (x)")
    return str(folder / "other.db")


STORES: dict[str, tuple[Callable[[Path], str], str]] = {
    "a folder that cannot be made": (lambda folder: str(folder / "gateway.toml" / "x" / "u.db"), "Not a directory"),
    "another program's": (other_database, "is a database of another program: name another file"),
    "no database": (lambda folder: str(folder / "gateway.toml"), "it is not a SQLite database: name another file"),
    "PostgreSQL that is not there": (
        lambda _folder: "postgresql://me:secret@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db: ",
    ),
}


@pytest.mark.parametrize("table", ["usage", "responses"])
@pytest.mark.parametrize("store", STORES)
def test_a_store_that_cannot_be_opened_is_a_problem(store: str, table: str, tmp_path: Path):
    where, problem = STORES[store]

    async def run() -> tuple[int, str, str]:
        async with serve(answer) as server:
            config = tmp_path / "gateway.toml"
            model = f'[[model]]\nname = "google/gemma-3-27b-it"\nupstream = "{server.base_url}"\n'
            config.write_text(f'{model}[{table}]\nstore = "{where(tmp_path)}"\n', "utf-8")
            return await check_output(config)

    code, out, err = asyncio.run(run())
    assert code == 1, out + err
    (line,) = [line for line in out.splitlines() if line.startswith("  problem ")]
    assert problem in line
    assert "secret" not in out
    assert "models: 1 answer. It could not serve at" in out


def test_the_check_makes_no_store_warns_of_an_expired_key_and_notes_a_port_in_use(tmp_path: Path):
    async def run() -> tuple[int, str, str]:
        async with serve(answer) as server:
            config = tmp_path / "gateway.toml"
            config.write_text(
                f"""
                [server]
                port = {server.port}
                [usage]
                store = "new/usage.db"
                [responses]
                store = "new/responses.db"
                [[key]]
                name = "bob"
                sha256 = "{"a" * 64}"
                expires = 2020-01-31
                [[model]]
                name = "google/gemma-3-27b-it"
                upstream = "{server.base_url}"
                """,
                "utf-8",
            )
            return await check_output(config)

    code, out, err = asyncio.run(run())
    assert code == 0, out + err
    assert "  warning   the key 'bob' has expired" in out
    assert "  note      port " in out
    assert not (tmp_path / "new").exists()


@pytest.mark.over_a_second
@pytest.mark.skipif(sys.platform != "linux", reason="needs capabilities as Linux has them")
def test_a_store_that_cannot_be_read_is_told_as_that(tmp_path: Path):
    store = tmp_path / "usage.db"
    store.write_bytes(b"")
    store.chmod(0)
    config = tmp_path / "gateway.toml"
    config.write_text(
        f'[[model]]\nname = "m"\nupstream = "http://127.0.0.1:1/v1"\n[usage]\nstore = "{store}"\n', "utf-8"
    )
    user = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    command = [*user, sys.executable, "-m", "toolspeak", "serve", "--check", "--config", str(config)]
    out = subprocess.run(command, capture_output=True, check=False).stdout.decode()
    assert f"{store}: unable to open database file; it cannot be opened: give yourself the right to read" in out
