"""robots.txt: which pages of a host programs may read (RFC 9309)."""

from __future__ import annotations

import asyncio
import time
from urllib.robotparser import RobotFileParser

from toolspeak.errors import ToolError
from toolspeak.tools.web.body_decoding import text_of_page
from toolspeak.tools.web.web_addresses import WebUrl
from toolspeak.tools.web.web_client import WebAccess, WebClient

_KEPT_SECONDS = 3600.0
_MOST_HOSTS = 200
_MOST_CHARACTERS = 512 * 1024
"""How much of a file is read: RFC 9309 asks for 500 KiB at least."""


class RobotsFiles:
    """The robots.txt of the hosts that were visited, each kept for an hour."""

    def __init__(self, access: WebAccess) -> None:
        self._agent = access.user_agent.partition("/")[0]
        self._files: dict[str, tuple[float, RobotFileParser]] = {}

    async def check(self, url: WebUrl, client: WebClient) -> None:
        """Raises ToolError if the host's robots.txt forbids the page, or cannot be read because the server fails."""
        place = WebUrl(url.scheme, url.host, url.port, "/robots.txt")
        now = time.monotonic()
        kept_time, rules = self._files.get(str(place), (0.0, None))
        if rules is None or now - kept_time > _KEPT_SECONDS:
            rules = await self._read(place, client)
            if len(self._files) >= _MOST_HOSTS:
                self._files.clear()
            self._files[str(place)] = now, rules
        if not rules.can_fetch(self._agent, str(url)):
            raise ToolError(f"{url} was not fetched: {place} asks programs not to read it")

    async def _read(self, place: WebUrl, client: WebClient) -> RobotFileParser:
        answer = await client.get(place)
        rules = RobotFileParser()
        if answer.status >= 500 or answer.status == 429:
            raise ToolError(f"{place} could not be read (HTTP {answer.status}), so nothing of the host was: try later")
        text = text_of_page(answer.body, "")[:_MOST_CHARACTERS] if answer.status == 200 else ""
        await asyncio.to_thread(rules.parse, text.splitlines())
        return rules
