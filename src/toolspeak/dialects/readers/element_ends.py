"""Whether a tag in a value ends the value: what stands behind it decides, within `MAX_CANDIDATE` characters, and what
the value holds of the dialect's own structure: a call that begins in a value ends in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.readers.element_tags import ElementSyntax, Tag
from toolspeak.dialects.readers.reader_states import ends_line, skip_space
from toolspeak.dialects.text.end_marker import begins
from toolspeak.dialects.text.scan import MAX_CANDIDATE
from toolspeak.dialects.text.typed_text import admits_argument

Verdict = Literal["yes", "no", "undecided"]
Outcome = Literal["content", "closed", "open", "broken", "undecided"]
"""What a tag is to the value that it stands in: a part of it, its end, the end of one that was left `open`, or of one
whose end nobody can tell (`broken`)."""


class Lookahead:
    """Looks behind a tag at `at`, and no further than it must. `rejected` is what followed an end tag that ended
    nothing. `stray`: a value of the call holds an end tag that nothing in it opened, so that the call only counts if
    it ends as it should. `torn`: so does this value, and that tag ends its line, or another follows it, or a word does
    where no white space stands between tags. `waits`: nothing has come yet behind a block's end in a value."""

    def __init__(
        self,
        syntax: ElementSyntax,
        block: tuple[str, str],
        breaks: tuple[str, ...],
        tools: Mapping[str, ToolSpec],
        bare: bool,
    ) -> None:
        self._syntax = syntax
        self._block_start, self._block_end = block
        self._breaks = breaks
        self._tools = tools
        self._bare = bare
        self.rejected = ""
        self.stray = self.torn = self.waits = False
        self._blocks = self._calls = 0  # that began in the value and have not ended
        self._argument = False  # whether an argument of the inner call is open

    def start_value(self) -> None:
        self.rejected, self._blocks, self._calls, self._argument = "", 0, 0, False
        self.torn = False

    def outcome(
        self, text: str, at: int, tag: str, alone: bool, cut: bool, given: Collection[str], spec: ToolSpec | None
    ) -> Outcome:
        """What `tag` is, one of the landmarks; `alone`: nothing stands before it on its line; `cut`: what is left of an
        end tag does; `given` are the arguments that are there."""
        syntax, rest = self._syntax, text[at : at + MAX_CANDIDATE]
        self.waits = False
        if tag == syntax.argument_end:
            return self._argument_end(rest)
        if tag == syntax.argument:
            return self._argument_start(rest, alone, cut, given, spec)
        if tag == syntax.call_end:
            return self._call_ends(rest)
        if tag == syntax.call:
            verdict = self._begins_call(rest, 0)
            if verdict == "yes":
                self._calls, self._argument = self._calls + 1, False
        elif tag == self._block_start:
            verdict = self._begins_block(rest, 0)
            self._blocks += verdict == "yes"
        else:
            return self._block_ends(rest)
        return "undecided" if verdict == "undecided" else "content"

    def _argument_end(self, rest: str) -> Outcome:
        if self._argument:
            self._argument = False
            return "content"
        verdict = self._ends_value(rest)
        self.stray = self.stray or verdict == "no"
        stop = len(self._syntax.argument_end)
        torn = ends_line(rest, stop) or (self._syntax.tight and rest[stop : stop + 1].isalnum())
        self.torn = self.torn or (verdict == "no" and torn)
        return "closed" if verdict == "yes" else "content" if verdict == "no" else "undecided"

    def _argument_start(
        self, rest: str, alone: bool, cut: bool, given: Collection[str], spec: ToolSpec | None
    ) -> Outcome:
        """One that is not there yet ends the value before it, which was left open."""
        tag = self._syntax.match(self._syntax.argument, rest, 0)
        if not isinstance(tag, Tag):
            return "undecided" if tag == "undecided" else "content"
        if self._calls:
            self._argument = not tag.empty
        elif cut:
            return "broken"
        elif (alone or self.stray) and tag.name not in given and (spec is None or admits_argument(spec, tag.name)):
            return "broken" if self.stray else "open"
        return "content"

    def _call_ends(self, rest: str) -> Outcome:
        if self._calls:
            self._calls, self._argument = self._calls - 1, False
            return "content"
        verdict = self._ends_call(rest)
        if verdict == "yes":
            return "broken" if self.stray else "open"
        self.stray = self.stray or verdict == "no"
        return "content" if verdict == "no" else "undecided"

    def _block_ends(self, rest: str) -> Outcome:
        if self._blocks:
            self._blocks, self._calls, self._argument = self._blocks - 1, 0, False
            return "content"
        position = skip_space(rest, len(self._block_end))
        self.waits = position == len(rest) < MAX_CANDIDATE
        if self.waits:
            return "undecided"
        if rest.startswith(self._breaks, position):
            return "broken"
        verdict = self._begins_block(rest, position)
        if verdict == "no" and len(rest) < MAX_CANDIDATE and begins(rest, position, *self._breaks):
            verdict = "undecided"
        return "broken" if verdict == "yes" else "content" if verdict == "no" else "undecided"

    def _ends_value(self, rest: str) -> Verdict:
        """Whether what may follow a value stands behind its end tag: an argument, the call's or the block's end.

        Any argument, also one that the tool does not have: else the value before it would swallow it. And a call that
        begins, though this one has no end."""
        syntax, first = self._syntax, skip_space(rest, len(self._syntax.argument_end))
        position = self._skip(rest, first) if rest.startswith("<", first) else first
        if position == len(rest):
            return "undecided" if len(rest) < MAX_CANDIDATE else "yes"
        ends = (syntax.call_end, self._block_end, *self._breaks)
        if rest.startswith(ends, position) or position > first:
            return "yes"
        tag, block, call = (
            syntax.match(syntax.argument, rest, position),
            self._starts_block(rest, position),
            self._begins_call(rest, position),
        )
        if isinstance(tag, Tag) or block == "yes" or call == "yes":
            return "yes"
        if rest.startswith(syntax.argument.rstrip("="), position) and (tag is None or len(rest) >= MAX_CANDIDATE):
            return "yes"  # nobody can read it: the call fails there
        begun = begins(rest, position, *ends, *syntax.skipped)
        if len(rest) < MAX_CANDIDATE and ("undecided" in (tag, block, call) or begun):
            return "undecided"
        self.rejected = self.rejected or rest[position]
        return "no"

    def _ends_call(self, rest: str) -> Verdict:
        """Whether the call ends here though its last value was left open: the block's end or another call follows."""
        syntax, position = self._syntax, self._skip(rest, len(self._syntax.call_end))
        if self._bare:
            open_ = position == len(rest) or begins(rest, position, *syntax.skipped)
            return "undecided" if open_ and len(rest) < MAX_CANDIDATE else self._begins_call(rest, position)
        block = self._starts_block(rest, position)
        if rest.startswith((self._block_end, *self._breaks), position) or block == "yes":
            return "yes"
        tag = syntax.match(syntax.call, rest, position)
        if isinstance(tag, Tag):
            return "yes" if not self._tools or tag.name in self._tools else "no"
        open_ = position == len(rest) or "undecided" in (tag, block)
        open_ = open_ or begins(rest, position, self._block_end, *self._breaks, *syntax.skipped)
        return "undecided" if open_ and len(rest) < MAX_CANDIDATE else "no"

    def _skip(self, rest: str, position: int) -> int:
        """Past white space and what means nothing between calls."""
        position = skip_space(rest, position)
        while (found := next((each for each in self._syntax.skipped if rest.startswith(each, position)), "")) != "":
            position = skip_space(rest, position + len(found))
        return position

    def _starts_block(self, rest: str, position: int) -> Verdict:
        """Whether the next block and a call in it start here, though this block has no end."""
        if self._bare:
            return "no"
        if not rest.startswith(self._block_start, position):
            return "undecided" if begins(rest, position, self._block_start) else "no"
        position = self._skip(rest, position + len(self._block_start))
        tag = self._syntax.match(self._syntax.call, rest, position)
        open_ = position == len(rest) or tag == "undecided" or begins(rest, position, *self._syntax.skipped)
        return "yes" if isinstance(tag, Tag) else "undecided" if open_ else "no"

    def _begins_block(self, rest: str, position: int) -> Verdict:
        """Whether a block begins here, and in it a call."""
        if self._starts_block(rest, position) != "yes":
            return self._within(rest, self._starts_block(rest, position))
        return self._begins_call(rest, self._skip(rest, position + len(self._block_start)))

    def _begins_call(self, rest: str, position: int) -> Verdict:
        """Whether a call begins here, and with it its first argument, or its end: less may be a mention of its tag."""
        syntax = self._syntax
        tag = syntax.match(syntax.call, rest, position)
        if not isinstance(tag, Tag) or tag.empty:
            return self._within(rest, "undecided" if tag == "undecided" else "no")
        position = skip_space(rest, position + tag.length)
        if rest.startswith(syntax.call_end, position):
            return "yes"
        argument = syntax.match(syntax.argument, rest, position)
        if isinstance(argument, Tag):
            return "yes"
        open_ = argument == "undecided" or position == len(rest) or begins(rest, position, syntax.call_end)
        return self._within(rest, "undecided" if open_ else "no")

    def _within(self, rest: str, verdict: Verdict) -> Verdict:
        return "no" if len(rest) >= MAX_CANDIDATE else verdict
