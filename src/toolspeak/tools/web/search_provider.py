"""What every provider of web searches does, and the hits that it finds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast
from urllib.parse import urlencode

from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, ToolError
from toolspeak.sandbox.host_rules import HostRule
from toolspeak.tools.files.text_format import visible
from toolspeak.tools.web.web_addresses import WebUrl, parse_url
from toolspeak.tools.web.web_client import WebAccess, WebClient


@quick()
class WebHit:
    """A page that a search has found.

    - `excerpt`: what the provider shows of it; "" for nothing.
    - `date`: when it was published, as the provider writes it; "" if it does not say.
    """

    title: str
    url: str
    excerpt: str = ""
    date: str = ""


class SearchProvider(Protocol):
    """Searches the web.

    - `name`: for messages.
    - `key`: the resource that a search reads: `web:` and the provider's host.
    """

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> str: ...

    async def search(self, query: str, count: int) -> Sequence[WebHit]:
        """At most `count` hits, the best first. Raises ToolError if the provider does not answer, or refuses."""
        ...


def provider_url(url: str, name: str) -> WebUrl:
    """The address of a provider. Raises ConfigurationError for one that is not an address."""
    try:
        return parse_url(url)
    except ToolError as error:
        raise ConfigurationError(f"the address of {name}: {error}") from None


async def ask_provider(
    name: str, base: WebUrl, path: str, query: Mapping[str, str | int], access: WebAccess, headers: Mapping[str, str]
) -> Mapping[str, Any]:
    """The JSON object that a provider answers. No redirect is followed: the headers may hold a key.

    The provider's own host may be at any address: the operator named it. Raises ToolError.
    """
    target = f"{base.target.rstrip('/')}{path}?{urlencode(query)}"
    url = WebUrl(base.scheme, base.host, base.port, target)
    client = WebClient(access, [HostRule(base.host, base.port)])
    answer = await client.get(url, headers={"accept": "application/json", **headers}, redirects=False)
    if answer.status != 200:
        hint = {401: ": its key was refused", 403: ": it refuses this search", 429: ": too many searches; wait"}
        redirect = ": its address redirects, which is not followed" if answer.redirect is not None else ""
        raise ToolError(f"{name} answered with HTTP {answer.status}{hint.get(answer.status, redirect)}")
    try:
        content = json.loads(answer.body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ToolError(f"{name} did not answer with a JSON object")
    return cast("dict[str, Any]", content)


def hits_of(entries: object, count: int, *, excerpt: str, date: str) -> list[WebHit]:
    """The hits in a provider's list. `excerpt`, `date`: the names of these fields. Entries without a URL that can be
    fetched are left out."""
    hits: list[WebHit] = []
    for entry in cast("list[object]", entries) if isinstance(entries, list) else []:
        if not isinstance(entry, dict) or len(hits) >= count:
            continue
        fields = cast("dict[str, object]", entry)
        texts = {name: fields.get(name) for name in ("title", "url", excerpt, date)}
        title, url, excerpt_text, date_text = (one_line(each) for each in texts.values())
        try:
            parse_url(url)
        except ToolError:
            continue
        hits.append(WebHit(title or url, url, excerpt_text, date_text))
    return hits


def one_line(value: object) -> str:
    """A text in one line, at most 1,000 characters of it; "" for what is no text."""
    return visible(" ".join(value.split()))[:1000] if isinstance(value, str) else ""
