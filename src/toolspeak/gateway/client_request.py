"""One HTTP request to the gateway, from its arrival to its line in the log."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from toolspeak.data.messages import JSON
from toolspeak.gateway.generation import Generation
from toolspeak.gateway.http.asgi import Fields, Headers, Receive, Scope, Send, send_whole
from toolspeak.gateway.http.cors import cors_headers
from toolspeak.gateway.settings.api_keys import Key
from toolspeak.gateway.stored.response_memory import Keeping
from toolspeak.gateway.usage.accounts import Account
from toolspeak.wire.base import WireFormat
from toolspeak.wire.openai_chat import OPENAI_CHAT


@dataclass(slots=True)
class Request:
    """One request, and the facts for the log."""

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
        """Without a slash at its end, which some clients write."""
        path: str = self.scope["path"]
        return path[:-1] if path.endswith("/") and path != "/" else path

    @property
    def owner(self) -> str:
        """Whose responses the client may name: those of its key."""
        return "" if self.key is None else self.key.name

    def allows(self, model: str) -> bool:
        """Whether the client may know of a model."""
        return self.key is None or self.key.allows(model)

    @property
    def headers(self) -> Headers:
        limits = self.account.headers if self.account is not None else []
        return [(b"x-request-id", self.id.encode()), *cors_headers(self.scope, self.current.settings.cors), *limits]

    def log_fields(self, seconds: float) -> Mapping[str, JSON]:
        """What the log says of the request once it is over."""
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
