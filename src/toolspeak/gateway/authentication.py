"""Admits requests with one of the gateway's keys; without keys, requests of this machine."""

from __future__ import annotations

import time
from collections.abc import Container

from toolspeak.gateway.client_request import Request
from toolspeak.gateway.http.asgi import header
from toolspeak.gateway.http.cors import is_allowed, preflight_headers
from toolspeak.gateway.http.error_responses import Failure
from toolspeak.gateway.http.multipart_forms import FORM
from toolspeak.gateway.settings.api_keys import admitted
from toolspeak.wire.json_validation import shortened


def let_in(request: Request, hosts: Container[str]) -> None:
    """Authenticates a request and notes its key. `hosts`: the names of this machine.

    Raises Failure for a request that gets no answer, whatever it asks.
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
            wanted = "the gateway wants an API key of its own: Authorization: Bearer KEY, or x-api-key"
            raise Failure(401, why + wanted, "invalid_api_key")
        if request.key.expires is not None and request.key.expires <= time.time():
            raise Failure(401, f"the API key {request.key.name!r} has expired", "expired_api_key")
    else:
        _check_host(request, hosts)
        origin = header(request.scope, b"origin")
        is_form = header(request.scope, b"content-type").lower().startswith(FORM)
        if origin and is_form and not is_allowed(origin, settings.cors):
            # Browsers send forms of any page without asking first.
            raise Failure(403, "the gateway has no API keys, so it takes no form of a web page: give it one", "origin")


async def answer_preflight(request: Request, hosts: Container[str]) -> None:
    """Tells a browser whether a page may send its request; that will have a key, where one is needed. Raises
    Failure."""
    settings = request.current.settings
    if not settings.keys:
        _check_host(request, hosts)
    headers = preflight_headers(request.scope, settings.cors)
    if headers is None:
        origin = shortened(header(request.scope, b"origin"), 200)
        raise Failure(403, f"pages of {origin} may not call the gateway: its operator lists those that may", "origin")
    await request.respond(204, b"", headers)


def _check_host(request: Request, hosts: Container[str]) -> None:
    host = header(request.scope, b"host")
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0].lower()  # without the port
    if name not in hosts:
        # A page whose name leads to this machine (DNS rebinding) could ask in its reader's name.
        raise Failure(
            403, "the gateway has no API keys, so it answers this machine only: call it by its address", "host"
        )


def expect(method: str, wanted: str) -> None:
    """Raises Failure for a request of another method."""
    if method != wanted and (method, wanted) != ("HEAD", "GET"):
        raise Failure(405, f"{method} is not answered here: send {wanted}", "method_not_allowed")
