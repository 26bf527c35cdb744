"""Checks the built site: python docs/check_site.py build/docs

Every link within the site leads to a page, and to an anchor that is on it. A page may link to another site; its
scripts, styles, images and fonts come with this one.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADING = {
    ("script", "src"),
    ("link", "href"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("object", "data"),
}
LOADED_BY_STYLE = re.compile(r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s]+)""")
LOADED_BY_SVG = re.compile(r"""<(?:image|use|script)\b[^>]*href=["']((?:https?:)?//[^"']+)""")


class Page(HTMLParser):
    """The links and the anchors of a page, and the addresses of what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value)
            elif (tag, name) in LOADING:
                self.loads.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


def problems(site: Path) -> list[str]:
    """What is wrong with the site in this folder, a sentence each."""
    files = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]
    pages = {path: Page(path.read_text("utf-8")) for path in files}
    result = [] if pages else [f"{site}: has no pages"]
    for path, page in pages.items():
        place = path.relative_to(site)
        for address in page.loads + page.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in page.loads and parts.scheme != "data":
                    result.append(f"{place}: loads {address}, which is not part of the site")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            if not target.is_file():
                result.append(f"{place}: {address} leads to no file")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                result.append(f"{place}: {address} leads to no anchor")
    for pattern, suffix in ((LOADED_BY_STYLE, "*.css"), (LOADED_BY_SVG, "*.svg")):
        for path in sorted(site.rglob(suffix)):
            addresses = pattern.findall(path.read_text("utf-8"))
            place = path.relative_to(site)
            result += [f"{place}: loads {address}, which is not part of the site" for address in addresses]
    return result


if __name__ == "__main__":
    lines = problems(Path(sys.argv[1]).resolve())
    print("\n".join(lines) or "the site is whole, and loads nothing from elsewhere")
    sys.exit(bool(lines))
