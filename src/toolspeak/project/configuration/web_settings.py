"""The tools for the web of a run, as its settings have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolspeak.errors import ConfigurationError
from toolspeak.tools import Tool, web


def web_tools(
    environ: Mapping[str, str], *, fetches: bool, search: str, allow: Sequence[str], robots: bool
) -> list[Tool]:
    """`fetch` and `search`, each if it is wanted. The parameters are those of `Setup`; `environ` has keys of providers.

    Raises ConfigurationError for settings that cannot be used, and without the extra `web`.
    """
    if not fetches and not search:
        if allow or robots:
            raise ConfigurationError("--web-allow and --robots are for the tools of --web: add it")
        return []
    access = web.WebAccess(allow=tuple(allow), robots=robots)
    tools = [web.fetch_tool(access)] if fetches else []
    return [*tools, web.search_tool(web.search_provider_of(search, environ, access))] if search else tools
