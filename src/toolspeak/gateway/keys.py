"""API keys: known by their digests alone, and by nothing else."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from toolspeak.errors import UsageError

VARIABLE = "TOOLSPEAK_API_KEYS"
"""Keys in the environment, with commas between them; written as in a file."""

_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})")
_COMMENT = re.compile(r"(^|\s)#.*")  # a key may hold the sign
SHORTEST = 16
"""Characters that a key has at least: a digest of less is found by trying."""


def digest(key: str) -> str:
    """SHA-256 (hex) of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def read_keys(path: str | Path) -> tuple[str, ...]:
    """The digests of a file's keys: a line holds a key, or `sha256:` and its digest in hex. `#` in front, or
    behind a space, begins a comment.

    Raises UsageError naming the line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the API keys of {path} cannot be read: {error}") from error
    found = tuple(_read(line, f"{path}:{i + 1}") for i, line in enumerate(lines) if _written(line))
    if not found:
        raise UsageError(f"{path} holds no API key: write one a line, or sha256: and its digest")
    return found


def keys_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The digests of the keys in the environment."""
    listed = [each for each in environ.get(VARIABLE, "").split(",") if each.strip()]
    return tuple(_read(each, f"{VARIABLE}, key {i + 1}") for i, each in enumerate(listed))


def _written(line: str) -> str:
    """A line without its comment."""
    return _COMMENT.sub("", line).strip()


def _read(text: str, place: str) -> str:
    key = _written(text)
    if key.startswith("sha256:"):
        known = _DIGEST.fullmatch(key)
        if known is None:
            raise UsageError(f"{place}: sha256: is followed by 64 hexadecimal digits (printf %s KEY | sha256sum)")
        return known[1].lower()
    if len(key) < SHORTEST:
        raise UsageError(f"{place}: an API key has {SHORTEST} characters at least (openssl rand -hex 24)")
    return digest(key)


def admitted(headers: Iterable[tuple[bytes, bytes]], digests: Sequence[str]) -> str | None:
    """The digest of the key that a request carries (`Authorization: Bearer`, or `x-api-key`), if it is one of
    `digests`. Takes as long whichever it is."""
    given = ""
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            given = value[7:].strip().decode("latin-1")
        elif name == b"x-api-key" and not given:
            given = value.strip().decode("latin-1")
    asked = digest(given)
    found = None
    for known in digests:
        if hmac.compare_digest(asked, known):
            found = known
    return found if given else None
