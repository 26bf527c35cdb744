"""SearXNG, a search engine of one's own: https://docs.searxng.org/dev/search_api.html."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.errors import ToolError
from toolspeak.tools.web.search_provider import WebHit, ask_provider, hits_of, provider_url
from toolspeak.tools.web.web_client import USUAL_ACCESS, WebAccess


class SearxngSearch:
    """Searches with a SearXNG server. Its `settings.yml` must list `json` under `search: formats:`.

    `url`: the server's address, such as http://localhost:8888. Raises ConfigurationError for one that is none.
    """

    name = "SearXNG"

    def __init__(self, url: str, access: WebAccess = USUAL_ACCESS) -> None:
        self._base = provider_url(url, self.name)
        self._access = access

    @property
    def key(self) -> str:
        """The resource that a search reads."""
        return self._base.key

    async def search(self, query: str, count: int) -> Sequence[WebHit]:
        """At most `count` hits, the best first. Raises ToolError if the server does not answer, or refuses."""
        try:
            content = await ask_provider(
                self.name, self._base, "/search", {"q": query, "format": "json"}, self._access, {}
            )
        except ToolError as error:
            if "HTTP 403" in str(error):
                raise ToolError(
                    f"{error}: the server's settings.yml must list `json` under `search: formats:`"
                ) from None
            raise
        return hits_of(content.get("results"), count, excerpt="content", date="publishedDate")
