"""A network between a process and PostgreSQL that can be cut."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path


class Network:
    """A host's way to the database: a socket in a folder of its own, whose bytes it passes on to the server's."""

    def __init__(self, journal: str, folder: Path) -> None:
        self._server_socket = f"{journal.partition('host=')[2].partition('&')[0]}/.s.PGSQL.5432"
        folder.mkdir(mode=0o755)
        self._socket = str(folder / ".s.PGSQL.5432")
        self.journal = journal.partition("host=")[0] + f"host={folder}"
        self._flows = asyncio.Event()
        self._flows.set()
        self._refuses = False
        self._ends: set[asyncio.StreamWriter] = set()

    async def serve(self) -> asyncio.AbstractServer:
        return await asyncio.start_unix_server(self._connect, self._socket)

    async def cut(self, seconds: float, *, silent: bool) -> None:
        """Lets nothing through. `silent`: nothing is lost either, as in a cut that TCP survives; else connections break
        and new ones are refused."""
        if silent:
            self._flows.clear()
        else:
            self._refuses = True
            self.end()
        await asyncio.sleep(seconds)
        self._refuses = False
        self._flows.set()

    def end(self) -> None:
        """Breaks every connection."""
        self._flows.set()
        for end in list(self._ends):
            end.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        try:
            await self._flows.wait()
            to_reader, to_writer = await asyncio.open_unix_connection(self._server_socket)
        except OSError:  # the server is being restarted
            writer.transport.abort()
            return
        self._ends |= {writer, to_writer}
        try:
            await asyncio.gather(self._pass(reader, to_writer), self._pass(to_reader, writer))
        finally:
            self._ends -= {writer, to_writer}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        with suppress(OSError):
            writer.close()
            await writer.wait_closed()
