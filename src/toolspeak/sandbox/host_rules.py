"""Rules for the hosts that a sandboxed command may reach."""

from __future__ import annotations

import ipaddress
import re

from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")


@quick()
class HostRule:
    """A host and a port. `*.example.com` is every host below example.com, and not example.com itself."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @staticmethod
    def parse(text: str) -> HostRule:
        """The rule `HOST:PORT`; without a port it is 443. Raises ConfigurationError."""
        match = re.fullmatch(r"(\[[^\]]*\]|[^:\[\]]*)(?::(\d{1,5}))?", text.strip())
        port = 0 if match is None else int(match[2] or 443)
        if match is None or not 0 < port < 65536:
            raise ConfigurationError(
                f"{text!r} is no host with a port: write api.example.com:443, *.example.com:443 or [2001:db8::1]:443"
            )
        host = normal_host(match[1].strip("[]"))
        name = host.removeprefix("*.")
        if address_of(host) is None and not all(_LABEL.fullmatch(label) for label in name.split(".")):
            raise ConfigurationError(
                f"{text!r}: {host!r} is no name of a host; `*` stands only for the first part: *.example.com:443"
            )
        return HostRule(host, port)

    def allows(self, host: str, port: int) -> bool:
        """Whether the rule is about this host, which is normal, and this port."""
        if port != self.port:
            return False
        return host.endswith(self.host[1:]) if self.host.startswith("*.") else host == self.host


def normal_host(host: str) -> str:
    """The host's name in lower case and ASCII, without a last dot; an address in its usual form."""
    host = host.strip().rstrip(".").lower()
    address = address_of(host)
    if address is not None:
        return str(address)
    try:
        return host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        return host


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that the text is, None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_public(address: str) -> bool:
    """Whether an address is one of the internet: not of this machine, of a private network, or of a cloud's metadata
    service."""
    ip = address_of(address.partition("%")[0])
    if ip is None:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is not None:
            return is_public(str(inner))
        if ip in _NAT64:
            return is_public(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)))
    return ip.is_global and not ip.is_multicast


_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
