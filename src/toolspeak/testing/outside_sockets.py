"""Sockets outside of a sandbox, which note what gets out to them."""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Self

_END = b"the end of what came"
_SECONDS = 5.0
"""How long a client may say nothing."""


class OutsideSockets:
    """Listens on TCP, UDP, and sockets in files and (on Linux) in the abstract namespace. Who connects is greeted.

    - `tcp`, `udp`: the ports, at 127.0.0.1.
    - `stream`, `datagram`: the sockets in files, in `folder`.
    - `abstract`: the name in the abstract namespace, without the zero byte before it.
    """

    def __init__(self, folder: Path) -> None:
        self.stream, self.datagram = folder / "stream", folder / "datagram"
        self.abstract = f"toolspeak-{os.urandom(8).hex()}"
        self._came: list[bytes] = []
        self._ends: SimpleQueue[socket.socket] = SimpleQueue()
        self._sockets: list[socket.socket] = []
        self.tcp: int = self._open(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))[1]
        self.udp: int = self._open(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))[1]
        self._open(socket.AF_UNIX, socket.SOCK_STREAM, str(self.stream))
        self._open(socket.AF_UNIX, socket.SOCK_DGRAM, str(self.datagram))
        if sys.platform == "linux":
            self._open(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self.abstract}")

    def _open(self, family: int, kind: int, address: tuple[str, int] | str) -> tuple[str, int]:
        listener = socket.socket(family, kind)
        listener.bind(address)
        if kind == socket.SOCK_STREAM:
            listener.listen()
        self._sockets.append(listener)
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()
        return listener.getsockname()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for listener in self._sockets:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def arrivals(self) -> list[bytes]:
        """What came until now: the first bytes of each client, or that one connected."""
        for listener in self._sockets:  # each thread takes what comes in order
            with socket.socket(listener.family, listener.type) as last:
                last.connect(listener.getsockname())
                last.send(_END)
            self._ends.get(timeout=30)
        return self._came

    def _serve(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                data = b"a connection"
                if listener.type == socket.SOCK_DGRAM:
                    data = listener.recv(100)
                    if not data:
                        return  # it is shut down
                else:
                    client, _ = listener.accept()
                    client.settimeout(_SECONDS)
                    with client:
                        with suppress(OSError):  # who has sent and gone
                            client.sendall(b"hello")
                        with suppress(OSError):
                            data = client.recv(100) or data
                if data == _END:
                    self._ends.put(listener)
                else:
                    self._came.append(data)
