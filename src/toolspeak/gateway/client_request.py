"""One HTTP request to the gateway: who may send it, and what the log says of it.

A client needs one of the gateway's keys; without keys, only clients on this machine are served.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from toolspeak.data.messages import JSON
from toolspeak.gateway.generation import Generation
from toolspeak.gateway.http.asgi import Fields, Headers, Receive, Scope, Send, header, send_whole
from toolspeak.gateway.http.error_responses import Failure
from toolspeak.gateway.http.multipart_forms import FORM
from toolspeak.gateway.settings.api_keys import Key, admitted
from toolspeak.gateway.settings.gateway_settings import ANY_ORIGIN
from toolspeak.gateway.stored.response_memory import Keeping
from toolspeak.gateway.usage.accounts import Account
from toolspeak.wire.base import WireFormat
from toolspeak.wire.json_validation import shortened
from toolspeak.wire.openai_chat import OPENAI_CHAT

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


@dataclass(slots=True)
class Request:
    """One request, with its facts for the log."""

    scope: Scope
    receive: Receive
    send: Send
    id: str
    began_at: float
    """`time.perf_counter()` at its arrival."""
    current: Generation
    """The settings and routes that answer it."""
    wire: WireFormat = OPENAI_CHAT
    model: str = ""
    stream: bool = False
    status: int = 0
    key: Key | None = None
    account: Account | None = None
    ran_tools: bool = False
    size: int = 0
    """Bytes of the body."""
    fields: Fields = field(default_factory=dict[str, JSON])
    """The JSON of the body, once it is read."""
    keeping: Keeping | None = None
    """How its response is stored, if it is."""
    runs: bool = False
    """Whether it is answered in the background."""
    came: float = field(default_factory=time.time)
    """Unix time of its arrival."""
    facts: dict[str, object] = field(default_factory=dict[str, object])

    @property
    def path(self) -> str:
        """The path, without a slash at its end, which some clients write."""
        path: str = self.scope["path"]
        return path[:-1] if path.endswith("/") and path != "/" else path

    @property
    def owner(self) -> str:
        """The owner of the responses that the client may name: its key."""
        return "" if self.key is None else self.key.name

    def allows(self, model: str) -> bool:
        """Whether the client may use and list a model."""
        return self.key is None or self.key.allows(model)

    @property
    def headers(self) -> Headers:
        limits = self.account.headers if self.account is not None else []
        return [(b"x-request-id", self.id.encode()), *cors_headers(self.scope, self.current.settings.cors), *limits]

    def log_fields(self, seconds: float) -> Mapping[str, JSON]:
        """The fields of the request's line in the log."""
        client = self.scope.get("client")
        return {
            "id": self.id,
            "pid": os.getpid(),
            "endpoint": self.path,
            "model": self.model or None,
            "stream": self.stream,
            "status": self.status,
            "seconds": round(seconds, 4),
            "client": client[0] if client else None,
            "key": self.key.name if self.key else None,
            **self.facts,
        }

    async def respond(
        self,
        status: int,
        body: bytes,
        headers: Sequence[tuple[bytes, bytes]] = (),
        content_type: bytes = b"application/json",
    ) -> None:
        self.status = status
        await send_whole(self.send, status, body, [*self.headers, *headers], content_type)


# --- keys ---------------------------------------------------------------------------------------------------------


def let_in(request: Request, hosts: Container[str]) -> None:
    """Authenticates a request and stores its key. `hosts`: the names of this machine.

    Raises Failure for a request without a valid key, or, if the gateway has no keys, from elsewhere.
    """
    headers = request.scope["headers"]
    size = sum(len(name) + len(value) for name, value in headers)
    settings = request.current.settings
    if size > settings.bounds.header_bytes:
        raise Failure(431, f"the headers are larger than {settings.bounds.header_bytes} bytes", "headers_too_large")
    if settings.keys:
        request.key = admitted(headers, settings.keys)
        if request.key is None:
            has_key = header(request.scope, b"authorization") or header(request.scope, b"x-api-key")
            why = "this key is not known here; " if has_key else ""
            wanted = "the gateway needs one of its own API keys: Authorization: Bearer KEY, or x-api-key"
            raise Failure(401, why + wanted, "invalid_api_key")
        if request.key.expires is not None and request.key.expires <= time.time():
            raise Failure(401, f"the API key {request.key.name!r} has expired", "expired_api_key")
    else:
        _check_host(request, hosts)
        origin = header(request.scope, b"origin")
        is_form = header(request.scope, b"content-type").lower().startswith(FORM)
        if origin and is_form and not is_allowed(origin, settings.cors):
            # Browsers send a form of any page without a preflight.
            problem = "the gateway has no API keys, so it takes no forms from web pages; its operator can add keys"
            raise Failure(403, problem, "origin")


async def answer_preflight(request: Request, hosts: Container[str]) -> None:
    """Answers a browser that asks whether a page may send its request. Raises Failure if it may not."""
    settings = request.current.settings
    if not settings.keys:
        _check_host(request, hosts)
    headers = preflight_headers(request.scope, settings.cors)
    if headers is None:
        origin = shortened(header(request.scope, b"origin"), 200)
        problem = f"pages of {origin} may not call the gateway; its operator can allow them (--cors)"
        raise Failure(403, problem, "origin")
    await request.respond(204, b"", headers)


def _check_host(request: Request, hosts: Container[str]) -> None:
    host = header(request.scope, b"host")
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0].lower()  # without the port
    if name not in hosts:
        # A page whose name resolves to this machine (DNS rebinding) could send requests for its reader.
        raise Failure(
            403, "the gateway has no API keys, so it answers only this machine; call it by its address", "host"
        )


def expect(method: str, wanted: str) -> None:
    """Raises Failure unless the request uses the wanted method (HEAD counts as GET)."""
    if method != wanted and (method, wanted) != ("HEAD", "GET"):
        raise Failure(405, f"{method} is not supported here; send {wanted}", "method_not_allowed")


# --- web pages of other origins (Fetch Standard, "CORS protocol") ---------------------------------------------------


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
