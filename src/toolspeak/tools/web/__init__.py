"""The tools for the web: `fetch` reads a page, `search` finds pages. They need the extra `web`.

Nothing is imported before it is used.
"""

# pyright: reportUnsupportedDunderAll=false

from toolspeak.lazy import lazy_names

_PLACES = {
    "BraveSearch": "toolspeak.tools.web.brave",
    "PageReader": "toolspeak.tools.web.page_text",
    "Resolver": "toolspeak.tools.web.web_client",
    "WebHit": "toolspeak.tools.web.search_provider",
    "SearchProvider": "toolspeak.tools.web.search_provider",
    "SearxngSearch": "toolspeak.tools.web.searxng",
    "WebAccess": "toolspeak.tools.web.web_client",
    "fetch_tool": "toolspeak.tools.web.fetch",
    "search_provider_of": "toolspeak.tools.web.web_search",
    "search_tool": "toolspeak.tools.web.web_search",
}

__all__ = list(_PLACES)

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
