"""What `fetch` reaches: public addresses alone, whatever a URL, a redirect or a name's owner says."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from loopback_server import serve
from web_calls import access_to, call_tool, fetch_page, page, redirect, resolving

from sweeps import case
from toolspeak import Limits
from toolspeak.tools.web import WebAccess, fetch_tool

TLS = Path(__file__).parents[2] / "providers" / "tls"


URLS = [
    ("http://user:word@example.com/", "user name or a password"),
    ("http://example.com@127.0.0.1/", "user name or a password"),
    ("http://@127.0.0.1/", "user name or a password"),
    ("http://127.1/", "unusual form"),
    ("http://0x7f.1/", "unusual form"),
    ("http://0x7f000001/", "unusual form"),
    ("http://2130706433/", "unusual form"),
    ("http://0177.0.0.1/", "cannot be read"),
    ("http://127.0.0.1.:80@1/", "user name or a password"),
    ("http://127.0.1/", "unusual form"),
    ("http://1.2.3.4.5/", "unusual form"),
    ("http://example.0x7f/", "unusual form"),
    ("http://１２７.0.0.1/", "cannot be read"),
    ("http://ⓛocalhost/", "cannot be read"),
    ("http://[fe80::1%25eth0]/", "no host"),
    ("http://exa%6dple.com/", "no host"),
    ("http://example.com\\@127.0.0.1/", "backslash"),
    ("http://example.com /", "a space"),
    ("http://example.com/\x00", "a control character"),
    ("http:///etc/passwd", "no host"),
    ("http://example.com:0/", "ports are 1 to 65535"),
    ("http://example.com:65536/", "ports are 1 to 65535"),
    ("file:///etc/passwd", "http:// or https://"),
    ("ftp://example.com/", "http:// or https://"),
    ("gopher://127.0.0.1:70/", "http:// or https://"),
    ("javascript:alert(1)", "http:// or https://"),
    ("//example.com/", "http:// or https://"),
    ("example.com", "http:// or https://"),
    (f"http://example.com/{'a' * 2_000}", "at most 2,000"),
    ("http://" + "a" * 64 + ".com/", "no host"),
    ("", "http:// or https://"),
]
"""URLs that are not fetch_page, and why."""


def test_a_url_that_is_not_fetched():
    resolver, hosts = resolving(["93.184.216.34"])
    tool = fetch_tool(WebAccess(resolver=resolver))
    results = asyncio.run(call_tool(tool, *({"url": url} for url, _ in URLS), limits=Limits(failures=None)))
    assert len(results) == len(URLS)
    for (url, problem), result in zip(URLS, results, strict=True):
        with case(url):
            assert (result.status, result.code) == ("failure", "invalid_arguments")
            assert problem in result.text
    assert hosts == []


INNER_ADDRESSES = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("169.254.169.254", "100.64.0.1", "100.127.255.255", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1"),
    *("203.0.113.1", "192.88.99.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:93.184.216.34", "64:ff9b::7f00:1", "64:ff9b::5db8:d822"),
    *("64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::1", "3fff::1", "fc00::1", "fd12::1"),
    *("fe80::1", "fe80::1%lo", "fec0::1", "ff02::1", "ff0e::1", "5f00::1", "not an address"),
]


def test_an_address_that_is_not_public():
    """Alone, or beside a public one."""
    for address in INNER_ADDRESSES:
        answers = [[address], ["93.184.216.34", address], ["2606:2800:220:1::1", address]]
        resolver, hosts = resolving(*answers)
        url = {"url": "http://rebind.example/"}
        with case(address):
            results = asyncio.run(call_tool(fetch_tool(WebAccess(resolver=resolver)), url, url, url))
            assert all("which is not a public address" in result.text for result in results)
            assert "`--web-allow rebind.example:80`" in results[0].text
            assert hosts == ["rebind.example"] * 3


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:1]", "localhost"]
)
def test_this_machine_is_not_reached(host: str):
    async def run() -> None:
        async with serve(page("secret")) as server:
            result = await fetch_page(f"http://{host}:{server.port}/", WebAccess())
            assert "which is not a public address" in result.text
            assert server.connections == 0

    asyncio.run(run())


@pytest.mark.parametrize("port", [1, 22, 25, 110, 631, 6000, 6667, 10080])
def test_a_port_of_other_services(port: int):
    resolver, hosts = resolving(["93.184.216.34"])
    result = asyncio.run(fetch_page(f"http://example.com:{port}/", WebAccess(resolver=resolver)))
    assert f"the port {port} is not one of web servers" in result.text
    assert hosts == []


def test_the_connection_goes_to_the_address_that_was_checked():
    """The name's owner gives it another address a moment later."""

    async def run() -> None:
        async with serve(page("the page")) as server, serve(page("secret")) as inner_server:
            resolver, hosts = resolving(["127.0.0.1"], ["127.0.0.2"])
            access = WebAccess(allow=(f"rebind.example:{server.port}",), resolver=resolver)
            result = await fetch_page(f"http://rebind.example:{server.port}/", access)
            assert result.text.endswith("the page")
            assert hosts == ["rebind.example"]
            assert server.exchanges[0].headers["host"] == f"rebind.example:{server.port}"
            assert inner_server.connections == 0

    asyncio.run(run())


def test_each_request_is_checked_anew():
    """The second call, and the request after a redirect: the name is at a private address by then."""

    async def run() -> None:
        async with serve(redirect("/next"), page("secret")) as server:
            url = f"http://rebind.example:{server.port}/"
            resolver, hosts = resolving(["127.0.0.1"], ["127.0.0.2"])
            access = WebAccess(allow=(f"rebind.example:{server.port}",), resolver=resolver)
            await fetch_page(url, access)
            assert hosts == ["rebind.example", "rebind.example"]
            assert len(server.exchanges) == 1, "the second address was taken, where nobody answers"
            resolver, hosts = resolving(["127.0.0.1"])
            results = await call_tool(fetch_tool(WebAccess(resolver=resolver)), {"url": url}, {"url": url})
            assert all("which is not a public address" in result.text for result in results)
            assert len(hosts) == 2

    asyncio.run(run())


@pytest.mark.parametrize(
    "inner", ["http://127.0.0.1:{port}/", "//127.0.0.1:{port}/", "http://[::ffff:127.0.0.1]:{port}/x"]
)
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See", "307 Temporary", "308 Permanent"])
def test_a_redirect_to_a_private_address(inner: str, status: str):
    async def run() -> None:
        async with (
            serve(page("secret")) as inner_server,
            serve(redirect(inner.format(port=inner_server.port), status)) as server,
        ):
            result = await fetch_page(f"http://127.0.0.1:{server.port}/", access_to(server))
            assert result.status == "failure"
            assert "which is not a public address" in result.text
            assert inner_server.connections == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    "place", ["file:///etc/passwd", "http://u:p@example.com/", "http://127.1/", "ftp://a.com/", "http://[/"]
)
def test_a_redirect_to_what_is_no_page(place: str):
    async def run() -> None:
        async with serve(redirect(place)) as server:
            result = await fetch_page(f"http://127.0.0.1:{server.port}/", access_to(server))
            assert "redirects to where nothing can be fetched" in result.text

    asyncio.run(run())


def test_redirects_on_the_same_host_are_followed():
    async def run() -> None:
        async with serve(redirect("next?a=1#part"), redirect("/last"), page("here")) as server:
            result = await fetch_page(f"http://127.0.0.1:{server.port}/a/b", access_to(server))
            assert result.text.endswith("here")
            assert f"URL: http://127.0.0.1:{server.port}/last\n" in result.text
            lines = [exchange.request_line for exchange in server.exchanges]
            assert lines == ["GET /a/b HTTP/1.1", "GET /a/next?a=1 HTTP/1.1", "GET /last HTTP/1.1"]

    asyncio.run(run())


def test_a_circle_of_redirects_ends():
    async def run() -> None:
        async with serve(redirect("/again")) as server:
            result = await fetch_page(f"http://127.0.0.1:{server.port}/", access_to(server, most_redirects=3))
            assert "redirects more than 3 times" in result.text
            assert len(server.exchanges) == 4

    asyncio.run(run())


def test_a_redirect_to_another_host_is_named_and_not_followed():
    """An approval holds for a host."""

    async def run() -> None:
        async with serve(page("other")) as other, serve(redirect(f"http://127.0.0.1:{other.port}/b")) as server:
            result = await fetch_page(f"http://127.0.0.1:{server.port}/", access_to(server, other))
            assert result.status == "success"
            assert f"fetch http://127.0.0.1:{other.port}/b to follow it" in result.text
            assert other.connections == 0

    asyncio.run(run())


def context_of_server(names: list[str | None]) -> ssl.SSLContext:
    """TLS with a certificate for models.example, which notes the names that clients ask for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem")
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    return context


def test_the_name_in_tls_is_the_hosts_and_not_the_address(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "ca.pem"))
    names: list[str | None] = []

    async def run(host: str) -> str:
        async with serve(page("over TLS"), tls=context_of_server(names)) as server:
            resolver, _ = resolving(["127.0.0.1"])
            access = access_to(server, host=host, resolver=resolver)
            return (await fetch_page(f"https://{host}:{server.port}/", access)).text

    assert asyncio.run(run("models.example")).endswith("over TLS")
    assert "certificate" in asyncio.run(run("other.example"))
    assert names == ["models.example", "other.example"]


def test_a_redirect_out_of_tls_is_not_followed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "ca.pem"))

    async def run() -> None:
        async with serve(page("plain")) as plain:
            plain_url = f"http://models.example:{plain.port}/"
            async with serve(redirect(plain_url), tls=context_of_server([])) as server:
                resolver, _ = resolving(["127.0.0.1"])
                access = access_to(server, plain, host="models.example", resolver=resolver)
                result = await fetch_page(f"https://models.example:{server.port}/", access)
                assert f"fetch {plain_url} to follow it" in result.text
                assert plain.connections == 0

    asyncio.run(run())


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch):
    """A proxy would resolve the host a second time."""

    async def run() -> None:
        async with serve(page("of the proxy")) as proxy, serve(page("of the server")) as server:
            for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            resolver, _ = resolving(["127.0.0.1"])
            result = await fetch_page(
                f"http://a.example:{server.port}/", access_to(server, host="a.example", resolver=resolver)
            )
            assert result.text.endswith("of the server")
            assert proxy.connections == 0

    asyncio.run(run())


def test_a_host_that_is_not_found_and_one_that_does_not_answer():
    async def nowhere(host: str, port: int) -> list[str]:
        raise OSError("no such host")

    result = asyncio.run(fetch_page("http://missing.example/", WebAccess(resolver=nowhere)))
    assert "the host missing.example was not found (no such host)" in result.text

    async def run() -> str:
        async with serve(page("")) as server:
            access = access_to(server)
        return (await fetch_page(f"http://{access.allow[0]}/", access)).text

    assert "could not be fetched" in asyncio.run(run())
