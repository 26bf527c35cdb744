"""The connection to an editor. It answers `initialize` before the agent is imported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from toolspeak.acp.client_messages import (
    PROTOCOL_VERSION,
    AuthenticateParams,
    ClientCapabilities,
    InitializeParams,
)
from toolspeak.acp.json_rpc import INVALID_PARAMS, Lines, Peer, RpcError, params_as
from toolspeak.data.messages import JSON
from toolspeak.version import __version__

_METHOD = "configuration"

AUTH_METHODS: list[JSON] = [
    {
        "id": _METHOD,
        "name": "Configure a model",
        "description": "Start toolspeak with `acp --model openai:NAME`, or set TOOLSPEAK_MODEL, in the editor's "
        "settings of this agent; a key goes into its environment, such as OPENAI_API_KEY.",
    }
]

_SECONDS = 5.0
"""How long requests are still answered after the editor has sent its last one."""

_CAPABILITIES: JSON = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": True},
    "sessionCapabilities": {
        "list": {},
        "delete": {},
        "additionalDirectories": {},
        "fork": {},
        "resume": {},
        "close": {},
    },
}


class EditorRequests(Protocol):
    """Answers the requests about sessions."""

    async def handle(self, method: str, params: msgspec.Raw) -> JSON:
        """Answers a request or takes a notification. Raises RpcError."""
        ...

    async def stop(self) -> None:
        """Stops what is under way in the sessions. It can go on later."""
        ...

    async def aclose(self) -> None: ...


class EditorConnection:
    """Serves one editor.

    - `open_requests`: makes what answers requests about sessions, at the first of them.
    - `import_agent`: imports what that needs; called in a thread once the editor has its first answer.
    - `has_model`: whether the command line names a model.
    """

    def __init__(
        self,
        lines: Lines,
        open_requests: Callable[[Peer, ClientCapabilities], EditorRequests],
        import_agent: Callable[[], object],
        *,
        has_model: bool,
    ) -> None:
        self._peer = Peer(lines, self._handle)
        self._open_requests = open_requests
        self._import_agent = import_agent
        self._has_model = has_model
        self._capabilities = ClientCapabilities()
        self._requests: EditorRequests | None = None

    async def serve(self) -> None:
        """Answers until the editor closes the connection. Then runs that are under way stop, and can go on later."""
        try:
            await self._peer.serve()
        finally:
            if self._requests is not None:
                await self._requests.stop()
            await self._peer.finish(_SECONDS)
            if self._requests is not None:
                await self._requests.aclose()

    async def _handle(self, method: str, params: msgspec.Raw) -> JSON:
        match method:
            case "initialize":
                return self._initialize(params_as(InitializeParams, params))
            case "authenticate":
                if params_as(AuthenticateParams, params).method_id != _METHOD:
                    raise RpcError(f"the only method is {_METHOD!r}", INVALID_PARAMS)
                return {}  # session/new says what is missing
            case _ if method.startswith("$/"):
                return None  # a notification that may be ignored
            case _:
                if self._requests is None:
                    self._requests = self._open_requests(self._peer, self._capabilities)
                return await self._requests.handle(method, params)

    async def _prepare(self) -> None:
        await asyncio.to_thread(self._import_agent)

    def _initialize(self, params: InitializeParams) -> JSON:
        if params.client_capabilities is not None:
            self._capabilities = params.client_capabilities
        self._peer.start(self._prepare())
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentCapabilities": _CAPABILITIES,
            "authMethods": [] if self._has_model else AUTH_METHODS,
            "agentInfo": {"name": "toolspeak", "title": "toolspeak", "version": __version__},
            "_meta": {"steering": {"supported": True}},
        }
