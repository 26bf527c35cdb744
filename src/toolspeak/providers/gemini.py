"""Google's Gemini, by its own API (`generateContent`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Unpack
from urllib.parse import quote

from toolspeak.providers.api import ApiProvider, Endpoint, address_and_key
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.families import capabilities_of
from toolspeak.providers.http_client import ConnectionOptions
from toolspeak.wire.gemini import GEMINI

GEMINI_URL = "https://generativelanguage.googleapis.com"
VERSION = "v1beta"

_VERSIONED = re.compile(r"/v\d\w*/?$")


class GeminiProvider(ApiProvider):
    """A model behind `{base_url}/v1beta/models/{model}:streamGenerateContent`; a `Provider`.

    Without `base_url` it is Google's own; one that ends in a version (`/v1beta`) keeps it. The key goes into a
    header, never into the address. `options` go into every request (`temperature`, `thinkingConfig`, …); a request's
    own come before them. `capabilities` in place of what is known of the model; `connection` is `timeout`, `retries`,
    `ca_file` and `clock` (`ConnectionOptions`). Makes no connection before the first turn.

    Raises UnknownProvider if there is neither key nor base URL, ConfigurationError for a setting that cannot be.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        options: Mapping[str, object] | None = None,
        capabilities: Capabilities | None = None,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        base_url, key = address_and_key(
            model,
            base_url,
            api_key,
            keys="GEMINI_API_KEY (or GOOGLE_API_KEY)",
            address="GEMINI_BASE_URL",
            speaks="Gemini's API",
        )
        collection = "" if "/" in model else "models/"
        version = "" if _VERSIONED.search(base_url.partition("?")[0]) else f"{VERSION}/"
        endpoint = Endpoint(
            base_url or GEMINI_URL,
            f"{version}{collection}{quote(model, safe='/@')}:streamGenerateContent",
            GEMINI,
            {"x-goog-api-key": key} if key else {},
            key,
            "Check GEMINI_BASE_URL.",
            query={"alt": "sse"},
            listing=f"{version}models",
        )
        known = capabilities or capabilities_of("gemini", model, own_server=bool(base_url))
        super().__init__("gemini", model, endpoint, options=options, capabilities=known, **connection)

    @classmethod
    def from_env(cls, model: str, environ: Mapping[str, str], **settings: Any) -> GeminiProvider:
        """With GEMINI_API_KEY, or else GOOGLE_API_KEY, and GEMINI_BASE_URL of `environ`; an empty one counts as not
        set."""
        key = environ.get("GEMINI_API_KEY", "").strip() or environ.get("GOOGLE_API_KEY")
        return cls(model, base_url=environ.get("GEMINI_BASE_URL"), api_key=key, **settings)
