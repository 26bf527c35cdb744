"""What may stand behind a tag of element dialects: it tells a tag that ends something from one that is text."""

from __future__ import annotations

from collections.abc import Mapping

from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.readers.element_tags import ElementSyntax, Tag
from toolspeak.dialects.readers.reader_states import skip_space
from toolspeak.dialects.readers.tagged_calls import Answer
from toolspeak.dialects.text.end_marker import begins
from toolspeak.dialects.text.scan import MAX_CANDIDATE


@quick()
class Lookahead:
    """Reads `rest`, the text from a tag on, and no more of it than it must. `bare`: no block stands around the call.
    `breaks` end a block whose own end is missing."""

    syntax: ElementSyntax
    block: tuple[str, str]
    breaks: tuple[str, ...]
    tools: Mapping[str, ToolSpec]
    bare: bool

    def follows_value(self, rest: str, first: int) -> Answer:
        """Whether what may follow a value stands there, behind its end tag: an argument, the call's or the block's end.

        Any argument, also one that the tool does not have: else the value before it would swallow it. And a call that
        begins, though this one has no end."""
        syntax = self.syntax
        position = self._skip(rest, first) if rest.startswith("<", first) else first
        if position == len(rest):
            return "undecided" if len(rest) < MAX_CANDIDATE else "yes"
        ends = (syntax.call_end, self.block[1], *self.breaks)
        if rest.startswith(ends, position) or position > first:
            return "yes"
        tag, block, call = (
            syntax.match(syntax.argument, rest, position),
            self._starts_block(rest, position),
            self.begins_call(rest, position),
        )
        if isinstance(tag, Tag) or block == "yes" or call == "yes":
            return "yes"
        if rest.startswith(syntax.argument.rstrip("="), position) and (tag is None or len(rest) >= MAX_CANDIDATE):
            return "yes"  # nobody can read it: the call fails there
        begun = begins(rest, position, *ends, *syntax.skipped)
        return "undecided" if "undecided" in (tag, block, call) or begun else "no"

    def ends_call(self, rest: str) -> Answer:
        """Whether the call ends here though its last value was left open: the block's end or another call follows."""
        syntax, position = self.syntax, self._skip(rest, len(self.syntax.call_end))
        if self.bare:
            open_ = (position == len(rest) or begins(rest, position, *syntax.skipped)) and len(rest) < MAX_CANDIDATE
            return "undecided" if open_ else self.begins_call(rest, position)
        block = self._starts_block(rest, position)
        if rest.startswith((self.block[1], *self.breaks), position) or block == "yes":
            return "yes"
        tag = syntax.match(syntax.call, rest, position)
        if isinstance(tag, Tag):
            return "yes" if not self.tools or tag.name in self.tools else "no"
        open_ = position == len(rest) or "undecided" in (tag, block)
        open_ = open_ or begins(rest, position, self.block[1], *self.breaks, *syntax.skipped)
        return "undecided" if open_ else "no"

    def ends_block(self, rest: str) -> Answer:
        """Whether the block ends here though a value is open: another one begins behind its end."""
        position = skip_space(rest, len(self.block[1]))
        if position == len(rest):
            return "undecided"
        if rest.startswith(self.breaks, position):
            return "yes"
        verdict = self.begins_block(rest, position)
        return "undecided" if verdict == "no" and begins(rest, position, *self.breaks) else verdict

    def _skip(self, rest: str, position: int) -> int:
        """Past white space and what means nothing between calls."""
        position = skip_space(rest, position)
        while (found := next((each for each in self.syntax.skipped if rest.startswith(each, position)), "")) != "":
            position = skip_space(rest, position + len(found))
        return position

    def _starts_block(self, rest: str, position: int) -> Answer:
        """Whether the next block and a call in it start here, though this block has no end."""
        if self.bare:
            return "no"
        if not rest.startswith(self.block[0], position):
            return "undecided" if begins(rest, position, self.block[0]) else "no"
        position = self._skip(rest, position + len(self.block[0]))
        tag = self.syntax.match(self.syntax.call, rest, position)
        open_ = position == len(rest) or tag == "undecided" or begins(rest, position, *self.syntax.skipped)
        return "yes" if isinstance(tag, Tag) else "undecided" if open_ else "no"

    def begins_block(self, rest: str, position: int) -> Answer:
        """Whether a block begins here, and in it a call."""
        verdict = self._starts_block(rest, position)
        if verdict != "yes":
            return verdict
        return self.begins_call(rest, self._skip(rest, position + len(self.block[0])))

    def begins_call(self, rest: str, position: int) -> Answer:
        """Whether a call begins here, and with it its first argument, or its end: less may be a mention of its tag."""
        syntax = self.syntax
        tag = syntax.match(syntax.call, rest, position)
        if not isinstance(tag, Tag) or tag.empty:
            return "undecided" if tag == "undecided" else "no"
        position = skip_space(rest, position + tag.length)
        if rest.startswith(syntax.call_end, position):
            return "yes"
        argument = syntax.match(syntax.argument, rest, position)
        if isinstance(argument, Tag):
            return "yes"
        open_ = argument == "undecided" or position == len(rest) or begins(rest, position, syntax.call_end)
        return "undecided" if open_ else "no"
