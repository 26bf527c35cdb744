"""API keys of clients: which models and how much each may use. Only digests of keys are stored."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from toolspeak.errors import ConfigurationError, suggest

VARIABLE = "TOOLSPEAK_API_KEYS"
"""The environment variable with keys, separated by commas and written as in a file."""

_DIGEST = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_COMMENT = re.compile(r"(^|\s)#.*")  # a key may hold the sign
LIMITS = ("requests_per_minute", "streams", "tokens_per_day")
"""The fields of `Key` that are limits."""

SHORTEST = 16
"""The fewest characters of a key: the digest of a shorter one can be guessed."""

_NAME_DIGITS = 8
"""The digits of its digest that serve as the name of a key without one."""


@dataclass(frozen=True, slots=True)
class Key:
    """A client's key. `digest` is its SHA-256 in hex. Logs, metrics and the table of usage call it `name`.

    `models` are exact names or globs. `requests_per_minute`: in any 60 seconds. `streams`: answers under way at once,
    streamed or whole. `tokens_per_day`: of input and output together, in a day of UTC. None: no limit. `expires`: Unix
    seconds from which on the key is refused. `metrics`: it may read `/metrics`, which names all models and keys.
    `other_digests` are those of secrets that count as well, while the key's is replaced.
    """

    name: str
    digest: str
    models: tuple[str, ...] = ("*",)
    requests_per_minute: int | None = None
    streams: int | None = None
    tokens_per_day: int | None = None
    expires: float | None = None
    metrics: bool = False
    other_digests: tuple[str, ...] = ()

    @property
    def digests(self) -> Sequence[str]:
        """The digests of all its secrets."""
        return self.digest, *self.other_digests

    @property
    def limited(self) -> bool:
        return bool(self.limits)

    @property
    def limits(self) -> Sequence[str]:
        """The names of the key's limits."""
        return [name for name in LIMITS if getattr(self, name) is not None]

    def allows(self, model: str) -> bool:
        """Whether the key may use a model of this name."""
        return any(fnmatchcase(model, name) for name in self.models)


def unnamed_key(key_digest: str) -> Key:
    """A key with only a digest: it may do everything."""
    return Key(key_digest[:_NAME_DIGITS], key_digest, metrics=True)


def digest(key: str) -> str:
    """SHA-256 (hex) of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


# --- files of keys, and the environment --------------------------------------------------------------------------


def read_keys(path: str | Path) -> tuple[Key, ...]:
    """The keys of a file. Each line holds a key, or `sha256:` and its digest in hex. `#` at the start or after a space
    begins a comment.

    Raises ConfigurationError naming the line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the API keys of {path} cannot be read: {error}") from error
    keys = tuple(unnamed_key(_read(line, f"{path}:{i + 1}")) for i, line in enumerate(lines) if _without_comment(line))
    if not keys:
        raise ConfigurationError(f"{path} holds no API key; write one key a line, or sha256: and its digest")
    return keys


def keys_of(environ: Mapping[str, str]) -> tuple[Key, ...]:
    """The keys in the environment."""
    key_texts = [each for each in environ.get(VARIABLE, "").split(",") if each.strip()]
    return tuple(unnamed_key(_read(each, f"{VARIABLE}, key {i + 1}")) for i, each in enumerate(key_texts))


def _without_comment(line: str) -> str:
    """A line without its comment."""
    return _COMMENT.sub("", line).strip()


def _read(text: str, place: str) -> str:
    key = _without_comment(text)
    if key.startswith("sha256:"):
        return _read_digest(key, place)
    if len(key) < SHORTEST:
        raise ConfigurationError(f"{place}: an API key has at least {SHORTEST} characters (openssl rand -hex 24)")
    return digest(key)


def _read_digest(text: str, place: str) -> str:
    match = _DIGEST.fullmatch(text)
    if match is None:
        raise ConfigurationError(f"{place}: sha256: is followed by 64 hexadecimal digits (printf %s KEY | sha256sum)")
    return match[1].lower()


# --- tables of the configuration ---------------------------------------------------------------------------------

_FIELDS = {each.name for each in fields(Key)} - {"digest", "other_digests"} | {"sha256", "env"}


def key_of_table(row: Any, place: str, environ: Mapping[str, str]) -> Key:
    """The key that a table `[[key]]` describes. Raises ConfigurationError naming the place; never shows a key."""
    if not isinstance(row, dict):
        raise ConfigurationError(f"{place}: expected a table [[key]]")
    table = cast("dict[str, Any]", row)
    for name in table:
        if name not in _FIELDS:
            raise ConfigurationError(f"{place}.{name}: unknown key {suggest(name, _FIELDS)}")
    values: dict[str, Any] = {"name": checked_name(table.get("name"), f"{place}.name")}
    values["digest"], *others = _digests_of_table(table, place, environ)
    values["other_digests"] = tuple(others)
    if "models" in table:
        values["models"] = _models(table["models"], f"{place}.models")
    for name in LIMITS:
        if name in table:
            values[name] = _count(table[name], f"{place}.{name}")
    if "expires" in table:
        values["expires"] = _moment(table["expires"], f"{place}.expires")
    if "metrics" in table:
        if not isinstance(table["metrics"], bool):
            raise ConfigurationError(f"{place}.metrics: expected true or false, found {table['metrics']!r}")
        values["metrics"] = table["metrics"]
    return Key(**values)


def checked_name(name: Any, place: str) -> str:
    """The name of a key. Raises ConfigurationError if it is invalid."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"{place}: write 1 to 64 letters, digits and . _ @ -, beginning with a letter or a digit"
        )
    return name


def _digests_of_table(table: Mapping[str, Any], place: str, environ: Mapping[str, str]) -> Sequence[str]:
    sources = [name for name in ("sha256", "env") if name in table]
    if len(sources) != 1:
        raise ConfigurationError(
            f"{place}: write either sha256, the key's digest, or env, the variable that holds the key"
            " (`toolspeak keys new NAME` makes both)"
        )
    (source,) = sources
    value = table[source]
    if source == "sha256" and isinstance(value, list) and value:
        digests = enumerate(cast("list[Any]", value))
        return [_read_digest(str(each).strip(), f"{place}.sha256[{i}]") for i, each in digests]
    if not isinstance(value, str):
        raise ConfigurationError(f"{place}.{source}: expected text" + (", or a list" if source == "sha256" else ""))
    if source == "sha256":
        return [_read_digest(value.strip(), f"{place}.sha256")]
    key = environ.get(value, "").strip()
    if not key:
        raise ConfigurationError(f"{place}.env: the variable {value} is not set")
    return [_read(key, f"{place}.env: {value}")]


def _models(value: Any, place: str) -> tuple[str, ...]:
    values = cast("list[Any]", value if isinstance(value, list) else [value])
    if not all(isinstance(each, str) and each for each in values):
        raise ConfigurationError(f"{place}: expected names of models, or globs")
    return tuple(values)


def _count(value: Any, place: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(
            f"{place}: expected a whole number from 1 on, found {value!r}; leave it out for no limit"
        )
    return value


def _moment(value: Any, place: str) -> float:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ConfigurationError(f"{place}: write a time with its zone, for instance {value.isoformat()}Z")
        return value.timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    raise ConfigurationError(f"{place}: expected a day or a time, for instance 2027-01-31, found {value!r}")


def checked_keys(keys: Iterable[Key], serves: Callable[[str], bool]) -> tuple[Key, ...]:
    """The keys, each once. Raises ConfigurationError for two keys with the same name or secret, and for a model without
    an upstream."""
    names: dict[str, Key] = {}
    digests: dict[str, Key] = {}
    for key in keys:
        if digests.get(key.digest) == key:
            continue  # for instance in the file and in the environment
        for each in key.digests:
            if each in digests:
                raise ConfigurationError(
                    f"the keys {digests[each].name!r} and {key.name!r} are the same: give each its own"
                )
            digests[each] = key
        if key.name in names:
            raise ConfigurationError(f"two keys have the name {key.name!r}; give each its own")
        for model in key.models:
            if not any(mark in model for mark in "*?[") and not serves(model):
                raise ConfigurationError(f"the key {key.name!r}: no upstream serves its model {model!r}")
        names[key.name] = key
    return tuple(names.values())


# --- requests ----------------------------------------------------------------------------------------------------


def find_key(headers: Iterable[tuple[bytes, bytes]], keys: Sequence[Key]) -> Key | None:
    """The key that a request carries (`Authorization: Bearer`, or `x-api-key`), if it is one of `keys`. Takes as long
    whichever it is."""
    secret = ""
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            secret = value[7:].strip().decode("latin-1")
        elif name == b"x-api-key" and not secret:
            secret = value.strip().decode("latin-1")
    secret_digest = digest(secret)
    match = None
    for key in keys:
        for each in key.digests:
            if hmac.compare_digest(secret_digest, each):
                match = key
    return match if secret else None
