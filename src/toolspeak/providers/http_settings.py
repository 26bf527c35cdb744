"""What a user sets for a provider's HTTP: the base URL, time limits, CAs, proxies and headers."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import TypedDict, cast

import httpx2

from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.providers.provider_failures import Clock

# A proxy cannot reach these for us.
_LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")

_SECRET = re.compile("auth|key|token|secret|cookie|password", re.IGNORECASE)
"""Part of the name of a header that holds a secret."""

_NO_KEYS = re.compile(
    r"none|null|empty|dummy|fake|test|local|unused|placeholder|changeme|ollama|lm-?studio|vllm|llama\.cpp|"
    r"no[-_]?(api)?[-_]?key|not?[-_]?needed|not[-_]?required|(sk-)?no-key-required",
    re.IGNORECASE,
)
"""What people write in place of a key for a server that needs none. These are words of any text."""


@quick()
class Timeouts:
    """Time limits in seconds; None is no limit."""

    connect: float | None = 10.0
    """To open a connection."""
    first_byte: float | None = 300.0
    """From the request to the first byte of the answer's body: the server may load a model and read a long prompt."""
    silence: float | None = 120.0
    """Between two bytes of the answer, including events that only keep the connection alive."""


DEFAULT_TIMEOUTS = Timeouts()


class ConnectionOptions(TypedDict, total=False):
    """Settings that every provider over HTTP accepts.

    Proxies are those of HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY. Requests to this machine use no proxy.
    """

    timeout: Timeouts | float | None
    """A number of seconds sets `first_byte` and `silence`; None sets no limit."""
    retries: int
    """How many times to repeat a request that fails before its first delta; default 2."""
    longest_wait: float
    """The longest wait in seconds that a server may request before a retry; default 60."""
    ca_file: str | os.PathLike[str] | None
    """A PEM file of the CAs to trust instead of the system's (and of SSL_CERT_FILE)."""
    clock: Clock
    """The time and random numbers for retries."""
    extra_headers: Mapping[str, str] | None
    """Headers of every request. They replace the API's own of the same name. A value whose header names a key, a token
    or the like never appears in a message."""


def keys_in(headers: Mapping[str, str]) -> list[str]:
    """The secrets in headers: the last word of each value whose header names a key, a token or the like."""
    return [value.split()[-1] for name, value in headers.items() if _SECRET.search(name) and value]


def is_secret(key: str) -> bool:
    """Whether a key is to be hidden. A text that people write for a server without keys is a word of any message."""
    return len(key) >= 4 and not _NO_KEYS.fullmatch(key)


def url_of(base_url: str) -> httpx2.URL:
    """A base URL as a value. Raises ConfigurationError for a text that is none."""
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL as error:
        raise ConfigurationError(f"the base URL {base_url!r} is not a URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError(f"the base URL {base_url!r} must start with http:// or https:// and name a host")
    return url


def timeouts_of(timeout: Timeouts | float | None) -> Timeouts:
    """The time limits that a provider's `timeout` means. Raises ConfigurationError for one of 0 or less."""
    if not isinstance(timeout, Timeouts):
        connect = DEFAULT_TIMEOUTS.connect if timeout is None else min(DEFAULT_TIMEOUTS.connect or timeout, timeout)
        timeout = Timeouts(connect, timeout, timeout)
    for name in ("connect", "first_byte", "silence"):
        seconds = cast("float | None", getattr(timeout, name))
        if seconds is not None and seconds <= 0:
            raise ConfigurationError(f"the timeout {name}={seconds} must be more than 0 seconds, or None for no limit")
    return timeout


def cas_of(ca_file: str | os.PathLike[str]) -> ssl.SSLContext:
    """The CAs in a PEM file. Raises ConfigurationError if it cannot be read."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(
            f"the CA file {os.fspath(ca_file)!r} cannot be read: {error}. It must be a PEM file."
        ) from error


@lru_cache(maxsize=4)
def _system_cas(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    """The CAs of the system or of the environment. Reading them blocks the event loop for a tenth of a second, so it
    happens once. Raises OSError."""
    return httpx2.create_ssl_context()


def new_client(
    own_headers: Mapping[str, str], timeouts: Timeouts, ssl_context: ssl.SSLContext | None
) -> httpx2.AsyncClient:
    """A client for the connections of one provider. `trusted`: its CAs, if they are not the system's.

    Raises ConfigurationError if the CAs or the proxies in the environment cannot be used.
    """
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream, application/json",
        "user-agent": "toolspeak",
        **own_headers,
    }
    try:
        return httpx2.AsyncClient(
            headers=headers,
            # Reading has no limit here: `TimedStream` limits the first byte and the later ones.
            timeout=httpx2.Timeout(connect=timeouts.connect, read=None, write=timeouts.silence, pool=None),
            # Idle connections close after 5 seconds (httpx2); a gateway may have hundreds between two turns.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
            mounts=dict.fromkeys(_LOOPBACK),
            verify=ssl_context or _system_cas(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")),
        )
    except OSError as error:
        raise ConfigurationError(f"the CAs in SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {error}") from error
    except (ImportError, ValueError) as error:  # a proxy in the environment that httpx2 cannot use
        raise ConfigurationError(f"the proxy settings of the environment cannot be used: {error}") from error
