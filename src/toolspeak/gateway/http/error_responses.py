"""Errors as clients read them: status, code, message, and when to retry."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from typing import Any, cast

import httpx2

from toolspeak.errors import ConfigurationError, FormatError, ProviderError, ProviderErrorCode, ToolspeakError
from toolspeak.gateway.observability import log
from toolspeak.gateway.upstreams.routing import UnknownModel
from toolspeak.providers.http_client import json_bytes
from toolspeak.wire.base import WireFormat


class Failure(Exception):
    """An answer that is an error. `code` and `details` are for programs, `retry_after` is in seconds. The log has
    `cause` instead of a message that hides details from the client."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        retry_after: float | None = None,
        details: Mapping[str, Any] | None = None,
        cause: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.retry_after = retry_after
        self.details = details
        self.cause = cause or message


_STATUSES: Mapping[ProviderErrorCode, int] = {
    # The gateway's account, not the client's: 401 would tell the client to change its own key.
    "authentication": 502,
    "quota": 502,
    "rate_limit": 429,
    "overloaded": 503,
    "connection": 502,
    "context_length": 400,
    "content_filter": 400,
    "not_found": 404,
    "bad_request": 400,
    "forgotten": 400,
    "ill_formed": 502,
    "other": 502,
}

UPSTREAM_CODES: Mapping[ProviderErrorCode, str] = {
    "authentication": "upstream_authentication",
    "quota": "upstream_quota",
    "rate_limit": "rate_limit_exceeded",
    "overloaded": "upstream_overloaded",
    "connection": "upstream_connection",
    "context_length": "context_length_exceeded",
    "content_filter": "content_filter",
    "not_found": "model_not_found",
    "bad_request": "upstream_refused",
    "forgotten": "upstream_refused",
    "ill_formed": "upstream_ill_formed",
    "other": "upstream_failed",
}
"""The codes of an upstream's failures, for clients: OpenAI's own if there is one, because clients compare them."""

_ADDRESS = re.compile(r"https?://[^\s'\"<>]*[^\s'\"<>:.,;]")
_PAGE = re.compile(r""": (['"])(?:\s|\\n)*<(?:!doctype|html|head|body).*?\1(?=\. )""", re.IGNORECASE | re.DOTALL)
"""A page of HTML as providers quote it: `: '<html>…'. `."""

_OWN_ACCOUNT = "The upstream refuses the gateway's account, not yours; the gateway's operator has to fix it."


def with_code(body: Any, failure: Failure) -> Any:
    """An error in the client's API, with the failure's code if that API has a field for it."""
    error: Any = cast("dict[str, Any]", body).get("error") if isinstance(body, dict) else None
    if isinstance(error, dict) and "code" in error:
        error["code"] = failure.code
    return cast("Any", body)


def failure_body(wire: WireFormat, failure: Failure) -> bytes:
    """An error in the format of the endpoint. OpenAI's format has a field for the code, Anthropic's for details."""
    body = with_code(wire.encode_error(failure.message, failure.status), failure)
    error = body.get("error")
    if isinstance(error, dict) and failure.details is not None:
        error["details"] = dict(failure.details)
    return json_bytes(body)


def draining() -> Failure:
    """The failure of a request that the gateway does not start, because the gateway is stopping."""
    return Failure(
        503, "the gateway is stopping; send the request to another one, or send it again soon", "gateway_draining", 1
    )


def gateway_stopped() -> Failure:
    """The failure of a request that is under way when the gateway's time to drain is over. Not a 503: a load balancer
    takes that for a request that was not started, and sends it to another host."""
    return Failure(
        502, "the gateway stopped before the answer was complete; send the request again", "gateway_stopped", 1
    )


def failure_headers(failure: Failure) -> list[tuple[bytes, bytes]]:
    """The headers of an error's answer."""
    headers: list[tuple[bytes, bytes]] = []
    if failure.retry_after is not None:  # whole seconds (RFC 9110, 10.2.3)
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(failure.retry_after))))
    if failure.status in (408, 413, 431):
        headers.append((b"connection", b"close"))  # the rest of the request is not read
    if failure.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers


def _for_clients(error: ProviderError) -> str:
    """The message without the upstream's address, and without the HTML page of a proxy."""
    return _ADDRESS.sub("the upstream", _PAGE.sub("", str(error)))


def _timed_out(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, httpx2.TimeoutException):
            return True
        error = error.__cause__
    return False


def failure_of(error: BaseException, request_id: str) -> Failure:
    """The failure that a client gets for an error. A bug goes to the log with its traceback, and the client sees
    neither."""
    match error:
        case Failure():
            return error
        case ProviderError(code="authentication" | "quota"):
            return Failure(
                502,
                f"{_OWN_ACCOUNT} {_for_clients(error)}",
                UPSTREAM_CODES[error.code],
                cause=f"{_OWN_ACCOUNT} {error}",
            )
        case ProviderError():
            status = 504 if _timed_out(error) else _STATUSES[error.code]
            return Failure(status, _for_clients(error), UPSTREAM_CODES[error.code], error.retry_after, cause=str(error))
        case UnknownModel():
            return Failure(404, str(error), "model_not_found")
        case FormatError():
            return Failure(400, str(error), "invalid_request", details=error.details)
        case ConfigurationError():
            return Failure(400, str(error), "invalid_request")
        case ToolspeakError():
            return Failure(500, str(error), "gateway_failed")
        case _:
            log("failed", {"id": request_id}, level=logging.ERROR, error=error)
            return Failure(500, f"the gateway failed; its log has the reason under {request_id}", "gateway_failed")
