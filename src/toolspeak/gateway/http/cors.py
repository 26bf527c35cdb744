"""Web pages of other origins that may call the gateway (Fetch Standard, "CORS protocol")."""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolspeak.gateway.http.asgi import Headers, Scope, header
from toolspeak.gateway.settings.gateway_settings import ANY_ORIGIN

_TOKENS = re.compile(r"[\w!#$%&'*+.^`|~-]+(?:[ \t]*,[ \t]*[\w!#$%&'*+.^`|~-]+)*", re.ASCII)
_MOST_HEADERS = 4096
_METHODS = b"GET, POST, DELETE"
_LIMITS = [
    *(f"x-ratelimit-{word}-{name}" for name in ("requests", "tokens") for word in ("limit", "remaining", "reset")),
    *(
        f"anthropic-ratelimit-{name}-{word}"
        for name in ("requests", "tokens")
        for word in ("limit", "remaining", "reset")
    ),
]
_EXPOSED = ", ".join(["x-request-id", "x-toolspeak-warning", "x-should-retry", "retry-after", *_LIMITS]).encode()
_PREFLIGHT_SECONDS = b"600"


def is_preflight(scope: Scope) -> bool:
    """Whether this is a browser's question if a page may send a request."""
    return (
        scope["method"] == "OPTIONS"
        and bool(header(scope, b"origin"))
        and bool(header(scope, b"access-control-request-method"))
    )


def cors_headers(scope: Scope, origins: Sequence[str]) -> Headers:
    """The headers that say which page may read an answer; none if no origin is configured."""
    if not origins:
        return []
    origin = header(scope, b"origin")
    if not is_allowed(origin, origins):
        return [(b"vary", b"origin")]
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"origin"),
    ]


def preflight_headers(scope: Scope, origins: Sequence[str]) -> Headers | None:
    """The headers of the answer to a preflight, besides `cors_headers`; None if the page may not send its request.

    The origin alone decides: a page may send any header, because SDKs have many of their own. For a gateway in a
    private network the answer has to allow that too (Private Network Access).
    """
    if not is_allowed(header(scope, b"origin"), origins):
        return None
    headers = [(b"access-control-allow-methods", _METHODS), (b"access-control-max-age", _PREFLIGHT_SECONDS)]
    wanted = header(scope, b"access-control-request-headers")
    if len(wanted) <= _MOST_HEADERS and _TOKENS.fullmatch(wanted):
        headers.append((b"access-control-allow-headers", wanted.encode("latin-1")))
    if header(scope, b"access-control-request-private-network") == "true":
        headers.append((b"access-control-allow-private-network", b"true"))
    return headers


def is_allowed(origin: str, origins: Sequence[str]) -> bool:
    """Whether pages of an origin may call the gateway."""
    return bool(origin) and (origin in origins or ANY_ORIGIN in origins)
