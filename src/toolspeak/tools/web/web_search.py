"""`search`: searches the web with a provider that the operator chose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from toolspeak.data.messages import TextPart
from toolspeak.data.tools import NO_VERSION, Effects
from toolspeak.errors import ConfigurationError, suggest
from toolspeak.tools import RunContext, Tool, tool
from toolspeak.tools.files.text_format import visible
from toolspeak.tools.returned_values import ReturnValue
from toolspeak.tools.web.body_decoding import seen_text
from toolspeak.tools.web.brave import BraveSearch
from toolspeak.tools.web.fetch import AS_DATA, refuse_secrets
from toolspeak.tools.web.search_provider import SearchProvider
from toolspeak.tools.web.searxng import SearxngSearch
from toolspeak.tools.web.web_client import USUAL_ACCESS, WebAccess

_MOST_HITS = 20
_MOST_QUERY = 400
_PROVIDERS = ("searxng", "brave")


def search_tool(provider: SearchProvider) -> Tool:
    """The tool `search`, which searches the web with a provider.

    A call is external and reads the provider's host, so it needs an approval, which may hold for the host.
    """

    def preview(query: str) -> str:
        return f"{provider.name}: {visible(query)}"

    @tool(
        name="search",
        aliases={"q": "query"},
        effects=Effects(reads={provider.key}, external=True, idempotent=True, destructive=False, version=NO_VERSION),
        preview=preview,
    )
    async def search(
        query: Annotated[str, Field(min_length=1, max_length=_MOST_QUERY), AfterValidator(refuse_secrets)],
        ctx: RunContext[Any],
        count: Annotated[int, Field(ge=1, le=_MOST_HITS)] = 8,
    ) -> ReturnValue:
        """Search the web. Returns titles, addresses and excerpts of pages.

        Args:
            query: What to search for.
            count: How many pages to return.
        """
        ctx.progress(f"asking {provider.name}")
        hits = (await provider.search(query, count))[:count]
        if not hits:
            return ReturnValue((TextPart(f"{provider.name} found nothing: try fewer or other words."),))
        entries = [{"title": h.title, "url": h.url, "excerpt": h.excerpt, "date": h.date} for h in hits]
        lines = [AS_DATA]
        for number, hit in enumerate(hits, 1):
            lines += ["", f"{number}. {hit.title}", f"   {hit.url}"]
            lines += [f"   {each}" for each in (hit.date, hit.excerpt) if each]
        return ReturnValue((TextPart(seen_text("\n".join(lines))),), entries)

    return replace(search, reveals_secrets=False)


def search_provider_of(text: str, environ: Mapping[str, str], access: WebAccess = USUAL_ACCESS) -> SearchProvider:
    """The provider that a setting names: `searxng:URL`, `brave`, or `brave:URL` for another address. Keys come from the
    environment. Raises ConfigurationError, with what to write."""
    kind, _, url = text.partition(":")
    match kind:
        case "searxng" if url:
            return SearxngSearch(url, access)
        case "searxng":
            raise ConfigurationError("write the address of your SearXNG server: searxng:http://localhost:8888")
        case "brave":
            return BraveSearch.from_env(environ, url, access)
        case _:
            raise ConfigurationError(f"there is no provider of searches {suggest(kind, _PROVIDERS)}")
