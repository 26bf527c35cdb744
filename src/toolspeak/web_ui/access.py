"""Who may use the API: a one-time token on this machine, keys with roles elsewhere; cookies, hosts, origins, rates."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
import tomllib
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.gateway.settings.api_keys import checked_name, digest
from toolspeak.gateway.settings.gateway_settings import LOOPBACK
from toolspeak.web_ui.api_errors import ApiFailure
from toolspeak.web_ui.api_values import UiRole

ROLES: tuple[UiRole, ...] = ("look", "approve", "run")
COOKIE_SECONDS = 7 * 86_400
"""How long a browser stays logged in."""

_Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


@quick()
class UiKey:
    """A person's or a program's key.

    - `roles`: what it may do besides reading.
    - `expires`: from when on it is refused.
    - `principal`: whose runs and sessions alone it sees, and on whose behalf it starts runs. None: it sees all.
    """

    name: str
    sha256: _Digest
    roles: tuple[UiRole, ...] = ()
    expires: datetime | None = None
    principal: Annotated[str, Meta(min_length=1, max_length=1_000)] | None = None


@quick()
class KeysFile:
    """A file of keys: tables `[[key]]`."""

    key: tuple[UiKey, ...]


@quick()
class Caller:
    """Who sends a request.

    - `by_cookie`: a browser, whose requests need the CSRF token.
    - `sees`: the principal whose runs alone the caller sees; None: all.
    """

    name: str
    roles: frozenset[UiRole]
    by_cookie: bool = False
    csrf: str = ""
    sees: str | None = None


def read_ui_keys(path: str | Path) -> tuple[UiKey, ...]:
    """The keys of a file (`toolspeak keys new NAME --role ROLE`). Raises ConfigurationError."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        keys = msgspec.convert(table, KeysFile).key
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError(
            f"the keys of {path} cannot be read: {error}; write tables as `toolspeak keys new NAME --role approve` does"
        ) from error
    if not keys:
        raise ConfigurationError(f"{path} holds no key: `toolspeak keys new NAME --role approve >> {path}`")
    for number, key in enumerate(keys, 1):
        checked_name(key.name, f"{path}: key {number}.name")
        if key.expires is not None and key.expires.tzinfo is None:
            raise ConfigurationError(f"{path}: key {number}.expires: write a time with its zone")
    for what in ("name", "sha256"):
        values = [cast("str", getattr(key, what)) for key in keys]
        if len(set(values)) < len(values):
            raise ConfigurationError(f"{path}: two keys have the same {what}; give each its own")
    return keys


class Access:
    """Decides about requests.

    - `keys`: None on this machine, where the token lets one browser in.
    - `user`: the name of whoever has the token.
    - `secret`: signs cookies. While it stays the same, browsers stay logged in when the server starts again.
    - `hosts`: the names by which the server is called; empty: any.
    - `cookie_name`: browsers share cookies between the ports of a machine, so it names the port.
    - `on_token`: called when the token was used, with the next one.
    """

    def __init__(
        self,
        *,
        keys: tuple[UiKey, ...] | None,
        user: str,
        secret: bytes,
        hosts: Collection[str] = (),
        cookie_name: str = "toolspeak-ui",
        on_token: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.cookie_name = cookie_name
        self.token = secrets.token_urlsafe(24)
        self._keys = None if keys is None else {key.name: key for key in keys}
        self._user = user
        self._secret = secret
        self._hosts = frozenset(hosts) or (frozenset(LOOPBACK) if keys is None else frozenset[str]())
        self._on_token = on_token
        self._clock = clock
        self._reads, self._changes, self._logins = Rates(100.0, 400.0), Rates(10.0, 60.0), Rates(0.2, 10.0)

    def check_host(self, host: str) -> None:
        """Raises ApiFailure for a request to another name: a page whose name resolves to this machine could send it
        (DNS rebinding)."""
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0].lower()
        if self._hosts and name not in self._hosts:
            raise ApiFailure(403, "host", "the server is not called by this name; use the address that it printed")

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """Raises ApiFailure for a request that a page of another origin sends."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None and urlsplit(origin).netloc != headers.get("host", ""):
            raise ApiFailure(403, "origin", "pages of other origins may not use this server")
        if site is not None and site not in ("same-origin", "none"):
            raise ApiFailure(403, "origin", "pages of other origins may not use this server")

    def caller(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Caller:
        """Who sends the request: by its key, or by its cookie. Raises ApiFailure."""
        authorization = headers.get("authorization", "")
        if authorization[:7].lower() == "bearer ":
            key = self._key_of(authorization[7:].strip())
            if key is None:
                raise ApiFailure(401, "unknown_key", "this key is not known here, or has expired")
            return _caller(key)
        caller = self._caller_of(cookies.get(self.cookie_name, ""))
        if caller is None:
            raise ApiFailure(401, "login", "log in with a key, or open the address that `toolspeak ui` printed")
        return caller

    def check_change(self, caller: Caller, headers: Mapping[str, str]) -> None:
        """Raises ApiFailure for a request that a browser sends but not our page (CSRF)."""
        if caller.by_cookie:
            self.check_origin(headers)
            if not hmac.compare_digest(headers.get("x-csrf-token", "").encode(), caller.csrf.encode()):
                raise ApiFailure(403, "csrf", "the header x-csrf-token is missing or old: load the page again")

    def check_role(self, caller: Caller, role: UiRole) -> None:
        """Raises ApiFailure if the caller may not do this."""
        if role not in caller.roles:
            raise ApiFailure(403, "role", f"{caller.name} has not the role {role!r}, which this needs")

    def check_rate(self, caller: Caller, *, changes: bool) -> None:
        """Raises ApiFailure for a caller that asks too often."""
        (self._changes if changes else self._reads).take(caller.name, self._clock())

    def login(self, secret: str, address: str) -> str:
        """The value of the cookie for a key or the token, which counts once. Raises ApiFailure."""
        self._logins.check(address, self._clock())
        if self._keys is None:
            if not hmac.compare_digest(secret.encode(), self.token.encode()):
                self._logins.take(address, self._clock())
                raise ApiFailure(
                    401, "login", "this address was used before: open the one that the server printed last"
                )
            self.token = secrets.token_urlsafe(24)
            self._on_token(self.token)
            return self._cookie(self._user)
        key = self._key_of(secret)
        if key is None:
            self._logins.take(address, self._clock())
            raise ApiFailure(401, "login", "this key is not known here, or has expired")
        return self._cookie(key.name)

    def _key_of(self, secret: str) -> UiKey | None:
        secret_digest, match = digest(secret), None
        for key in (self._keys or {}).values():
            if hmac.compare_digest(secret_digest, key.sha256):
                match = key
        return None if match is None or self._is_over(match) else match

    def _is_over(self, key: UiKey) -> bool:
        return key.expires is not None and key.expires.timestamp() <= self._clock()

    def _cookie(self, name: str) -> str:
        content = f"{name} {int(self._clock()) + COOKIE_SECONDS} {secrets.token_urlsafe(9)}"
        return base64.urlsafe_b64encode(f"{content} {self._signature(name, content)}".encode()).decode().rstrip("=")

    def _caller_of(self, cookie: str) -> Caller | None:
        try:
            text = base64.urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4)).decode()
            name, expires, nonce, signature = text.split(" ")
        except (ValueError, UnicodeDecodeError):
            return None
        content = f"{name} {expires} {nonce}"
        if not hmac.compare_digest(signature.encode(), self._signature(name, content).encode()):
            return None
        if int(expires) <= self._clock():
            return None
        csrf = self._sign(f"csrf {text}")
        if self._keys is None:
            return Caller(name, frozenset(ROLES), True, csrf) if name == self._user else None
        key = self._keys.get(name)
        return None if key is None or self._is_over(key) else _caller(key, csrf)

    def _signature(self, name: str, content: str) -> str:
        # With the key's digest: a cookie ends with the key that it was made for.
        key = (self._keys or {}).get(name)
        return self._sign(f"cookie {'' if key is None else key.sha256} {content}")

    def _sign(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()


def _caller(key: UiKey, csrf: str = "") -> Caller:
    return Caller(key.name, frozenset({"look", *key.roles}), bool(csrf), csrf, key.principal)


class Rates:
    """How often each name may do something: `rate` times a second, and `burst` times at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._buckets: dict[str, tuple[float, float]] = {}

    def check(self, name: str, now: float) -> float:
        """How often it may be done now. Raises ApiFailure if not at all."""
        room, since = self._buckets.get(name, (self._burst, now))
        room = min(self._burst, room + (now - since) * self._rate)
        if room < 1:
            wait = (1 - room) / self._rate
            raise ApiFailure(429, "rate", f"too many requests: wait {wait:.1f} seconds", retry_after=wait)
        return room

    def take(self, name: str, now: float) -> None:
        """Counts one more. Raises ApiFailure if it is one too many."""
        room = self.check(name, now)
        if len(self._buckets) > 10_000:  # addresses that tried to log in
            self._buckets.clear()
        self._buckets[name] = room - 1, now
