"""Quotes: calls that may be an example, and the rules that decide it.

A call in inline code, in the middle of a sentence, or in a code block with other text is an example. A fenced or
indented code block of calls alone is an example if text follows it. It is a call if it ends the turn and at most a
short paragraph leads to it. Until then the block is pending. See the table in docs/design.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import field
from typing import Any, Literal

from toolspeak.data.deltas import CallMalformed, CallStarted, Delta
from toolspeak.data.values import quick
from toolspeak.dialects.text.markdown import HTML_END, HTML_END_START, Markdown, is_uncased
from toolspeak.dialects.text.pending_text import join_pieces, unlimited_buffer
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Buffer

QuoteKind = Literal["fence", "code", "indented", "sentence", "span", "cited"]
"""The place of quoted calls.

- `fence`: a code block that begins with calls.
- `code`: a code block with other text before the calls.
- `indented`: an indented code block.
- `sentence`: the middle of a sentence.
- `span`: inline code of several lines.
- `cited`: a block quote, or a table row.
"""

MAX_LEAD = 256
"""The limit, in characters, of the text before a code block that runs at the end of a turn."""

NOT_RUN = "quoted_call"
"""The code of a call that did not run because it was in an example's place."""

MAX_REPORTS = 8
"""How many calls in sentences one turn reports to the model at most."""

_BLANK = re.compile(r"[ \t]*")
QUOTATION = "\"'“”„‟‘’«»‹›」』》〉】〕＂＇"
_STOPS = ",;:!?，、；：！？؟،؛۔।"
_CLOSERS = f"{QUOTATION}{_STOPS}.…。．｡)]}}）］｝`*_~|"
_JOINTS = f"(–—-&/|{QUOTATION}{_STOPS}"
_FENCE_LINE = re.compile(r"\n[ \t]*(?:```|~~~)")


@quick(frozen=False)
class Quote:
    """Calls that may be an example, and the text after them.

    `offset`: where they begin in the turn.
    `before`: the parser's state before them.
    `state`: the parser's state that continues.
    `lead`: how much text leads to them.
    `fence`: what opened the code block around them; empty without one.
    `is_fence_closed`: that code block has ended.
    `over`: the last block of calls has ended.
    `next_message`: the code block began in an earlier message.
    `follows_quotation`: the calls follow directly after a quotation mark.
    `raw`: their text. `deltas`: the same text read as calls.
    `drops`: places of special tokens in `raw`, which are not text.
    """

    kind: QuoteKind
    offset: int
    before: Any
    state: Callable[[str, int, list[Delta]], int]
    lead: Literal["none", "short", "long"]
    fence: str
    is_fence_closed: bool
    over: bool = False
    next_message: bool = False
    follows_quotation: bool = False
    raw: Buffer = field(default_factory=unlimited_buffer)
    drops: list[int] = field(default_factory=list[int])
    deltas: list[Delta] = field(default_factory=list[Delta])
    joined_count: int = 0  # the number of deltas that are joined already

    @property
    def text(self) -> str:
        return self.raw.value()

    def join(self) -> None:
        """Joins the pieces of text and arguments that came since the last call."""
        self.joined_count = join_pieces(self.deltas, self.joined_count)

    @property
    def gap(self) -> str:
        """The trailing white space that the last block consumed; a block without an end marker does that."""
        text = self.text
        return text[len(text.rstrip()) :]

    @property
    def broken(self) -> bool:
        """Whether one of the blocks is unreadable."""
        return any(isinstance(delta, CallMalformed) and delta.whole_block for delta in self.deltas)

    def has_call_of(self, names: Collection[str]) -> bool:
        """Whether the quote holds a call of one of these tools, or of any tool without `names`."""
        return any(isinstance(delta, CallStarted) and (not names or delta.name in names) for delta in self.deltas)

    @property
    def name(self) -> str:
        """The tool name of the first call; empty if no call began."""
        return next((delta.name for delta in self.deltas if isinstance(delta, CallStarted)), "")

    @property
    def runs_at_end(self) -> bool:
        """Whether these are calls if the turn ends here."""
        if self.kind in ("span", "cited"):
            return False
        if self.kind == "code":
            return self.next_message and not self.is_fence_closed
        if self.kind == "sentence":
            return True
        return self.lead != "long" and not (self.broken and _FENCE_LINE.search(self.text, 3))


def lead_of(here: Markdown, length: int) -> Literal["none", "short", "long"]:
    """How much text leads to a code block here. The text has `length` characters."""
    if not here.last:
        return "none"
    return "long" if length > MAX_LEAD or here.last in ":：" else "short"


def sentence_continues(rest: str, ending: bool) -> bool | None:
    """Whether a sentence continues after the call or marker in it. None: more text is needed."""
    blank = _BLANK.match(rest)
    stop = blank.end() if blank else 0
    if stop == len(rest):
        return None if not ending and len(rest) < MAX_CANDIDATE else False
    char = rest[stop]
    if char == "<":
        html = HTML_END.match(rest, stop) is not None
        coming = not html and not ending and HTML_END_START.fullmatch(rest, stop)
        return None if coming else html
    return char.islower() or is_uncased(char) or char in _JOINTS if stop else is_uncased(char) or char in _CLOSERS


def is_mention(
    here: Markdown, rest: str, has_text: bool, results: Literal["", "made", "none"], ending: bool
) -> bool | None:
    """Whether the text only mentions a marker of reasoning or results, which opens nothing; None asks for more text.

    `rest`: the text after the marker.
    `has_text`: the turn has text before the marker.
    `results`: for a marker of results, whether the turn has `made` calls or `none`; empty for reasoning.
    `ending`: no text follows `rest`.
    """
    place = here.place
    if place in ("item", "cited", "quoted"):
        return True
    if place == "indented":
        return has_text and results != "made"
    if place == "sentence" or here.joined:
        return sentence_continues(rest, ending)
    if not has_text or results or (rest and rest[0] not in " \t"):
        return False
    word = rest.lstrip(" \t")
    return word[0].islower() if word else sentence_continues(rest, ending)


def mentioned_call(name: str, offset: int, example: str, index: int) -> CallMalformed:
    """The report of a call in the middle of a sentence, for a turn with other calls."""
    reason = (
        f"the call of {name!r} was in the middle of a sentence, like an example, so it did not run. The "
        f"others ran. If you meant it, write it alone, on a line of its own:\n{example}"
    )
    return CallMalformed(index, "", NOT_RUN, reason, offset, name, True)


def example_not_run(quote: Quote, example: str, index: int) -> CallMalformed:
    """The report of a call in an example's place, for a turn without other calls."""
    name = quote.name or None
    where = "in the middle of a sentence" if quote.kind == "sentence" else "in code"
    subject = f"the call of {name!r}" if name else "what looks like a call"
    reason = (
        f"{subject} was {where}, like an example, so it did not run. To run it, write it alone, without a code "
        f"fence or quotes around it:\n{example}\nIf it was an example, write your answer again, with text after it."
    )
    return CallMalformed(index, "", NOT_RUN, reason, quote.offset, name, True)
