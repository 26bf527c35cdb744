"""Responses with memory: what a client names by its id, over SQLite and over PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest
from loopback_server import serve
from serving import Gateway, at, call_text, events, in_turn, run_gateway, texts

from toolspeak.errors import ConfigurationError, JournalError
from toolspeak.gateway.settings.api_keys import digest, unnamed_key
from toolspeak.gateway.settings.gateway_settings import ResponseSettings, Settings, read_config
from toolspeak.gateway.settings.settings_sources import Sources
from toolspeak.gateway.settings.upstream_settings import Upstream
from toolspeak.gateway.settings_generation import check_settings
from toolspeak.gateway.stored.response_store import open_store

PATH = "/v1/responses"
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
KEYS = (unnamed_key(digest("a" * 20)), unnamed_key(digest("b" * 20)))
A, B = ({"authorization": f"Bearer {letter * 20}"} for letter in "ab")


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/kept/responses.db"
    url = request.getfixturevalue("postgres_url")
    asyncio.run(execute_sql(url, "DROP SCHEMA IF EXISTS toolspeak_responses CASCADE"))
    return url


async def execute_sql(store: str, sql: str) -> None:
    """What somebody else does to the database."""
    if store.startswith("sqlite"):
        with closing(sqlite3.connect(store.removeprefix("sqlite://"))) as db, db:
            db.execute(sql)
        return
    connection = await asyncpg.connect(store, server_settings={"search_path": "toolspeak_responses"})
    await connection.execute(sql)
    await connection.close()


@asynccontextmanager
async def remembering(
    store: str, *turns: Any, more: Any = None, **settings: Any
) -> AsyncGenerator[tuple[Any, Gateway]]:
    response_settings = ResponseSettings(store, **(more or {}))
    answer = turns[0] if turns and callable(turns[0]) else in_turn(*turns)
    async with (
        serve(answer) as upstream,
        run_gateway(at(upstream, dialect="hermes"), responses=response_settings, **settings) as gateway,
    ):
        yield upstream, gateway


async def create_response(gateway: Gateway, prompt: Any, status: int = 200, headers: Any = None, **fields: Any) -> Any:
    response = await gateway.client.post(PATH, json={"model": "m", "input": prompt, **fields}, headers=headers)
    assert response.status_code == status, response.text
    return response.json()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_conversation_goes_on_by_the_id_of_its_last_response(store: str, stream: bool):
    async def run() -> None:
        turns = (texts(call_text("hermes", ("weather", {}))), texts("Snow."), texts("Bye."))
        async with remembering(store, *turns) as (upstream, gateway):
            if stream:
                body = {"model": "m", "input": "How is it?", "tools": [TOOL], "stream": True}
                stream_events = events((await gateway.client.post(PATH, json=body)).text)
                first = stream_events[-1]["response"]
                assert {each["response"]["id"] for each in stream_events if "response" in each} == {first["id"]}
            else:
                first = await create_response(gateway, "How is it?", tools=[TOOL])
            assert (first["store"], first["previous_response_id"], first["background"]) == (True, None, False)
            (call,) = first["output"]
            result = {"type": "function_call_output", "call_id": call["call_id"], "output": "snow"}
            second = await create_response(
                gateway, [result], previous_response_id=first["id"], tools=[TOOL], instructions="Brief."
            )
            assert second["previous_response_id"] == first["id"]
            third = await create_response(gateway, "Thanks.", previous_response_id=second["id"])
            contents = [message["content"] for message in upstream.exchanges[2].json["messages"]]
            text = "\n".join(contents)
            places = [text.index(each) for each in ("How is it?", "weather", "snow", "Snow.", "Thanks.")]
            assert places == sorted(places)
            assert "Brief." not in text  # instructions are not carried over
            response = (await gateway.client.get(f"{PATH}/{second['id']}")).json()
            assert response == second
            input_items = (await gateway.client.get(f"{PATH}/{third['id']}/input_items?order=asc")).json()
            kinds = [(item["type"], item.get("role")) for item in input_items["data"]]
            assert kinds == [
                ("message", "user"), ("function_call", None), ("function_call_output", None),
                ("message", "assistant"), ("message", "user"),
            ]  # fmt: skip
            ids = [item["id"] for item in input_items["data"]]
            assert len({*ids}) == 5
            page = (await gateway.client.get(f"{PATH}/{third['id']}/input_items?limit=2&after={ids[4]}")).json()
            assert ([item["id"] for item in page["data"]], page["has_more"]) == ([ids[3], ids[2]], True)
            assert (page["first_id"], page["last_id"]) == (ids[3], ids[2])

    asyncio.run(run())


def test_what_is_deleted_expired_not_stored_or_anothers_is_not_there(store: str):
    async def run() -> None:
        async with remembering(store, *(texts("Yes.") for _ in range(9)), keys=KEYS) as (_, gateway):
            first = await create_response(gateway, "1", headers=A)
            second = await create_response(gateway, "2", headers=A, previous_response_id=first["id"])
            unstored_response = await create_response(
                gateway, "3", headers=A, previous_response_id=second["id"], store=False
            )
            assert unstored_response["store"] is False
            for response_id, headers in ((first["id"], B), (unstored_response["id"], A), ("resp_x", A)):
                for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")):
                    answer = await gateway.client.request(method, f"{PATH}/{response_id}{path}", headers=headers)
                    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "response_not_found")
                error_body = await create_response(gateway, "4", 404, headers, previous_response_id=response_id)
                assert error_body["error"]["code"] == "previous_response_not_found"
                assert response_id in error_body["error"]["message"]
            deletion = await gateway.client.delete(f"{PATH}/{first['id']}", headers=A)
            assert deletion.json() == {"id": first["id"], "object": "response", "deleted": True}
            error_body = await create_response(gateway, "5", 404, A, previous_response_id=second["id"])
            assert first["id"] in error_body["error"]["message"]
            third = await create_response(gateway, "6", headers=A)
            await execute_sql(store, "UPDATE responses SET expires = 0")
            await create_response(gateway, "7", 404, A, previous_response_id=third["id"])
            assert (await gateway.client.get(f"{PATH}/{third['id']}", headers=A)).status_code == 404

    asyncio.run(run())


def test_a_key_keeps_so_many_and_a_conversation_in_use_stays(store: str):
    async def run() -> None:
        async with remembering(store, *(texts("Yes.") for _ in range(9)), more={"responses": 3}) as (_, gateway):
            first = await create_response(gateway, "1")
            others = [await create_response(gateway, "2"), await create_response(gateway, "3")]
            last = await create_response(gateway, "4", previous_response_id=first["id"])
            await create_response(gateway, "5", previous_response_id=last["id"])
            assert (await gateway.client.get(f"{PATH}/{others[1]['id']}")).status_code == 404
            assert (await gateway.client.get(f"{PATH}/{first['id']}")).status_code == 200

    asyncio.run(run())


def test_what_is_too_large_or_meets_a_broken_database_is_answered_all_the_same(store: str):
    async def run() -> None:
        async with remembering(store, *(texts("Yes.") for _ in range(9)), more={"response_bytes": 3000}) as (
            _,
            gateway,
        ):
            large = await create_response(gateway, "x" * 3000)
            assert (large["store"], large["output"][0]["content"][0]["text"]) == (False, "Yes.")
            assert large["toolspeak"]["warnings"][0]["code"] == "response_not_stored"
            first = await create_response(gateway, "1")
            await execute_sql(store, "ALTER TABLE responses RENAME TO gone")
            answer = await create_response(gateway, "2")
            assert (answer["store"], answer["status"]) == (False, "completed")
            body = {"model": "m", "input": "2", "stream": True}
            last_event = events((await gateway.client.post(PATH, json=body)).text)[-1]
            assert last_event["response"]["store"] is False
            assert last_event["toolspeak"]["warnings"][0]["code"] == "response_not_stored"
            for refusal in (
                await gateway.client.get(f"{PATH}/{first['id']}"),
                await gateway.client.post(PATH, json={"model": "m", "input": "3", "previous_response_id": first["id"]}),
            ):
                assert refusal.status_code == 503
                assert refusal.json()["error"]["code"] == "responses_unavailable"
                assert "retry-after" in refusal.headers
                assert "tmp" not in refusal.text

    asyncio.run(run())


@pytest.mark.parametrize("response_id", ["\x00", "resp_\ud800", "resp_" + "0" * 300, "resp_1'; DROP TABLE responses"])
def test_ids_that_nobody_made_are_not_there(store: str, response_id: str):
    async def run() -> None:
        async with remembering(store) as (_, gateway):
            body = json.dumps({"model": "m", "input": "x", "previous_response_id": response_id})
            response = await gateway.client.post(PATH, content=body, headers={"content-type": "application/json"})
            assert (response.status_code, response.json()["error"]["code"]) == (404, "previous_response_not_found")
            assert len(response.content) < 500
            path = quote(response_id, errors="replace")
            for method in ("GET", "DELETE"):
                assert (await gateway.client.request(method, f"{PATH}/{path}")).status_code == 404

    asyncio.run(run())


def test_a_database_that_is_locked_holds_no_answer_up_for_long(tmp_path: Path):
    async def run() -> None:
        async with remembering(f"{tmp_path}/r.db", texts("Yes."), more={"seconds": 0.05}) as (_, gateway):
            with closing(sqlite3.connect(tmp_path / "r.db", isolation_level=None)) as db:
                db.execute("BEGIN IMMEDIATE")
                answer = await create_response(gateway, "1")
                assert (answer["store"], answer["status"]) == (False, "completed")
                refusal = await gateway.client.get(f"{PATH}/resp_1")
                assert refusal.status_code == 503
                db.execute("ROLLBACK")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"previous_response_id": 5}, "previous_response_id: expected a string"),
        ({"store": "yes"}, "store: expected true or false"),
        ({"background": True}, "responses.background"),
        ({"conversation": "conv_1"}, "conversations are not stored here"),
        ({"input": 5}, "input: expected a string or a list"),
        ({"input": ["x"]}, "input[0]: expected an object"),
    ],
)
def test_what_cannot_be_asked(tmp_path: Path, fields: dict[str, Any], problem: str):
    async def run() -> None:
        async with remembering(f"{tmp_path}/r.db") as (_, gateway):
            rest = {name: value for name, value in fields.items() if name != "input"}
            answer = await create_response(gateway, fields.get("input", "x"), 400, **rest)
            assert problem in answer["error"]["message"]

    asyncio.run(run())


def test_without_memory_nothing_is_kept():
    async def run() -> None:
        async with serve(in_turn(texts("Yes."))) as upstream, run_gateway(at(upstream, dialect="hermes")) as gateway:
            assert (await create_response(gateway, "x", store=True))["store"] is False
            await create_response(gateway, "x", 400, previous_response_id="resp_1")
            await create_response(gateway, "x", 400, background=True)
            answer = await gateway.client.get(f"{PATH}/resp_1")
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "responses_not_kept")

    asyncio.run(run())


# --- the background ----------------------------------------------------------------------------------------------


async def until(gateway: Gateway, response_id: str, *statuses: str) -> Any:
    """Polls as clients do."""
    while True:
        response = (await gateway.client.get(f"{PATH}/{response_id}")).json()
        if response["status"] in statuses:
            return response
        await asyncio.sleep(0.01)


def test_a_background_response_is_made_and_polled(store: str):
    async def run() -> None:
        go = asyncio.Event()

        async def answer(exchange: Any) -> None:
            await go.wait()
            await in_turn(texts("Done."))(exchange)

        async with remembering(store, answer, more={"background": True}) as (_, gateway):
            queued_response = await create_response(gateway, "Work.", background=True)
            assert (queued_response["status"], queued_response["background"], queued_response["output"]) == (
                "queued",
                True,
                [],
            )
            running_response = await until(gateway, queued_response["id"], "in_progress")
            assert running_response["id"] == queued_response["id"]
            error_body = await create_response(gateway, "More.", 400, previous_response_id=queued_response["id"])
            assert "in_progress" in error_body["error"]["message"]
            go.set()
            completed_response = await until(gateway, queued_response["id"], "completed", "failed")
            assert (completed_response["status"], completed_response["output"][0]["content"][0]["text"]) == (
                "completed",
                "Done.",
            )
            again = await gateway.client.post(f"{PATH}/{queued_response['id']}/cancel")
            assert again.json()["status"] == "completed"
            follow = await create_response(gateway, "More.", previous_response_id=queued_response["id"])
            assert follow["status"] == "completed"
            refusal = await gateway.client.post(f"{PATH}/{follow['id']}/cancel")
            assert refusal.status_code == 400

    asyncio.run(run())


@pytest.mark.over_a_second
def test_a_background_response_is_cancelled_in_another_process_too(store: str):
    async def run() -> None:
        departure = asyncio.Event()

        async def answer(exchange: Any) -> None:
            try:
                await exchange.reader.read()
            finally:
                departure.set()

        async with (
            remembering(store, answer, more={"background": True}) as (upstream, gateway),
            run_gateway(at(upstream), responses=ResponseSettings(store, background=True)) as other,
        ):
            queued_response = await create_response(gateway, "Work.", background=True)
            await until(other, queued_response["id"], "in_progress")
            cancelled_response = (await other.client.post(f"{PATH}/{queued_response['id']}/cancel")).json()
            assert cancelled_response["status"] == "cancelled"
            await departure.wait()
            assert (await until(gateway, queued_response["id"], "cancelled"))["status"] == "cancelled"

    asyncio.run(run())


def test_a_background_response_that_fails_says_why(store: str):
    async def run() -> None:
        async def answer(exchange: Any) -> None:
            await exchange.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}")

        async with remembering(store, answer, more={"background": True}) as (_, gateway):
            queued_response = await create_response(gateway, "Work.", background=True)
            failed_response = await until(gateway, queued_response["id"], "failed", "completed")
            assert (failed_response["status"], failed_response["error"]["code"]) == ("failed", "upstream_refused")
            await execute_sql(store, "UPDATE responses SET status = 'in_progress', held_until = 0")
            lost_response = await until(gateway, queued_response["id"], "failed")
            assert lost_response["error"]["code"] == "worker_lost"
            for fields in ({"stream": True}, {"store": False}):
                await create_response(gateway, "x", 400, background=True, **fields)

    asyncio.run(run())


@pytest.mark.parametrize("status", ["200 OK", "418 Teapot"])
def test_a_background_request_is_counted_once_by_how_it_ends(tmp_path: Path, status: str):
    async def run() -> None:
        async def answer(exchange: Any) -> None:
            if status == "200 OK":
                await in_turn(texts("Done."))(exchange)
            else:
                await exchange.send(f"HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}".encode())

        async with remembering(f"{tmp_path}/r.db", answer, more={"background": True}) as (_, gateway):
            await create_response(gateway, "Work.", background=True)
            totals: list[str] = []
            while not totals:
                lines = (await gateway.client.get("/metrics")).text.splitlines()
                totals = [line for line in lines if line.startswith("toolspeak_requests_total{")]
            assert [line.rpartition(" ")[2] for line in totals] == ["1.0"]
            assert ('status="200"' in totals[0]) == (status == "200 OK")

    asyncio.run(run())


def test_a_gateway_that_ends_leaves_no_response_in_progress(store: str):
    async def run() -> None:
        async def answer(exchange: Any) -> None:
            await exchange.reader.read()

        async with remembering(store, answer, more={"background": True}) as (upstream, gateway):
            queued_response = await create_response(gateway, "Work.", background=True)
            await until(gateway, queued_response["id"], "in_progress")
            gateway.server.stop.set()  # type: ignore[attr-defined]
            async with run_gateway(at(upstream), responses=ResponseSettings(store)) as other:
                stopped_response = await until(other, queued_response["id"], "failed")
                assert stopped_response["error"]["code"] == "gateway_stopped"

    asyncio.run(run())


# --- what the operator writes ------------------------------------------------------------------------------------

MODEL = '[[model]]\nname = "m"\nupstream = "ollama"\n'


def test_the_table_of_the_configuration(tmp_path: Path):
    file = tmp_path / "gateway.toml"
    file.write_text(f'[responses]\nstore = "r.db"\nretention_days = 0.5\nbackground = true\nresponses = 7\n{MODEL}')
    response_settings = ResponseSettings(str(tmp_path / "r.db"), 0.5, background=True, responses=7)
    assert read_config(file).responses == response_settings
    assert Sources(config=str(file)).load({}, {}).responses == response_settings
    elsewhere = Sources(config=str(file), responses="postgresql://db/x").load({}, {}).responses
    assert elsewhere == replace(response_settings, store="postgresql://db/x")
    assert Sources((Upstream(),), responses="r.db").load({}, {}).responses == ResponseSettings("r.db")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("responses = 1\n", "responses: expected a table"),
        ("[responses]\n", "responses.store: missing"),
        ('[responses]\nstore = "x"\nkeep = 1\n', "responses.keep: unknown key"),
        ('[responses]\nstore = "x"\nretention_days = 0\n', "responses.retention_days: nothing would be kept"),
        ('[responses]\nstore = "x"\nbackground = 1\n', "responses.background: expected true or false"),
    ],
)
def test_a_table_that_cannot_be(tmp_path: Path, text: str, problem: str):
    file = tmp_path / "gateway.toml"
    file.write_text(text + MODEL)
    with pytest.raises(ConfigurationError, match=problem):
        read_config(file)


def test_a_store_of_another_kind(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"responses.store: mysql:// is not supported"):
        check_settings(Settings((Upstream(provider="ollama"),), responses=ResponseSettings("mysql://x")), {})
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as db, db:
        db.execute("CREATE TABLE t (x)")
    with pytest.raises(JournalError, match="another program"):
        asyncio.run(open_store(str(other), 5.0).open())
