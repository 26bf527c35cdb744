"""Everything at once, on every engine: four workers on two hosts are killed, the hosts' network to the database is cut,
and servers are restarted, while runs come. Nothing is lost, nothing happens twice, and each caller gets its answer.

`make test-engines KILLS=500` is the long one. SWEEP_SECONDS ends it earlier.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import time
from pathlib import Path

import pytest
from database_network import Network
from engine_servers import EngineServer
from engines_runs import KILLS, a_call, calling, takeovers, workers
from worker_processes import Workers

__all__ = ["workers"]
SECONDS = float(os.environ.get("SWEEP_SECONDS", "inf"))
HOSTS = ("host-a", "host-b")
JOURNAL = 3  # its place among the arguments of a worker


def test_a_sweep_of_all_faults_loses_and_repeats_nothing(server: EngineServer, workers: Workers, tmp_path: Path):
    if subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this process may not make a namespace (unshare --uts)")
    dice, deaths, restarts = random.Random(11), dict[int, float](), list[float]()
    counts = {"killed": 0, "cuts": 0, "restarts": 0}

    async def act() -> None:
        networks = {host: Network(server.journal, tmp_path / host) for host in HOSTS}
        serving = [await network.serve() for network in networks.values()]
        host_of: dict[int, str] = {}
        cutting: asyncio.Task[None] | None = None

        async def start(host: str) -> None:
            workers.prefix[:] = ["unshare", "--uts", "sh", "-c", f'hostname {host} && exec "$@"', "sh"]
            workers.arguments[JOURNAL] = networks[host].journal
            host_of[await asyncio.to_thread(workers.start)] = host

        async with calling(server) as caller:
            for host in HOSTS * 2:
                await start(host)
            end = time.monotonic() + SECONDS
            while counts["killed"] < KILLS and time.monotonic() < end:
                await caller.submit(3)
                if cutting is None or cutting.done():
                    await a_call(workers)
                await asyncio.sleep(dice.uniform(0, 0.3))
                chance = dice.random()
                if chance < 0.12 and (cutting is None or cutting.done()):
                    counts["cuts"] += 1
                    seconds = dice.choice((1.0, 4.0, 10.0))
                    network = networks[dice.choice(HOSTS)]
                    cutting = asyncio.create_task(network.cut(seconds, silent=dice.random() < 0.5))
                elif chance < 0.2:
                    counts["restarts"] += 1
                    restarts.append(time.time())
                    await asyncio.to_thread(dice.choice(server.restarts))
                    restarts.append(time.time())
                else:
                    counts["killed"] += 1
                    pid = dice.choice(sorted(workers.processes))
                    deaths[pid] = time.time()
                    await asyncio.to_thread(workers.kill, pid)
                    if cutting is not None:
                        await cutting  # a worker that starts needs its database
                    await start(host_of.pop(pid))
                if len(caller.answers) > 60:
                    await caller.wait_for_answers()
            if cutting is not None:
                await cutting
            await caller.wait_for_answers()
            caller.check_effects(tmp_path)
            workers.read_all()
            gaps = sorted(takeovers(workers, deaths, restarts))
            print(
                f"\n{server.name}: {counts['killed']} workers killed, {counts['cuts']} cuts of a host's network,"
                f" {counts['restarts']} restarts of servers: {caller.runs} runs, all answered,"
                f" no call lost, none twice."
                f" {len(gaps)} runs were taken over, the median after {gaps[len(gaps) // 2] if gaps else 0:.2f} s"
            )
            await asyncio.to_thread(workers.end)
        for each in serving:
            each.close()

    asyncio.run(act())
