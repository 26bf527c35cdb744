"""Ollama, by its own API (`/api/chat`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Unpack

from toolspeak.data.messages import JSON
from toolspeak.errors import ProviderError
from toolspeak.providers.api import ApiProvider, Endpoint, bearer, checked_key
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.families import capabilities_of
from toolspeak.providers.http_client import ConnectionOptions
from toolspeak.wire.base import ModelRequest
from toolspeak.wire.ollama import OLLAMA

DEFAULT_PORT = 11434

NOTHING_CUT: Mapping[str, JSON] = MappingProxyType({"truncate": False, "shift": False})
"""Options of every request: a conversation longer than the context is an error instead of being cut at its beginning.

Servers too old to know them cut without a word."""


class OllamaProvider(ApiProvider):
    """A model behind `{host}/api/chat`; a `Provider`.

    `host` is written as Ollama's own OLLAMA_HOST: an address, `host:port`, or either alone. `api_key` is for
    ollama.com. `options` go into every request (`num_ctx`, `temperature`, `think`, `keep_alive`, …); a request's own
    come before them. `capabilities` in place of what is known of the model; `connection` is `timeout` (loading the
    model counts for the first byte), `retries`, `ca_file` and `clock` (`ConnectionOptions`). Makes no connection before
    the first turn.

    A conversation that does not fit into the context is refused (`NOTHING_CUT`); `options={"truncate": True}` has it
    cut. Raises ConfigurationError for a setting that cannot be.
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
        key = checked_key(api_key)
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
            options={**NOTHING_CUT, **(options or {})},
            capabilities=capabilities or capabilities_of("ollama", model),
            **connection,
        )

    @classmethod
    def from_env(cls, model: str, environ: Mapping[str, str], **settings: Any) -> OllamaProvider:
        """With OLLAMA_HOST and OLLAMA_API_KEY of `environ`; an empty one counts as not set."""
        return cls(model, host=environ.get("OLLAMA_HOST"), api_key=environ.get("OLLAMA_API_KEY"), **settings)

    def _explained(self, error: ProviderError, request: ModelRequest) -> ProviderError:
        """The error with what to do about it, where only Ollama has the remedy."""
        if error.status == 404:
            return error.with_message(
                f"{self._api.address} has no model {self._model!r} (HTTP 404). Fetch it: ollama pull {self._model}. "
                "If `ollama list` shows it, check OLLAMA_HOST."
            )
        if "does not support tools" in str(error):
            return error.with_message(f"{error} Let it write its calls as text instead: choose a dialect.")
        return error


def host_url(host: str) -> str:
    """The base URL of what OLLAMA_HOST holds, read as Ollama's own clients read it (ollama 0.6, `_parse_host`).

    Nothing is `http://127.0.0.1:11434`; a scheme alone brings its own port; what a server listens on everywhere with
    (0.0.0.0) is reached on this machine.
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
