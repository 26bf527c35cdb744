"""Which hosts a rule allows, and which addresses a name on the list may have."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from toolspeak.errors import ConfigurationError
from toolspeak.sandbox.host_proxy import HostProxy
from toolspeak.sandbox.host_rules import HostRule, is_public, normal_host


@pytest.mark.parametrize(
    ("rule", "host", "port", "allows"),
    [
        ("api.example.com:443", "api.example.com", 443, True),
        ("api.example.com", "API.example.com.", 443, True),
        ("api.example.com:443", "api.example.com", 80, False),
        ("api.example.com:443", "xapi.example.com", 443, False),
        ("api.example.com:443", "api.example.com.evil.org", 443, False),
        ("*.example.com:443", "a.b.example.com", 443, True),
        ("*.example.com:443", "example.com", 443, False),
        ("*.example.com:443", "evilexample.com", 443, False),
        ("bücher.example:443", "xn--bcher-kva.example", 443, True),
        ("127.0.0.1:80", "127.0.0.1", 80, True),
        ("[::1]:80", "0:0:0:0:0:0:0:1", 80, True),
        ("[2001:DB8::1]:443", "2001:db8::1", 443, True),
    ],
)
def test_a_rule_allows_the_host_that_it_names(rule: str, host: str, port: int, allows: bool):
    host_rule = HostRule.parse(rule)
    assert host_rule.allows(normal_host(host), port) == allows
    assert HostRule.parse(str(host_rule)) == host_rule


@pytest.mark.parametrize(
    "text", ["", ":443", "a:b:c", "a.example:65536", "a b", "*", "*.", "[::1", "a/b", "-a.example"]
)
def test_what_is_no_host_is_refused(text: str):
    with pytest.raises(ConfigurationError):
        HostRule.parse(text)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),  # a cloud's metadata service
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
    ],
)
def test_private_addresses_are_known_in_all_their_forms(address: str, public: bool):
    assert is_public(address) == public


async def talk(rules: list[str], folder: Path, request: bytes) -> tuple[bytes, list[str]]:
    """What the proxy answers, until it closes the connection."""
    async with HostProxy.listening([HostRule.parse(rule) for rule in rules], str(folder)) as proxy:
        reader, writer = await asyncio.open_unix_connection(proxy.path)
        writer.write(request)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer, proxy.refusals


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"CONNECT localhost.example:80 HTTP/1.1\r\n\r\n",
        b"GET http://user@evil.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"GET http://a.example:80@evil.example/ HTTP/1.1\r\n\r\n",
        b"CONNECT \x1b[31mevil:443 HTTP/1.1\r\n\r\n",
    ],
)
def test_other_hosts_are_refused_however_they_are_written(request_bytes: bytes, tmp_path: Path):
    answer, refusals = asyncio.run(talk(["a.example:80"], tmp_path, request_bytes))
    assert b"403" in answer.split(b"\r\n")[0]
    assert len(refusals) == 1
    assert refusals[0].isprintable()


@pytest.mark.parametrize(
    "request_bytes",
    [b"",
     b"\r\n\r\n", b"nonsense\r\n\r\n", b"CONNECT a:0 HTTP/1.1\r\n\r\n", b"\x05", b"\x05\x01\x02",
     b"GET /x HTTP/1.1\r\n\r\n",
     b"CONNECT " + b"a" * 100_000, b"\x05\x01\x00\x05\x01\x00\x03\x03\xff\xff\xff\x00\x50"],
)  # fmt: skip
def test_what_is_no_request_ends_the_connection_and_reaches_nobody(request_bytes: bytes, tmp_path: Path):
    answer, refusals = asyncio.run(talk(["a.example:80"], tmp_path, request_bytes))
    assert b"200" not in answer
    assert refusals == []


def test_socks_reaches_what_the_list_has_and_nothing_else(tmp_path: Path):
    async def main() -> tuple[bytes, bytes, list[str]]:
        async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"hello")
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        head = b"\x05\x01\x00\x05\x01\x00\x01" + socket.inet_aton("127.0.0.1") + port.to_bytes(2, "big")
        (tmp_path / "one").mkdir()
        (tmp_path / "two").mkdir()
        open_bytes, _ = await talk([f"127.0.0.1:{port}"], tmp_path / "one", head)
        refused_bytes, refusals = await talk(["a.example:80"], tmp_path / "two", head)
        server.close()
        return open_bytes, refused_bytes, refusals

    open_bytes, refused_bytes, refusals = asyncio.run(main())
    assert open_bytes[:4] == b"\x05\x00\x05\x00"
    assert open_bytes.endswith(b"hello")
    assert refused_bytes[:4] == b"\x05\x00\x05\x02"
    assert "allows it" in refusals[0]


def test_a_name_on_the_list_that_leads_to_this_machine_is_refused(tmp_path: Path):
    name = socket.gethostname()
    if not name or not any(not is_public(str(entry[4][0])) for entry in _addresses(name)):
        pytest.skip("this machine's name has no private address")
    answer, refusals = asyncio.run(talk([f"{name}:80"], tmp_path, f"CONNECT {name}:80 HTTP/1.1\r\n\r\n".encode()))
    assert b"403" in answer
    assert "private address" in refusals[0]


def _addresses(name: str) -> list:
    try:
        return socket.getaddrinfo(name, 80)
    except OSError:
        return []
