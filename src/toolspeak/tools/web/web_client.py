"""Requests to the web: each host is resolved once, its addresses are checked, and the connection goes to one of those.

The URL that is sent has the checked address in the place of the host. `Host` and the name in the TLS handshake are the
host's, and the certificate must be too. So a name that has another address a moment later leads nowhere else.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import httpx2

from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, ToolError
from toolspeak.sandbox.host_rules import HostRule, address_of
from toolspeak.tools.files.text_format import visible
from toolspeak.tools.web.body_decoding import ENCODINGS, Inflater
from toolspeak.tools.web.web_addresses import WebUrl, check_port, host_rules_of, is_internet, parse_url

_CONNECT_SECONDS = 10.0
_MOST_ADDRESSES = 4
_REDIRECTS = frozenset((301, 302, 303, 307, 308))


class Resolver(Protocol):
    """Looks up the addresses of a host. Raises OSError."""

    async def __call__(self, host: str, port: int, /) -> Sequence[str]: ...


async def system_resolver(host: str, port: int) -> Sequence[str]:
    """The addresses of a host, as the system finds them. Raises OSError."""
    entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


@quick()
class WebAccess:
    """What tools may fetch from the web.

    - `allow`: internal hosts, with their ports, that they may reach although their addresses are not public:
      `wiki.corp:8080`. Without a port it is 443. Everything else must be at a public address.
    - `seconds`: the time limit of a call, from the first look-up to the last byte.
    - `most_bytes`: how much of a page is read, compressed and not.
    - `most_redirects`: how many redirects to the same host are followed. None leads to another host.
    - `robots`: whether robots.txt decides what `fetch` may read.
    - `user_agent`: the name in each request.
    - `resolver`: looks up hosts.

    Raises ConfigurationError for a host that cannot be read, and for a limit that is not above 0.
    """

    allow: tuple[str, ...] = ()
    seconds: float = 30.0
    most_bytes: int = 5_000_000
    most_redirects: int = 5
    robots: bool = False
    user_agent: str = "toolspeak"
    resolver: Resolver = system_resolver

    def __post_init__(self) -> None:
        host_rules_of(self.allow)
        for name in ("seconds", "most_bytes"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"WebAccess({name}={getattr(self, name)!r}): expected a number above 0")


USUAL_ACCESS = WebAccess()
"""Public hosts alone, with the usual limits."""


@quick()
class WebAnswer:
    """What a server answered.

    - `url`: of the answer, after redirects.
    - `headers`: with names in lower case.
    - `body`: decompressed, and cut if the server sent more than was asked for.
    - `redirect`: where it redirects to, if that was not followed; None otherwise.
    """

    url: WebUrl
    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    is_cut: bool = False
    redirect: WebUrl | None = None

    @property
    def media_type(self) -> str:
        """The type without parameters, in lower case; "" if the server does not say it."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class WebClient:
    """Sends requests. Each has connections of its own: nothing of one call is there in the next.

    `access`: what may be reached. `also_allow`: further hosts that may be at any address.
    """

    def __init__(self, access: WebAccess, also_allow: Sequence[HostRule] = ()) -> None:
        self.access = access
        self._allowed_hosts = (*host_rules_of(access.allow), *also_allow)

    async def get(self, url: WebUrl, *, headers: Mapping[str, str] | None = None, redirects: bool = True) -> WebAnswer:
        """The answer to a request for the URL. `headers` are sent besides the usual ones. Without `redirects` none is
        followed, on the same host neither.

        Raises ToolError, with what can be done, if the host is not to be reached, does not answer, or answers with
        something that is not HTTP.
        """
        try:
            async with asyncio.timeout(self.access.seconds):
                return await self._follow(url, headers or {}, self.access.most_redirects if redirects else None)
        except TimeoutError:
            raise ToolError(
                f"{url} took more than {self.access.seconds:g} seconds, so reading it was stopped"
            ) from None
        except httpx2.HTTPError as error:
            raise ToolError(f"{url} could not be fetched: {_reason(error)}") from None

    async def _follow(self, url: WebUrl, headers: Mapping[str, str], redirects: int | None) -> WebAnswer:
        first = url
        while True:
            async with self._response(url, headers) as response:
                answer_headers = {name.lower(): value for name, value in response.headers.items()}
                place = answer_headers.get("location", "")
                if response.status_code not in _REDIRECTS or not place:
                    body, is_cut = await self._body(url, response)
                    return WebAnswer(url, response.status_code, answer_headers, body, is_cut)
            try:
                target = parse_url(place, url)
            except ToolError as error:
                raise ToolError(f"{url} redirects to where nothing can be fetched: {error}") from None
            is_elsewhere = target.key != url.key or (url.scheme, target.scheme) == ("https", "http")
            if is_elsewhere and redirects is not None:
                await self.addresses_of(target)  # a redirect inwards is refused here, not suggested
            if is_elsewhere or redirects is None:
                return WebAnswer(url, response.status_code, answer_headers, redirect=target)
            if redirects <= 0:
                most = self.access.most_redirects
                raise ToolError(f"{first} redirects more than {most} times, so it was given up: last to {target}")
            url, redirects = target, redirects - 1

    def check(self, url: WebUrl) -> None:
        """Raises ToolError for a URL that is certain to be refused, before anything is looked up: its port is not one
        of web servers, or its host is this machine or an address that is not public."""
        if not self._is_allowed(url):
            check_port(url)
            is_this_machine = url.host == "localhost" or url.host.endswith(".localhost")
            address = "127.0.0.1" if is_this_machine else url.host if address_of(url.host) is not None else ""
            if address and not is_internet(address):
                raise _inner(url, address)

    def _is_allowed(self, url: WebUrl) -> bool:
        return any(rule.allows(url.host, url.port) for rule in self._allowed_hosts)

    async def addresses_of(self, url: WebUrl) -> Sequence[str]:
        """The addresses at which the URL's host may be reached. Raises ToolError if there are none, or if one is not
        public."""
        is_allowed = self._is_allowed(url)
        if not is_allowed:
            check_port(url)
        try:
            addresses = await self.access.resolver(url.host, url.port)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ToolError(f"{url} was not fetched: the host {url.host} was not found ({reason})") from None
        if not addresses:
            raise ToolError(f"{url} was not fetched: the host {url.host} has no address")
        inner_address = next((each for each in addresses if not is_internet(each)), None)
        if inner_address is not None and not is_allowed:
            raise _inner(url, inner_address)
        return addresses[:_MOST_ADDRESSES]

    @asynccontextmanager
    async def _response(self, url: WebUrl, headers: Mapping[str, str]) -> AsyncGenerator[httpx2.Response]:
        """The answer to one request, once its head is there. Raises ToolError and httpx2.HTTPError."""
        addresses = await self.addresses_of(url)
        sent_headers = {
            "user-agent": self.access.user_agent,
            "accept": "text/html, text/plain;q=0.9, */*;q=0.8",
            "accept-encoding": ", ".join(ENCODINGS),
            **headers,
            "host": url.authority,
        }
        timeout = httpx2.Timeout(connect=_CONNECT_SECONDS, read=None, write=None, pool=None)
        # Without the environment's proxies: a proxy would resolve the host a second time, and unchecked.
        async with httpx2.AsyncClient(verify=_trusted_cas(), trust_env=False, timeout=timeout) as client:
            for address in addresses:
                pinned_url = httpx2.URL(
                    f"{url.scheme}://[{address}]" if ":" in address else f"{url.scheme}://{address}"
                )
                pinned_url = pinned_url.copy_with(port=url.port, raw_path=url.target.encode("ascii"))
                request = httpx2.Request("GET", pinned_url, headers=sent_headers, extensions={"sni_hostname": url.host})
                try:
                    response = await client.send(request, stream=True, follow_redirects=False)
                except (httpx2.ConnectError, httpx2.ConnectTimeout):
                    if address == addresses[-1]:
                        raise
                    continue
                try:
                    yield response
                finally:
                    await response.aclose()
                return

    async def _body(self, url: WebUrl, response: httpx2.Response) -> tuple[bytes, bool]:
        """The decompressed body, and whether it was cut."""
        most = self.access.most_bytes
        try:
            inflater = Inflater(response.headers.get("content-encoding", ""), most)
        except ValueError as error:
            raise ToolError(
                f"{url} was not read: it is compressed with {visible(str(error))}, which it was not asked for"
            ) from None
        count = 0
        async for piece in response.aiter_raw():
            count += len(piece)
            try:
                inflater.feed(piece)
            except ValueError as error:
                raise ToolError(f"{url} was not read: its compressed content is damaged ({error})") from None
            if inflater.is_full or count > most:
                return inflater.content, True
        return inflater.content, False


def _inner(url: WebUrl, address: str) -> ToolError:
    """The error for a URL whose host is at an address that is not public."""
    return ToolError(
        f"{url} was not fetched: {url.host} is at {visible(address)}, which is not a public address. If"
        f" the user wants it to be fetched, they can allow the host: `--web-allow {HostRule(url.host, url.port)}`"
    )


def _reason(error: httpx2.HTTPError) -> str:
    if isinstance(error, httpx2.ConnectTimeout):
        return f"the server could not be reached within {_CONNECT_SECONDS:g} seconds"
    text = visible(str(error) or type(error).__name__)
    return text if len(text) <= 300 else f"{text[:300]}…"


def _trusted_cas() -> ssl.SSLContext:
    return _cas(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@functools.lru_cache(maxsize=4)
def _cas(file: str | None, folder: str | None) -> ssl.SSLContext:
    """The context for TLS. To make one takes longer than a request."""
    try:
        if file or folder:
            return ssl.create_default_context(cafile=file, capath=folder)
        return httpx2.create_ssl_context(trust_env=False)
    except OSError as error:
        raise ConfigurationError(f"the CAs in SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {error}") from error
