"""An upstream process that is killed with many streams open."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from processes import CHAT, Streams, running_process
from serving import PATIENCE, TOOLS, events

from toolspeak.data.messages import Message
from toolspeak.wire.base import ModelRequest
from toolspeak.wire.openai_chat import OPENAI_CHAT

SCRIPT = Path(__file__).with_name("upstream_process.py")


@dataclass
class Upstream:
    process: asyncio.subprocess.Process
    port: int

    async def has_had(self, count: int) -> None:
        """Waits until it has read so many requests."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while int(await self.process.stdout.readline()) < count:
                pass

    async def release(self) -> None:
        async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=PATIENCE) as client:
            await client.get(f"http://127.0.0.1:{self.port}/release")

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def upstream(name: str, stream_count: int, port: int = 0) -> AsyncGenerator[Upstream]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(SCRIPT), str(port), name, str(stream_count)),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    try:
        yield Upstream(process, int(await process.stdout.readline()))
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.over_a_second
@pytest.mark.parametrize("tools", [pytest.param((), marks=pytest.mark.slow), TOOLS], ids=["relayed", "with tools"])
def test_of_a_hundred_streams_only_those_that_had_begun_see_that_an_upstream_was_killed(tools, tmp_path: Path):
    """A quarter had begun there, and ends in an error; a quarter had not, and is answered by the other upstream. The
    killed one serves again once it is there again."""
    body = OPENAI_CHAT.encode_request(ModelRequest([Message.user("How is it?")], tools), model="m", stream=True)

    async def run() -> None:
        config = tmp_path / "gateway.toml"
        async with upstream("a", 25) as a, upstream("b", 25) as b:
            config.write_text(
                f"""
                [server]
                aside_seconds = 0.05
                [[model]]
                name = "m"
                dialect = "hermes"
                upstreams = ["http://127.0.0.1:{a.port}/v1", "http://127.0.0.1:{b.port}/v1"]
                """
            )
            async with running_process("--config", str(config)) as process, process.client() as client:
                streams = Streams(client, [body] * 100)
                await a.has_had(50)
                await b.has_had(50)
                await streams.until(lambda texts: sum("one, " in text for text in texts) == 50)
                await a.kill()
                await b.has_had(75)
                await b.release()
                answers = await streams.read_to_end()
                assert streams.statuses == [200] * 100
                whole = [text for text in answers if text.endswith("data: [DONE]\n\n")]
                assert len(whole) == 75
                assert all("b: one, " in text and "two." in text and "error" not in text for text in whole)
                cut_answers = [text for text in answers if text not in whole]
                assert len(cut_answers) == 25
                for text in cut_answers:
                    assert "a: one, " in text
                    assert events(text)[-1]["error"]["code"] == "upstream_connection"
                async with upstream("c", 0, port=a.port) as c:
                    await c.release()
                    stream_text = ""
                    while "c: one, " not in stream_text:
                        stream_text = (await client.post(CHAT, json=body)).text
                        assert stream_text.endswith("data: [DONE]\n\n")
                await process.log_lines("upstream_back", upstream=f"127.0.0.1:{a.port}")

    asyncio.run(run())


@pytest.mark.over_a_second
def test_an_upstream_that_is_put_aside_stays_so_when_another_model_is_configured(tmp_path: Path):
    body = OPENAI_CHAT.encode_request(ModelRequest([Message.user("How is it?")]), model="m", stream=True)

    async def run() -> None:
        config = tmp_path / "gateway.toml"
        async with upstream("b", 0) as b:
            await b.release()
            url, dead = f"http://127.0.0.1:{b.port}/v1", "http://127.0.0.1:9/v1"
            rows = f'[server]\naside_seconds = 3600\n[[model]]\nname = "m"\nupstreams = ["{dead}", "{url}"]\n'
            config.write_text(rows)

            async def state() -> str:
                lines = (await client.get("/metrics")).text.splitlines()
                name = 'toolspeak_upstream_up{model="m",upstream="127.0.0.1:9"} '
                return next(line for line in lines if line.startswith(name)).removeprefix(name)

            async with running_process("--config", str(config)) as process, process.client() as client:
                assert await state() == "1.0"
                while await state() == "1.0":
                    assert "b: one, " in (await client.post(CHAT, json=body)).text
                config.write_text(f'{rows}[[model]]\nname = "n"\nupstream = "{url}"\n')
                await process.log_lines("reloaded", why="file")
                assert await state() == "0.0"
                config.write_text(rows.replace("upstreams", "retries = 0\nupstreams"))
                await process.log_lines("reloaded", 2, why="file")
                assert await state() == "1.0"  # it is configured otherwise, which may have mended it

    asyncio.run(run())


@pytest.mark.over_a_second
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_sighup_with_streams_at_several_upstreams_loses_none(workers: int, tmp_path: Path):
    """Also where one of the upstreams is gone from the configuration."""
    body = OPENAI_CHAT.encode_request(ModelRequest([Message.user("How is it?")]), model="m", stream=True)

    async def run() -> None:
        config = tmp_path / "gateway.toml"
        async with upstream("a", 100) as a, upstream("b", 100) as b:
            urls = [f"http://127.0.0.1:{each.port}/v1" for each in (a, b)]
            config.write_text(f'[[model]]\nname = "m"\nupstreams = {urls}\n')
            arguments = ("--config", str(config), "--workers", str(workers))
            async with running_process(*arguments) as process, process.client() as client:
                streams = Streams(client, [body] * 100)
                await streams.until(lambda texts: all("one, " in text for text in texts))
                config.write_text(f'[[model]]\nname = "m"\nupstreams = {urls[1:]}\n')
                os.kill(process.process.pid, signal.SIGHUP)
                await process.log_lines("reloaded", workers, why="signal")
                await a.release()
                await b.release()
                assert all(text.endswith("data: [DONE]\n\n") for text in await streams.read_to_end())
                for _ in range(4):
                    assert "b: one, " in (await client.post(CHAT, json=body)).text

    asyncio.run(run())
