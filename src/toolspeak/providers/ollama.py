"""Ollama, over its own API (`/api/chat`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Unpack, cast

from toolspeak.data.messages import JSON
from toolspeak.errors import ProviderError
from toolspeak.providers.api import ApiProvider, Endpoint
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.credentials import bearer, require_valid_key
from toolspeak.providers.families import capabilities_of
from toolspeak.providers.http_settings import ConnectionOptions
from toolspeak.providers.model_rows import model_rows
from toolspeak.wire.base import ModelRequest
from toolspeak.wire.ollama import OLLAMA

DEFAULT_PORT = 11434

NO_TRUNCATION: Mapping[str, JSON] = MappingProxyType({"truncate": False, "shift": False})
"""Options of every request: a conversation longer than the context is an error; Ollama does not cut off its beginning.

Servers that are too old for these options cut it off silently."""


class OllamaProvider(ApiProvider):
    """A model at `{host}/api/chat`. Other parameters: see `ApiProvider`.

    `host`: as in Ollama's OLLAMA_HOST: a URL, `host:port`, a host or a port.
    `api_key`: for ollama.com.
    `options`: `num_ctx`, `think`, `keep_alive`, … A conversation that is longer than the context is an error
    (`NO_TRUNCATION`), unless they hold `{"truncate": True}`.
    `connection`: the time limit for the first byte includes loading the model.

    Raises ConfigurationError for an invalid setting.
    """

    def __init__(
        self,
        model: str,
        *,
        host: str | None = None,
        api_key: str | None = None,
        options: Mapping[str, object] | None = None,
        capabilities: Capabilities | None = None,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        key = require_valid_key(api_key)
        endpoint = Endpoint(
            host_url(host or ""),
            "api/chat",
            OLLAMA,
            bearer(key),
            key,
            "Check OLLAMA_HOST.",
            lines=True,
            listing="api/tags",
        )
        super().__init__(
            "ollama",
            model,
            endpoint,
            options={**NO_TRUNCATION, **(options or {})},
            capabilities=capabilities or capabilities_of("ollama", model),
            **connection,
        )

    @classmethod
    def from_env(cls, model: str, environ: Mapping[str, str], **settings: Any) -> OllamaProvider:
        """Reads OLLAMA_HOST and OLLAMA_API_KEY from `environ`; an empty variable counts as unset."""
        return cls(model, host=environ.get("OLLAMA_HOST"), api_key=environ.get("OLLAMA_API_KEY"), **settings)

    async def window(self) -> tuple[int, str]:
        """The window that Ollama gives the model, in tokens, and what says so; (0, "") if nothing does. For a model
        that is not loaded and has no `num_ctx`, the most that it can have. Raises ProviderError if Ollama does not
        answer."""
        own = self._options.get("num_ctx")
        if isinstance(own, int) and own > 0:
            return own, "num_ctx, as you set it"
        for name, row in model_rows(await self._api.get("api/ps")).items():
            tokens = row.get("context_length")
            if name in (self._model, f"{self._model}:latest") and isinstance(tokens, int) and tokens > 0:
                return tokens, "context_length of the loaded model"
        async with self._api.post("api/show", {"model": self._model}) as reply:
            answer = await reply.json()
        description = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
        parameter = re.search(r"^num_ctx\s+(\d{1,9})\s*$", str(description.get("parameters", "")), re.MULTILINE)
        if parameter is not None:
            return int(parameter[1]), "num_ctx of the model"
        details = description.get("model_info")
        for name, tokens in cast("dict[str, Any]", details).items() if isinstance(details, dict) else ():
            if name.endswith(".context_length") and isinstance(tokens, int) and tokens > 0:
                return tokens, f"{name}, the most that it can have; OLLAMA_CONTEXT_LENGTH or num_ctx gives it less"
        return 0, ""

    def _refine_error(self, error: ProviderError, request: ModelRequest) -> ProviderError:
        """Adds the remedies that only Ollama has."""
        if error.status == 404:
            return error.with_message(
                f"{self._api.address} has no model {self._model!r} (HTTP 404). Fetch it: ollama pull {self._model}. "
                "If `ollama list` shows it, check OLLAMA_HOST."
            )
        if "does not support tools" in str(error):
            return error.with_message(f"{error} Choose a dialect: the model then writes its calls as text.")
        return error


def host_url(host: str) -> str:
    """The base URL for a value of OLLAMA_HOST, read as Ollama's own clients read it (ollama 0.6, `_parse_host`).

    An empty value is `http://127.0.0.1:11434`. A scheme without a port has the scheme's own port. 0.0.0.0, with which a
    server listens on all interfaces, becomes this machine.
    """
    host = host.strip().rstrip("/")
    scheme, mark, rest = host.partition("://")
    if not mark:
        scheme, rest = "http", host
    place, slash, path = rest.partition("/")
    name, colon, port = place.rpartition(":") if not place.endswith("]") else (place, "", "")
    if not colon:
        name, port = place, ("443" if scheme == "https" else "80") if mark else str(DEFAULT_PORT)
    name = "127.0.0.1" if name in ("", "0.0.0.0") else name
    return f"{scheme}://{name}:{port or DEFAULT_PORT}{slash}{path}"
