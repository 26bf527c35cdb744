"""A proxy outside of a sandbox: the command inside reaches the hosts of a list through it, and no others."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Self

from toolspeak.sandbox.host_rules import HostRule, address_of, is_public, normal_host

_HEAD_BYTES = 64 * 1024
_CONNECT_SECONDS = 30.0
_MOST_REFUSALS = 10
_MOST_CONNECTIONS = 256
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._:\[\]-]{1,253}")

_SOCKS = 5
_SOCKS_OK, _SOCKS_NOT_ALLOWED, _SOCKS_UNREACHABLE, _SOCKS_NO_SUCH_COMMAND = 0, 2, 4, 7


class _RefusedError(Exception):
    """A host is not to be reached. The message says why, and how to allow it."""


class HostProxy:
    """Speaks HTTP (CONNECT, and requests for whole URLs) and SOCKS 5 on a Unix socket. It resolves names itself, and
    connects only to the addresses that it has checked.

    `refusals`: sentences about the hosts that it refused.
    """

    def __init__(self, rules: Sequence[HostRule], path: str) -> None:
        self._rules = rules
        self.path = path
        self.refusals: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def listening(cls, rules: Sequence[HostRule], folder: str) -> AsyncGenerator[Self]:
        """The proxy, listening on a socket in the folder, which only this user may enter."""
        proxy = cls(rules, os.path.join(folder, os.urandom(8).hex()))
        server = await asyncio.start_unix_server(proxy._accept, proxy.path, limit=_HEAD_BYTES)
        try:
            yield proxy
        finally:
            server.close()
            for task in list(proxy._tasks):
                task.cancel()
            await asyncio.gather(*proxy._tasks, return_exceptions=True)
            with suppress(OSError):
                os.unlink(proxy.path)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= _MOST_CONNECTIONS:
            writer.close()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = await reader.readexactly(1)
            if first[0] == _SOCKS:
                await self._serve_socks(reader, writer)
            else:
                await self._serve_http(first, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, struct.error):
            return  # a client that does not speak the protocol, or that has gone
        finally:
            writer.close()

    async def _serve_http(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request_line, _, headers = head.partition("\r\n")
        method, target, version = request_line.split(" ")
        request = ""
        if method == "CONNECT":
            host, port = _host_and_port(target, 443)
        elif target.lower().startswith("http://"):
            authority, slash, path = target[7:].partition("/")
            host, port = _host_and_port(authority, 80)
            lines = [line for line in headers.split("\r\n") if line and not line.lower().startswith(_OF_THE_HOP)]
            request = "\r\n".join([f"{method} {slash or '/'}{path} {version}", *lines, "Connection: close", "", ""])
        else:
            writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            return
        try:
            upstream = await self._connect(host, port)
        except _RefusedError as error:
            text = f"{error}\n".encode()
            length = f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text)}\r\n"
            writer.write(f"HTTP/1.1 403 Forbidden\r\n{length}Connection: close\r\n\r\n".encode() + text)
            await writer.drain()
            return
        except (OSError, TimeoutError):
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            return
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            upstream[1].write(request.encode("latin-1"))
        await _join(reader, writer, *upstream)

    async def _serve_socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (count,) = await reader.readexactly(1)
        methods = await reader.readexactly(count)
        writer.write(bytes((_SOCKS, 0 if 0 in methods else 0xFF)))
        if 0 not in methods:
            return
        _, command, _, kind = await reader.readexactly(4)
        if kind == 1:
            host = socket.inet_ntop(socket.AF_INET, await reader.readexactly(4))
        elif kind == 4:
            host = socket.inet_ntop(socket.AF_INET6, await reader.readexactly(16))
        else:
            (length,) = await reader.readexactly(1)
            host = (await reader.readexactly(length)).decode("ascii")
        (port,) = struct.unpack("!H", await reader.readexactly(2))
        upstream = None
        if command != 1:  # UDP, or to listen
            status = _SOCKS_NO_SUCH_COMMAND
        else:
            try:
                upstream, status = await self._connect(host, port), _SOCKS_OK
            except _RefusedError:
                status = _SOCKS_NOT_ALLOWED
            except (OSError, TimeoutError):
                status = _SOCKS_UNREACHABLE
        writer.write(struct.pack("!BBBBIH", _SOCKS, status, 0, 1, 0, 0))
        await writer.drain()
        if upstream is not None:
            await _join(reader, writer, *upstream)

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a host of the list. Raises _RefusedError, OSError and TimeoutError."""
        host = normal_host(host)
        rule = HostRule(host, port)
        if not any(each.allows(host, port) for each in self._rules):
            raise self._refusal(rule, f"the host {_text_of(rule)} is not on the list")
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_CONNECT_SECONDS):
            entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
            allowed_addresses = [each for each in addresses if self._may_be_at(host, port, each)]
            if not allowed_addresses:
                private = HostRule(addresses[0] if addresses else host, port)
                raise self._refusal(private, f"{_text_of(rule)} is at the private address {addresses[0]}")
            error: OSError = OSError("no address")
            for address in allowed_addresses:
                try:
                    return await asyncio.open_connection(address, port)
                except OSError as reason:
                    error = reason
            raise error

    def _may_be_at(self, host: str, port: int, address: str) -> bool:
        """Whether a host of the list may have this address. A private one must be on the list itself: a name's owner
        can give it any address."""
        if is_public(address):
            return True
        ip_address = address_of(address)
        is_local = host == "localhost" and ip_address is not None and ip_address.is_loopback
        return is_local or any(each.allows(normal_host(address), port) for each in self._rules)

    def _refusal(self, rule: HostRule, reason: str) -> _RefusedError:
        sentence = f"The network refused a connection: {reason}. `--allow-net {_text_of(rule)}` allows it."
        if sentence not in self.refusals and len(self.refusals) < _MOST_REFUSALS:
            self.refusals.append(sentence)
        return _RefusedError(sentence)


_OF_THE_HOP = ("proxy-", "connection:", "keep-alive:")


def _text_of(rule: HostRule) -> str:
    """The host as the command wrote it, which may be any text."""
    return str(rule) if _PLAIN_NAME.fullmatch(rule.host) else f"{rule.host[:60]!r}:{rule.port}"


def _host_and_port(authority: str, otherwise: int) -> tuple[str, int]:
    """Raises ValueError."""
    host, separator, port = authority.rpartition("@")[2].rpartition(":")
    if not separator or port.endswith("]"):
        host, port = authority, str(otherwise)
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"no host: {authority}")
    with suppress(ValueError):
        return str(ipaddress.ip_address(host)), int(port)
    return host, int(port)


async def _join(
    client: asyncio.StreamReader,
    to_client: asyncio.StreamWriter,
    server: asyncio.StreamReader,
    to_server: asyncio.StreamWriter,
) -> None:
    """Passes bytes in both directions until both have ended."""
    try:
        await asyncio.gather(_copy(client, to_server), _copy(server, to_client))
    finally:
        to_server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
