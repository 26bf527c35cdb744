"""Two hosts with a network between them and the servers: network namespaces, each with a name of its own.

PostgreSQL listens on the network's own address, and forwarders there lead to Restate's server. A host whose link is
down says nothing more, and closes no connection. The names hold the process's id, so that a later process removes what
one left behind that was killed.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

NETWORKS = "10.213"
CONNECT_SECONDS = 0.2

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect: TypeAlias = Callable[[], Awaitable[Streams]]


class Host:
    """A namespace. `command` goes before a program's own; `address` is where others reach it, and `servers` where it
    reaches the servers."""

    def __init__(self, network: str, number: int) -> None:
        self._name, self._link = f"toolspeak-{os.getpid()}-{number}", f"ts{os.getpid()}-{number}"
        self.address, self.servers = f"{network}.{number + 1}", f"{network}.1"
        name = ["unshare", "--uts", "sh", "-c", f'hostname {self._name} && exec "$@"', "sh"]
        self.command = ["ip", "netns", "exec", self._name, *name]

    def make(self, bridge: str) -> None:
        ip("netns", "add", self._name)
        ip("link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self._name)
        ip("link", "set", self._link, "master", bridge, "up")
        for arguments in (["addr", "add", f"{self.address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
            ip("-n", self._name, *arguments)
        ip("-n", self._name, "link", "set", "lo", "up")

    def remove(self) -> None:
        with suppress(subprocess.CalledProcessError):
            ip("netns", "del", self._name)  # its link goes with it

    def cut_off(self) -> None:
        ip("link", "set", self._link, "down")

    def reconnect(self) -> None:
        ip("link", "set", self._link, "up")


def ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def remove_those_left_behind() -> None:
    """Removes the hosts and the bridges of processes that have ended."""
    for kind, listing in (("netns", ip("netns", "list")), ("link", ip("-o", "link", "show", "type", "bridge"))):
        for name, pid in re.findall(r"\b((?:toolspeak-|ts)(\d+)(?:-\d+)?)\b", listing):
            if not Path(f"/proc/{pid}").exists():
                with suppress(subprocess.CalledProcessError):  # another process was faster
                    ip(kind, "del", name)


def free_network() -> str:
    """The first three numbers of a network that no interface of this machine has."""
    busy = set(re.findall(rf"inet {re.escape(NETWORKS)}\.(\d+)\.", ip("-4", "-o", "addr")))
    number = next(each for each in range(1, 255) if str(each) not in busy)
    return f"{NETWORKS}.{number}"


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Raises OSError or CalledProcessError where namespaces cannot be had."""
    remove_those_left_behind()
    bridge, network = f"ts{os.getpid()}", free_network()
    hosts = Host(network, 1), Host(network, 2)
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("addr", "add", f"{network}.1/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for host in hosts:
            host.make(bridge)
        yield hosts
    finally:
        for host in hosts:
            host.remove()
        with suppress(subprocess.CalledProcessError, OSError):
            ip("link", "del", bridge)


class Forwarders:
    """TCP servers in a thread, each of which passes its connections on to the first of its targets that answers."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def to(self, address: str, *targets: Connect) -> int:
        """Starts one at an address. Returns its port."""
        return asyncio.run_coroutine_threadsafe(self._start(address, targets), self._loop).result()

    async def _start(self, address: str, targets: Sequence[Connect]) -> int:
        turns = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal turns
            turns += 1
            for number in range(len(targets)):
                with suppress(OSError):
                    async with asyncio.timeout(CONNECT_SECONDS):
                        other = await targets[(turns + number) % len(targets)]()
                    await asyncio.gather(pass_on(reader, other[1]), pass_on(other[0], writer))
                    return
            writer.close()

        server = await asyncio.start_server(serve, address, 0)
        self._servers.append(server)
        return server.sockets[0].getsockname()[1]

    def close(self) -> None:
        async def end() -> None:
            for server in self._servers:
                server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


def tcp(address: str, port: int) -> Connect:
    return lambda: asyncio.open_connection(address, port)
