"""Reads web pages in a process of its own, which can be killed: a page is written by a stranger.

It runs by its path, and imports only the standard library and `trafilatura`, from the folders that it is given.

- Arguments: JSON with the folders of the library, and the limits of time and memory.
- Standard input: for each page a JSON line with its URL and its length in bytes, and the bytes (UTF-8).
- Standard output: a JSON line when it is ready, and up to three for each page, each better than the one before: all of
  its text with its length; its title, and where it leads by itself (`<meta http-equiv="refresh">`); its main text as
  Markdown. The last one has `"is_last": true`. So a page that costs the library too much still has a text.

The process ends at the end of its input, if a page takes too long (a fifth of its time is for its main text, which the
library may search for in C, where nothing else stops it), and if it gets nothing to do for a while (POSIX).
See `page_text.py`.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
import signal
import sys
from collections.abc import Iterator, Mapping
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
        self._depth_without_text = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._depth_without_text += tag in _NO_TEXT
        if tag in _BREAKS:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._depth_without_text = max(0, self._depth_without_text - (tag in _NO_TEXT))

    def handle_data(self, data: str) -> None:
        if not self._depth_without_text:
            self.pieces.append(data)


def plain_text(page: str) -> str:
    """The text of a page, without its markup."""
    parser = PlainText()
    parser.feed(page)
    parser.close()
    lines = (" ".join(line.split()) for line in "".join(parser.pieces).split("\n"))
    return "\n".join(line for line in lines if line)


def readings(library: Any, page: str, url: str, seconds: float) -> Iterator[dict[str, Any]]:
    """What is known of a page, each time all of it. Ends the process if all but the first take more than `seconds`."""
    text = plain_text(page)
    lengths = {"length": len(text), "all": len(text)}
    answer: dict[str, Any] = {"title": "", "refresh": "", "text": text[:MOST_CHARACTERS], **lengths}
    yield answer
    allow(seconds)
    tree = library.load_html(page)
    if tree is None:
        return
    answer["title"] = " ".join((tree.findtext(".//title") or "").split())[:500]
    for tag in tree.iterfind(".//meta[@http-equiv]"):
        if tag.get("http-equiv", "").strip().lower() == "refresh" and (m := _REFRESH.match(tag.get("content", ""))):
            answer["refresh"] = m[1][:2000]
    yield answer
    main_text = library.extract(
        tree, url=url, output_format="markdown", include_comments=False, include_tables=True, include_links=True
    )
    if main_text:
        yield {**answer, "text": main_text[:MOST_CHARACTERS], "length": len(main_text)}


def limit_memory(memory: int) -> None:
    """Limits this process (POSIX)."""
    with suppress(ImportError, ValueError, OSError):
        resource = importlib.import_module("resource")
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def allow(seconds: float) -> None:
    """Sets the seconds after which the system ends this process, even within a library."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def allow_processor(seconds: float) -> None:
    """Sets the seconds of the processor's time after which the system ends this process."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def write(answer: Mapping[str, Any]) -> None:
    """Writes a line for the process that asks."""
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    settings = json.loads(sys.argv[1])
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM, signal.SIGPROF})
    allow(settings["idle"])
    limit_memory(settings["memory"])
    sys.path.extend(settings["library"])
    logging.disable()
    library = importlib.import_module("trafilatura")
    source = sys.stdin.buffer
    write({"is_last": True})
    while True:
        allow_processor(0)
        allow(settings["idle"])
        if not (line := source.readline()):
            return
        header = json.loads(line)
        allow(settings["seconds"])
        allow_processor(settings["seconds"])
        page = source.read(header["bytes"]).decode("utf-8", "replace")
        answer: dict[str, Any] = {}
        try:
            for answer in readings(library, page, header["url"], settings["seconds"] / 5):
                write(answer)
        except Exception as error:  # noqa: BLE001 - whatever a page makes of the library, the next page is read
            answer = answer or {"error": type(error).__name__}
        write({**answer, "is_last": True})


if __name__ == "__main__":
    main()
