from toolspeak.tools.web.brave import BraveSearch
from toolspeak.tools.web.fetch import fetch_tool
from toolspeak.tools.web.page_text import PageReader
from toolspeak.tools.web.search_provider import SearchProvider, WebHit
from toolspeak.tools.web.searxng import SearxngSearch
from toolspeak.tools.web.web_client import Resolver, WebAccess
from toolspeak.tools.web.web_search import search_provider_of, search_tool

__all__ = [
    "BraveSearch",
    "PageReader",
    "Resolver",
    "SearchProvider",
    "SearxngSearch",
    "WebAccess",
    "WebHit",
    "fetch_tool",
    "search_provider_of",
    "search_tool",
]
