"""Measures how long `GET /healthz` takes while the gateway reads large requests, two of a kind at a time.

    python benchmarks/gateway_bodies.py

Sends two copies of each body at once to `toolspeak serve`, whose upstream does not answer. One run has the bounds of
`gateway.config.Bounds`. The other (`no bounds`) has bounds that no request reaches. The target with bounds is a 99th
percentile under 250 ms. `peak` is the peak memory of the gateway's process so far.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2

TARGET_MS = 250.0
MANY = 1_000_000_000
BETWEEN_SECONDS = 0.02  # between two health checks


def messages(count: int) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}] * count}).encode()


def tools(count: int) -> bytes:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    definitions = [{"type": "function", "function": {"name": f"t{i}", "parameters": schema}} for i in range(count)]
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": definitions}).encode()


BODIES = {
    "arrays": b'{"model":"m","messages":[' + b"[]," * 5_000_000 + b"[]]}",
    "700,000 messages": messages(700_000),
    "9,000 messages": messages(9_000),
    "10,000 tools": tools(10_000),
    "strings": json.dumps({"model": "m", "messages": ["a"] * 6_000_000}).encode(),
}


@contextlib.contextmanager
def gateway(**bounds: int) -> Generator[tuple[int, str]]:
    """Returns a gateway's process and address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "gateway.toml"
        server = "".join(f"{name} = {value}\n" for name, value in bounds.items())
        upstream = '[[model]]\nname = "m"\nupstream = "http://127.0.0.1:9/v1"\ndialect = "hermes"\nretries = 0\n'
        config.write_text(f"[server]\nport = {port}\n{server}{upstream}")
        command = [sys.executable, "-m", "toolspeak", "serve", "--config", str(config)]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                yield process.pid, f"http://127.0.0.1:{port}"
            finally:
                process.terminate()
                process.wait()


async def measure(pid: int, address: str, body: bytes) -> tuple[list[int], float, list[float], int]:
    """Returns statuses, seconds, milliseconds of each health check, and MiB."""
    waits: list[float] = []
    async with httpx2.AsyncClient(base_url=address, timeout=600, trust_env=False) as client:
        asking = True

        async def watch() -> None:
            while asking:
                start = time.perf_counter()
                await client.get("/healthz")
                waits.append((time.perf_counter() - start) * 1000)
                await asyncio.sleep(BETWEEN_SECONDS)

        watching = asyncio.create_task(watch())
        start = time.perf_counter()
        head = {"content-type": "application/json"}
        posts = (client.post("/v1/chat/completions", content=body, headers=head) for _ in range(2))
        statuses = [answer.status_code for answer in await asyncio.gather(*posts)]
        seconds = time.perf_counter() - start
        asking = False
        await watching
    return statuses, seconds, sorted(waits), peak_of(pid)


def peak_of(pid: int) -> int:
    """MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024


async def ready(address: str) -> None:
    async with httpx2.AsyncClient(base_url=address, timeout=30, trust_env=False) as client:
        for _ in range(200):
            with contextlib.suppress(httpx2.HTTPError):
                await client.get("/healthz")
                break
            await asyncio.sleep(0.1)
        await client.post("/v1/chat/completions", json={"model": "m", "messages": [{"role": "user", "content": "x"}]})


async def main() -> int:
    misses_target = False
    far: dict[str, Any] = dict.fromkeys(("json_values", "messages", "tool_definitions"), MANY)
    for title, bounds in (("bounds", {}), ("no bounds", far)):
        with gateway(**bounds) as (pid, address):
            await ready(address)
            for name, body in BODIES.items():
                statuses, seconds, waits, peak = await measure(pid, address, body)
                p99 = waits[int(len(waits) * 0.99)]
                misses_target = misses_target or (not bounds and p99 > TARGET_MS)
                print(
                    f"{title:10} {name:17} {len(body) / 1e6:5.1f} MB  {statuses}  {seconds:6.2f} s  healthz p50 "
                    f"{waits[len(waits) // 2]:6.1f} ms  p99 {p99:7.1f} ms  peak {peak} MiB",
                    flush=True,
                )
    return int(misses_target)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
