"""Google's Gemini, over its own API (`generateContent`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Unpack
from urllib.parse import quote

from toolspeak.providers.api import ApiProvider, Endpoint
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.credentials import address_and_key
from toolspeak.providers.families import capabilities_of
from toolspeak.providers.http_settings import ConnectionOptions
from toolspeak.wire.gemini import GEMINI

GEMINI_URL = "https://generativelanguage.googleapis.com"
VERSION = "v1beta"

_VERSION_SUFFIX = re.compile(r"/v\d\w*/?$")


class GeminiProvider(ApiProvider):
    """A model at `{base_url}/v1beta/models/{model}:streamGenerateContent`, by default Google's.

    `base_url`: a version at its end (`/v1beta`) is kept.
    `api_key`: sent in a header, never in the address.
    Other parameters: see `ApiProvider`.

    Raises UnknownProvider without base URL and key, ConfigurationError for an invalid setting.
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
            api="Gemini's API",
        )
        collection = "" if "/" in model else "models/"
        version = "" if _VERSION_SUFFIX.search(base_url.partition("?")[0]) else f"{VERSION}/"
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
        model_capabilities = capabilities or capabilities_of("gemini", model, own_server=bool(base_url))
        super().__init__("gemini", model, endpoint, options=options, capabilities=model_capabilities, **connection)

    @classmethod
    def from_env(cls, model: str, environ: Mapping[str, str], **settings: Any) -> GeminiProvider:
        """Reads GEMINI_API_KEY, or else GOOGLE_API_KEY, and GEMINI_BASE_URL from `environ`; an empty variable counts
        as unset."""
        key = environ.get("GEMINI_API_KEY", "").strip() or environ.get("GOOGLE_API_KEY")
        return cls(model, base_url=environ.get("GEMINI_BASE_URL"), api_key=key, **settings)
