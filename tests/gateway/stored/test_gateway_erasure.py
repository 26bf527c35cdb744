"""`toolspeak journal erase --gateway` while the gateway runs: what its databases hold of one key."""

from __future__ import annotations

import asyncio
import sys
from contextlib import closing
from pathlib import Path

import pytest
from loopback_server import serve
from processes import running_process
from serving import in_turn, texts

from toolspeak.gateway.erasure import erase_key
from toolspeak.gateway.settings.api_keys import digest
from toolspeak.gateway.settings.gateway_settings import FileSettings, ResponseSettings
from toolspeak.gateway.settings.usage_settings import UsageSettings
from toolspeak.gateway.stored.response_store import Retention, StoredResponse, open_store
from toolspeak.gateway.usage.usage_store import open_usage
from toolspeak.gateway.usage.usage_values import Counts, UsageBatch
from toolspeak.journal import SqliteJournal
from toolspeak.testing.journal import a_run, write

MARKER = "Zebrafinkenlied"
ANN, BEN = "ann" * 8, "ben" * 8


def key(name: str, secret: str) -> str:
    return f'[[key]]\nname = "{name}"\nsha256 = "{digest(secret)}"\n'


def holders(folder: Path, text: str) -> list[str]:
    return sorted(file.name for file in folder.iterdir() if text.encode() in file.read_bytes())


async def toolspeak(*arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "toolspeak", *arguments, stdout=-1, stderr=-1)
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()


@pytest.mark.over_a_second
def test_the_usage_and_the_responses_of_a_key_are_erased_for_good_while_the_gateway_runs(tmp_path: Path):
    stores, config, journal = tmp_path / "stores", tmp_path / "gateway.toml", tmp_path / "runs.db"
    stores.mkdir()

    async def fill() -> None:
        sqlite_journal = SqliteJournal(journal)
        await write(sqlite_journal, a_run("anns", principal="ann-of-sales"))
        await sqlite_journal.aclose()

    async def run() -> None:
        await fill()
        async with serve(in_turn(*[texts("An answer.")] * 10)) as server:
            config.write_text(
                f'[[model]]\nname = "m"\nupstream = "{server.base_url}"\ndialect = "hermes"\n'
                f'[usage]\nstore = "{stores / "usage.db"}"\n[responses]\nstore = "{stores / "responses.db"}"\n'
                + key("ann-of-sales", ANN) + key("ben", BEN)
            )  # fmt: skip
            async with running_process("--config", str(config), "--workers", "2") as process:

                async def ask(secret: str, text: str) -> str:
                    async with process.client(authorization=f"Bearer {secret}") as client:
                        answer = await client.post("/v1/responses", json={"model": "m", "input": text})
                        assert answer.status_code == 200, answer.text
                        return answer.json()["id"]

                for number in range(5):
                    await ask(ANN, f"{MARKER} {number}")
                response_id = await ask(BEN, "Amsel")
                assert holders(stores, MARKER) != []
                assert holders(stores, "ann-of-sales") != []
                output = await toolspeak(
                    "journal", "erase", "--principal", "ann-of-sales", "--journal", str(journal),
                    "--gateway", str(config), "--yes",
                )  # fmt: skip
                assert output == (
                    f"{journal}: 1 run and 0 sessions erased\n{config}: 1 row of usage and 5 stored responses erased\n"
                )
                assert holders(stores, MARKER) == holders(stores, "ann-of-sales") == []
                async with process.client(authorization=f"Bearer {BEN}") as client:
                    answer = await client.get(f"/v1/responses/{response_id}")
                    assert answer.status_code == 200
                await ask(ANN, "The key still works")

    asyncio.run(run())
    with closing(open(journal, "rb")) as file:
        assert b"ann-of-sales" not in file.read()


def test_the_stores_of_one_key_are_erased_in_every_database(usage_store: str, tmp_path: Path):
    """Stores that do not exist are not made."""

    async def run() -> None:
        responses, usage = open_store(store, 5.0), open_usage(usage_store)
        for number, owner in enumerate(["ann", "ann", "ben"]):
            response = StoredResponse(f"resp_{number}", owner, "completed", None, "[]", "{}")
            await responses.add(response, Retention(1000.0, 100, 100_000))
        counts = {("ann", "m"): Counts(requests=3), ("ben", "m"): Counts(requests=4)}
        await usage.settle(UsageBatch("worker", 15.0, counts, {}))
        assert await erase_key(settings, "ann") == (1, 2)
        assert await erase_key(settings, "ann") == (0, 0)
        assert [(row.key, row.counts.requests) for row in await usage.rows(("key",), "")] == [("ben", 4)]
        assert await responses.get("ann", "resp_0") is None
        assert await responses.get("ben", "resp_2") is not None
        await responses.aclose()
        await usage.aclose()

    is_file = "://" not in usage_store
    store = str(tmp_path / "responses.db") if is_file else usage_store
    settings = FileSettings((), {}, responses=ResponseSettings(store), usage=UsageSettings(usage_store))
    if is_file:
        assert asyncio.run(erase_key(settings, "ann")) == (0, 0)
        assert [*tmp_path.iterdir()] == []
    asyncio.run(run())
