"""A host is cut off from the network: another one takes over its runs, and it does no harm when it is back."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from engine_servers import EngineServer, engine_server
from engines_runs import Caller, a_call, calling
from hosts import Forwarders, Host, tcp, two_hosts
from worker_processes import Workers

WORKER_PORT = 9080
KEEP_ALIVE = ("400ms", "800ms")


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    try:
        with two_hosts() as hosts:
            yield hosts
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", None) or error
        pytest.skip(f"this process may not make network namespaces (ip netns): {why!r:.200}")


@pytest.fixture
def forwarders() -> Iterator[Forwarders]:
    forwarders = Forwarders()
    yield forwarders
    forwarders.close()


def urls_of(server: EngineServer, forwarders: Forwarders, hosts: tuple[Host, Host]) -> tuple[str, str]:
    """The URLs of the engine and of the journal on the hosts."""
    bridge = hosts[0].servers
    journal = f"postgresql://tester@{bridge}/postgres"
    if server.name != "restate":
        return server.url, journal
    restate = urlsplit(server.url)
    assert restate.port is not None
    ingress = forwarders.to(bridge, tcp("127.0.0.1", restate.port))
    admin = forwarders.to(bridge, tcp("127.0.0.1", int(parse_qs(restate.query)["admin"][0].rpartition(":")[2])))
    balancer = forwarders.to("127.0.0.1", *(tcp(host.address, WORKER_PORT) for host in hosts))
    engine = f"restate://{bridge}:{ingress}?admin={bridge}:{admin}&listen=0.0.0.0:{WORKER_PORT}"
    return f"{engine}&advertise=http://127.0.0.1:{balancer}", journal


async def a_call_of_a_new_run(caller: Caller, workers: Workers, count: int) -> str:
    """Submits runs, and waits for a call of one of them."""
    workers.read_all()
    before = set(caller.answers)
    await caller.submit(count)
    while (run := await a_call(workers)) not in caller.answers.keys() - before:
        pass
    return run


def just_begun(workers: Workers, run: str, pid: int) -> bool:
    """Whether a run is driven by this worker alone and has most of its calls before it."""
    workers.read_all()
    calls = [report.pid for report in workers.reports if report.run == run]
    return calls in ([pid], [pid, pid])


@pytest.mark.parametrize("engine", ["queue", "restate", "dbos"])
def test_a_host_that_is_cut_off_is_replaced_and_does_no_harm(
    engine: str, hosts: tuple[Host, Host], forwarders: Forwarders, tmp_path: Path
):
    """Its call under way may have its effect while another host asks `verify`, so effects are not counted."""
    here, there = hosts

    async def act(server: EngineServer, workers: Workers) -> None:
        async with calling(server) as caller:
            workers.prefix[:] = here.command
            first = await asyncio.to_thread(workers.start)
            workers.prefix[:] = there.command
            second = await asyncio.to_thread(workers.start)
            gaps: list[float] = []
            for _ in range(3):
                count, run = 3, await a_call_of_a_new_run(caller, workers, 3)
                while workers.reports[-1].pid != first:  # also after it was cut off: it is of use again
                    count += 3  # Restate asks for a new worker when all its connections are busy
                    run = await a_call_of_a_new_run(caller, workers, count)
                driven_runs = {run}
                here.cut_off()
                cut = time.time()
                while await a_call(workers, second) not in driven_runs:
                    driven_runs |= {each.run for each in workers.reports if each.pid == first}
                gaps.append(workers.reports[-1].time - cut)
                await caller.wait_for_answers()
                here.reconnect()
            print(
                f"\n{engine}: another host's next call begins {', '.join(f'{gap:.2f}' for gap in gaps)} s after a host"
                " was cut off"
            )

    with engine_server(engine, tmp_path, KEEP_ALIVE, here.servers) as server:
        engine_url, journal_url = urls_of(server, forwarders, hosts)
        workers = Workers("run_program.py", engine_url, journal_url, str(tmp_path), "pay")
        try:
            asyncio.run(act(server, workers))
        finally:
            workers.end()
