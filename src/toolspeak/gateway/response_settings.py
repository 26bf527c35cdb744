"""Where responses with memory are kept, and how much of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ResponseSettings:
    """Where responses are kept that clients may name: `store` is the path of a SQLite file or a `postgresql://` URL.

    One is kept for `retention_days` behind its last use. A key has `responses` of them at most and `key_bytes` of all;
    what does not fit any more is the one that was used longest ago. A response of more than `response_bytes` is not
    kept. An answer waits `seconds` for the database. `background`: clients may have an answer made, and fetch it
    later.
    """

    store: str
    retention_days: float = 30.0
    background: bool = False
    responses: int = 10_000
    response_bytes: int = 4 * 1024 * 1024
    key_bytes: int = 1024 * 1024 * 1024
    seconds: float = 10.0
