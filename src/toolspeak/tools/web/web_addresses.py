"""URLs that a tool may fetch, and the addresses that a host may be at: public ones, unless the operator allows more."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

import httpx2

from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, ToolError
from toolspeak.sandbox.host_rules import HostRule, address_of, is_public

MOST_URL = 2_000
"""The longest URL, in characters: a longer one carries data to its host."""

_PORTS = {"http": 80, "https": 443}
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f-\xa0\\]")
_OTHER_SERVICES = frozenset(
    [1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, *range(6665, 6670), 6679, 6697, 10080]
)
"""Ports from 1024 up at which browsers refuse to speak HTTP too: other services answer there."""

_INTERNET = ipaddress.IPv6Network("2000::/3")
_NOT_OF_THE_INTERNET = tuple(
    map(
        ipaddress.ip_network,
        # 6to4 and its relays, Teredo and other special purposes, documentation.
        ("192.88.99.0/24", "192.0.0.0/24", "2002::/16", "2001::/23", "2001:db8::/32", "3fff::/20"),
    )
)


@quick()
class WebUrl:
    """A checked URL, without a fragment.

    - `scheme`: http or https.
    - `host`: the name in lower-case ASCII, or the address in its usual form.
    - `target`: the path and the query, as they are sent.
    """

    scheme: str
    host: str
    port: int
    target: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"

    @property
    def authority(self) -> str:
        """The host as the header `Host` has it: with the port, unless it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def key(self) -> str:
        """The key of the host as a resource: `web:example.com`, `web:example.com:8443`."""
        return f"web:{self.authority}"


def parse_url(text: str, base: WebUrl | None = None) -> WebUrl:
    """The URL in a text; with `base`, relative to that one. Raises ToolError for one that cannot be fetched.

    Refuses what may be read as another host elsewhere: user names and passwords, backslashes, addresses in another form
    than the usual one (`127.1`, `0x7f.1`).
    """
    quote = repr(text if len(text) <= 200 else f"{text[:200]}…")
    if len(text) > MOST_URL:
        raise ToolError(f"the URL has {len(text):,} characters, and at most {MOST_URL:,} are sent: {quote}")
    if _UNPRINTABLE.search(text):
        raise ToolError(f"the URL {quote} has a space, a backslash or a control character: write %20 for a space")
    try:
        url = httpx2.URL(text) if base is None else httpx2.URL(str(base)).join(text)
        scheme, host, port = url.scheme, url.raw_host.decode("ascii").lower().removesuffix("."), url.port
        target = url.raw_path.decode("ascii") or "/"
        user = url.userinfo
    except (httpx2.InvalidURL, UnicodeError, ValueError) as error:
        raise ToolError(f"the URL {quote} cannot be read: {error}") from None
    if scheme not in _PORTS:
        raise ToolError(f"the URL {quote} does not begin with http:// or https://")
    if user or "@" in re.split("[/?#]", text.partition("//")[2])[0]:
        raise ToolError(f"the URL {quote} holds a user name or a password: leave out what is before the @")
    address = address_of(host)
    labels = host.split(".")
    if address is not None and "%" not in host:  # what follows it is an interface of this machine
        host = str(address)
    elif _NUMBER.fullmatch(labels[-1]):
        raise ToolError(f"the URL {quote} has an address in an unusual form: write its four numbers, as in 192.0.2.1")
    elif len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ToolError(f"the URL {quote} has no host that can be looked up")
    port = _PORTS[scheme] if port is None else port
    if not 0 < port < 65536:
        raise ToolError(f"the URL {quote} has the port {port}: ports are 1 to 65535")
    return WebUrl(scheme, host, port, target if target.startswith("/") else f"/{target}")


def check_port(url: WebUrl) -> None:
    """Raises ToolError for a port at which other services than web servers answer."""
    if url.port in _PORTS.values():
        return
    if url.port < 1024 or url.port in _OTHER_SERVICES:
        raise ToolError(f"{url} was not fetched: the port {url.port} is not one of web servers")


def is_internet(address: str) -> bool:
    """Whether an address is one of the internet, written as itself. Not if it is private, of this machine, a link or a
    carrier (CGNAT), of a group (multicast), reserved, or an IPv4 address inside an IPv6 one (mapped, NAT64, 6to4,
    Teredo)."""
    ip = address_of(address)  # one with a zone (fe80::1%eth0) is of a link
    if ip is None or "%" in address or not is_public(address):
        return False
    if isinstance(ip, ipaddress.IPv6Address) and ip not in _INTERNET:
        return False
    return not any(ip in network for network in _NOT_OF_THE_INTERNET if network.version == ip.version)


def host_rules_of(texts: Sequence[str]) -> tuple[HostRule, ...]:
    """The rules for the internal hosts that an operator allows: `wiki.corp:8080`, `*.corp:443`, `127.0.0.1:8888`.
    Raises ConfigurationError for a text that is none."""
    if isinstance(texts, str):
        raise ConfigurationError(f"allow={texts!r}: expected a list of hosts, such as allow=['wiki.corp:443']")
    return tuple(dict.fromkeys(map(HostRule.parse, texts)))
