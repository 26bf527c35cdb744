"""Failed requests: the ProviderErrors for statuses, connections and ill-formed answers, and the retries."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import ssl
import time
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Protocol, cast
from urllib.request import getproxies, proxy_bypass

import httpx2

from toolspeak.data.messages import JSON
from toolspeak.errors import ProviderError
from toolspeak.providers.base import RETRY_RECORDER
from toolspeak.providers.trace_context import RETRY_LISTENER
from toolspeak.wire.error_table import read_error
from toolspeak.wire.json_conversion import excerpt

QUOTED_CHARACTERS = 300

_SECONDS = re.compile(r"\d{1,30}(?:\.\d{1,30})?")


class SilentServer(httpx2.ReadTimeout):
    """The server sent nothing for `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"nothing was received for {seconds:g} seconds")
        self.seconds = seconds


def status_error(address: str, status: int, headers: Mapping[str, str], body: bytes, now: float) -> ProviderError:
    """The error for a response with a status other than success. `now`: Unix time in seconds."""
    text = body.decode("utf-8", "replace")
    error = read_error(_error_of(text), status)
    message = error.message or excerpt(text, QUOTED_CHARACTERS)
    remedy, code = error.remedy, error.code
    if status < 400:
        code = "ill_formed"
        where = headers.get("location", "")[:QUOTED_CHARACTERS]
        remedy = f"The server redirects to {where!r}: set the base URL to where the API is."
    wait = requested_wait(headers, now)
    if wait is None:
        wait = error.retry_after
    # OpenAI and Anthropic send it if the status alone misleads, as for a 500 that would repeat.
    retryable = error.retryable and headers.get("x-should-retry", "").strip().lower() != "false"
    if wait:
        remedy = f"{remedy} Retry-After: {wait:g} seconds."
    quotation = f": {message!r}" if message else ""
    return ProviderError(
        f"{address} answered HTTP {status}{quotation}. {remedy}",
        status=status,
        retryable=retryable,
        code=code,
        retry_after=wait if retryable else None,
        unread=error.unread,
    )


def requested_wait(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds to wait according to `retry-after-ms` (OpenAI), or to `Retry-After` in seconds or as a date (RFC
    9110, 10.2.3). None without a valid header."""
    milliseconds = headers.get("retry-after-ms", "").strip()
    if _SECONDS.fullmatch(milliseconds):
        return float(milliseconds) / 1000
    value = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(value):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
        moment = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, round(moment - now, 3))


def transport_error(
    here: str, why: str, error: httpx2.HTTPError, received_characters: int | None, connect: float
) -> ProviderError:
    """The error for a failed connection.

    `here`: the server's address.
    `why`: the text of `error`, without secrets.
    `received_characters`: how many characters of the answer arrived; None before the answer's start.
    `connect`: the time limit for opening a connection, in seconds.
    """
    why = why.rstrip(".")
    match error:
        case httpx2.ConnectTimeout():
            message = f"cannot connect to {here} within {connect:g} seconds. Check the base URL and the network."
        case httpx2.ConnectError() if _caused_by(error, ssl.SSLCertVerificationError):
            return ProviderError(
                f"cannot connect to {here} securely: {why}. If its certificate is signed by your own CA, set "
                "SSL_CERT_FILE or the option `ca_file` to that CA's file.",
                code="connection",
            )
        case httpx2.ConnectError() if _caused_by(error, ssl.SSLError):
            return ProviderError(
                f"cannot connect to {here} securely: {why}. Check the base URL (http or https?).", code="connection"
            )
        case httpx2.ConnectError():
            why = "the connection was refused" if _caused_by(error, ConnectionRefusedError) else why
            message = f"cannot connect to {here}: {why}. Start the server there, or correct the base URL."
            if _is_proxied(here):
                message = f"{message} The environment sets a proxy, which may fail: check HTTPS_PROXY and NO_PROXY."
        case httpx2.ProxyError():
            message = (
                f"cannot reach {here} through the proxy of the environment: {why}. Check HTTPS_PROXY and NO_PROXY."
            )
        case SilentServer(seconds=seconds):
            after = "" if not received_characters else f" after {received_characters} characters of the answer"
            message = f"{here} sent nothing for {seconds:g} seconds{after}. Is it overloaded? `timeout` may be longer."
        case httpx2.TimeoutException():
            message = f"{here} took too long to accept the request. Is it overloaded? `timeout` may be longer."
        case httpx2.SSEError() | httpx2.DecodingError():
            return ProviderError(f"{here}: {why}. Check the base URL: this is not the API's answer.", code="ill_formed")
        case httpx2.LocalProtocolError() | httpx2.UnsupportedProtocol():
            return ProviderError(f"{here}: {why}. Check the base URL and the API key.", code="bad_request")
        case _ if received_characters is None:
            message = f"{here}: the connection dropped before the answer: {why}. Try again."
        case _:
            return dropped_error(here, received_characters)
    return ProviderError(message, retryable=True, code="connection")


def dropped_error(here: str, received_characters: int) -> ProviderError:
    """The error for a stream that stopped in the middle."""
    return ProviderError(
        f"{here}: the connection dropped after {received_characters} characters of the answer. Try again.",
        retryable=True,
        code="connection",
    )


def _error_of(text: str) -> JSON:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {"message": text[: 2 * QUOTED_CHARACTERS]}
    return cast("JSON", value) if isinstance(value, dict | list) else {"message": text[: 2 * QUOTED_CHARACTERS]}


def _is_proxied(address: str) -> bool:
    url = httpx2.URL(address)
    if url.host in ("localhost", "127.0.0.1", "::1"):
        return False
    proxies = getproxies()
    return (url.scheme in proxies or "all" in proxies) and not proxy_bypass(url.host)


def _caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False


# --- retries: when, how often, and after how long ------------------------------------------------------------------

RETRIES = 2
"""The default number of retries of a request."""

BASE_SECONDS = 0.5
CAP_SECONDS = 8.0
"""The delay before the n-th retry is random, from 0 to `BASE_SECONDS` * 2 ** (n - 1), and at most `CAP_SECONDS`
("full jitter": AWS Architecture Blog, "Exponential Backoff And Jitter")."""

LONGEST_SECONDS = 60.0
"""The longest wait that a server may request (Retry-After). If it requests a longer one, the request fails at once."""

_LOG = logging.getLogger("toolspeak.providers")


class Clock(Protocol):
    """The time and random numbers for retries."""

    def now(self) -> float:
        """Unix time in seconds."""
        ...

    def random(self) -> float:
        """A random number of at least 0 and below 1."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The system's time and random numbers."""

    def now(self) -> float:
        return time.time()

    def random(self) -> float:
        return random.random()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


def delay_before(attempt: int, error: ProviderError, chance: float, longest: float = LONGEST_SECONDS) -> float | None:
    """The seconds to wait before retry number `attempt` (from 1); None if the request must not be repeated.

    `chance` is a random number from 0 up to 1. The delay is at least the wait that the server requests; None if that
    is longer than `longest`.
    """
    if not error.retryable or (error.retry_after or 0) > longest:
        return None
    # The exponent is bounded, since the attempt number is not.
    jitter = chance * min(CAP_SECONDS, BASE_SECONDS * 2 ** min(attempt - 1, 10))
    return (error.retry_after or 0) + jitter


async def wait_or_raise(error: ProviderError, failures: int, *, retries: int, clock: Clock, longest: float) -> None:
    """Waits until a request may be sent again that has failed `failures` times, at last with `error`.

    Use it only before the first delta: a retry cannot take back text that a user has read. Raises `error` if the
    request must not be repeated, if it has failed more than `retries` times, or if the server requests a wait of more
    than `longest` seconds.
    """
    delay = delay_before(failures, error, clock.random(), longest)
    if delay is None or failures > retries:
        if reason := _why_no_retry(error, failures, longest):
            raise error.with_message(f"{error} {reason}") from error
        raise error
    fields = {"seconds": round(delay, 3), "retry": failures, "retries": retries, "problem": str(error)}
    message = "retrying in %.1f s (%s of %s): %s"
    _LOG.info(message, delay, failures, retries, error, extra={"event": "upstream_retry", "fields": fields})
    if (listener := RETRY_LISTENER.get()) is not None:
        listener(error)
    if (record := RETRY_RECORDER.get()) is not None:
        await record(error, delay, failures)
    await clock.sleep(delay)


def _why_no_retry(error: ProviderError, attempts: int, longest: float) -> str:
    if error.retryable and (error.retry_after or 0) > longest:
        return f"That is longer than toolspeak waits ({longest:g} seconds): try again then."
    return f"Tried {attempts} times." if attempts > 1 else ""
