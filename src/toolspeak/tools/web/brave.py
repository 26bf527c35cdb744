"""Brave Search, a service with a key: https://api-dashboard.search.brave.com/app/documentation."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from toolspeak.errors import ConfigurationError
from toolspeak.tools.web.search_provider import WebHit, ask_provider, hits_of, one_line, provider_url
from toolspeak.tools.web.web_client import USUAL_ACCESS, WebAccess

KEY_VARIABLE = "BRAVE_API_KEY"

_ADDRESS = "https://api.search.brave.com/res/v1/web"
_MOST = 20
_TAG = re.compile(r"</?strong>")


class BraveSearch:
    """Searches with Brave Search. The key is sent in a header, never in the URL.

    - `api_key`: the key of the subscription.
    - `url`: another address with the same API.

    Raises ConfigurationError for an address that is none, and for a key that cannot be a header.
    """

    name = "Brave Search"

    def __init__(self, api_key: str, url: str = _ADDRESS, access: WebAccess = USUAL_ACCESS) -> None:
        if not api_key or not api_key.isascii() or not api_key.isprintable():
            raise ConfigurationError(f"{KEY_VARIABLE} holds no key of Brave Search: one line of ASCII")
        self._key = api_key
        self._base = provider_url(url, self.name)
        self._access = access

    @classmethod
    def from_env(cls, environ: Mapping[str, str], url: str = "", access: WebAccess = USUAL_ACCESS) -> BraveSearch:
        """The provider with the key in `BRAVE_API_KEY`. Raises ConfigurationError if it is not set."""
        if not environ.get(KEY_VARIABLE):
            raise ConfigurationError(f"Brave Search needs a key: set {KEY_VARIABLE}")
        return cls(environ[KEY_VARIABLE].strip(), url or _ADDRESS, access)

    @property
    def key(self) -> str:
        """The resource that a search reads."""
        return self._base.key

    async def search(self, query: str, count: int) -> Sequence[WebHit]:
        """At most `count` hits, the best first. Raises ToolError if the server does not answer, or refuses."""
        content = await ask_provider(
            self.name,
            self._base,
            "/search",
            {"q": query, "count": min(count, _MOST), "text_decorations": "false"},
            self._access,
            {"x-subscription-token": self._key},
        )
        results: Any = content.get("web")
        entries = cast("dict[str, Any]", results).get("results") if isinstance(results, dict) else None
        hits = hits_of(entries, count, excerpt="description", date="age")
        return [replace(each, title=_plain(each.title), excerpt=_plain(each.excerpt)) for each in hits]


def _plain(text: str) -> str:
    """The text without the marks and character references of HTML, in one line."""
    return one_line(html.unescape(_TAG.sub("", text)))
