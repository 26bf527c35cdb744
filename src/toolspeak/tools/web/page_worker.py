"""Reads web pages in a process of its own, which can be killed: a page is written by a stranger.

It runs by its path, and imports only the standard library and `trafilatura`, from the folders that it is given.

- Arguments: JSON with the folders of the library, and the limits of time and memory. After a fifth of a page's time the
  search for its main text is given up, and the text is all of the page's.
- Standard input: for each page a JSON line with its URL and its length in bytes, and the bytes (UTF-8).
- Standard output: a JSON line when it is ready, and one for each page: its title, its main text as Markdown with its
  length, the length of all of its text, and where it leads by itself (`<meta http-equiv="refresh">`).

The process ends at the end of its input, if a page takes too long, and if it gets nothing to do for a while (POSIX).
See `page_text.py`.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
import signal
import sys
from contextlib import suppress
from html.parser import HTMLParser
from typing import Any

MOST_CHARACTERS = 1_000_000
"""The most characters of text that are returned: relative links make a text longer than its page."""

_NO_TEXT = frozenset(("script", "style", "noscript", "template", "svg", "head"))
_BREAKS = frozenset(
    ("p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "section", "article", "pre", "table")
)
_REFRESH = re.compile(r"\s*[\d.]*\s*[;,]?\s*(?:url\s*=\s*)?[\"']?([^\"'\s]+)", re.IGNORECASE)


class PlainText(HTMLParser):
    """Collects the text of a page, a line for each block, for pages in which no main text is found."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in _NO_TEXT
        if tag in _BREAKS:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = max(0, self._hidden - (tag in _NO_TEXT))

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.pieces.append(data)


def plain_text(page: str) -> str:
    """The text of a page, without its markup."""
    parser = PlainText()
    parser.feed(page)
    parser.close()
    lines = (" ".join(line.split()) for line in "".join(parser.pieces).split("\n"))
    return "\n".join(line for line in lines if line)


class MainTextTooSlow(BaseException):
    """The search for the main text is given up. Not an Exception: the library catches those."""


def give_up(_signal: int, _frame: object) -> None:
    raise MainTextTooSlow


def main_text(library: Any, tree: Any, url: str, seconds: float) -> str:
    """The main text of a page as Markdown; "" if none is found within so many seconds (POSIX)."""
    try:
        allow(seconds, give_up)
        text: str | None = library.extract(
            tree,
            url=url,
            output_format="markdown",
            include_comments=False,
            include_tables=True,
            include_links=True,
        )
        return text or ""
    except MainTextTooSlow:
        return ""
    finally:
        allow(seconds)


def read_page(library: Any, page: str, url: str, seconds: float) -> dict[str, str | int]:
    """The title, the text and the refresh of a page."""
    tree = library.load_html(page)
    title = refresh = text = ""
    if tree is not None:
        title = " ".join((tree.findtext(".//title") or "").split())
        for tag in tree.iterfind(".//meta[@http-equiv]"):
            if tag.get("http-equiv", "").strip().lower() == "refresh" and (m := _REFRESH.match(tag.get("content", ""))):
                refresh = m[1]
        text = main_text(library, tree, url, seconds)
    all_text = plain_text(page)
    text = text or all_text
    lengths = {"length": len(text), "all": len(all_text)}
    return {"title": title[:500], "refresh": refresh[:2000], "text": text[:MOST_CHARACTERS], **lengths}


def limit_memory(memory: int) -> None:
    """Limits this process (POSIX)."""
    with suppress(ImportError, ValueError, OSError):
        resource = importlib.import_module("resource")
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def allow(seconds: float, at_the_end: Any = None) -> None:
    """Sets the seconds after which the system ends this process, or a function is called."""
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, at_the_end or signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)


def allow_processor(seconds: float) -> None:
    """Sets the seconds of the processor's time after which the system ends this process, even within a library."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def main() -> None:
    settings = json.loads(sys.argv[1])
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM, signal.SIGPROF})
    allow(settings["idle"])
    limit_memory(settings["memory"])
    sys.path.extend(settings["library"])
    logging.disable()
    library = importlib.import_module("trafilatura")
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sink.write(b"{}\n")
    sink.flush()
    while True:
        allow_processor(0)
        allow(settings["idle"])
        if not (line := source.readline()):
            return
        header = json.loads(line)
        allow(settings["seconds"])
        allow_processor(settings["seconds"])
        page = source.read(header["bytes"]).decode("utf-8", "replace")
        try:
            answer = read_page(library, page, header["url"], settings["seconds"] / 5)
        except Exception as error:  # noqa: BLE001 - whatever a page makes of the library, the next page is read
            answer = {"error": type(error).__name__}
        sink.write(json.dumps(answer).encode() + b"\n")
        sink.flush()


if __name__ == "__main__":
    main()
