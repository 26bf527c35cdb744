"""Whether a tag in a value ends the value: what stands behind it decides, within `MAX_CANDIDATE` characters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.element_tags import ElementSyntax, Tag
from toolspeak.dialects.scan import MAX_CANDIDATE
from toolspeak.dialects.steps import begins, skip_space
from toolspeak.dialects.typed_text import admits_argument

Verdict = Literal["yes", "no", "undecided"]


class Lookahead:
    """Looks behind a tag at `at`, and no further than it must. `rejected` is what followed an end tag
    that ended nothing."""

    def __init__(self, syntax: ElementSyntax, block_end: str, tools: Mapping[str, ToolSpec], bare: bool) -> None:
        self._syntax = syntax
        self._block_end = block_end
        self._tools = tools
        self._bare = bare
        self.rejected = ""

    def ends_value(self, text: str, at: int) -> Verdict:
        """Whether what may follow a value stands behind its end tag: an argument, the call's or the block's end.

        Any argument, also one that the tool does not have: else the value before it would swallow it."""
        syntax, rest = self._syntax, text[at : at + MAX_CANDIDATE]
        position = skip_space(rest, len(syntax.argument_end))
        if position == len(rest):
            return "undecided" if len(rest) < MAX_CANDIDATE else "yes"
        ends = (syntax.call_end, self._block_end)
        if rest.startswith(ends, position):
            return "yes"
        tag = syntax.match(syntax.argument, rest, position)
        if isinstance(tag, Tag):
            return "yes"
        if len(rest) < MAX_CANDIDATE and (tag == "undecided" or begins(rest, position, *ends)):
            return "undecided"
        self.rejected = self.rejected or rest[position]
        return "no"

    def ends_call(self, text: str, at: int) -> Verdict:
        """Whether the call ends here though its last value was left open: the block's end or another call follows."""
        if self._bare:
            return "no"
        syntax, rest = self._syntax, text[at : at + MAX_CANDIDATE]
        position = skip_space(rest, len(syntax.call_end))
        if rest.startswith(self._block_end, position):
            return "yes"
        tag = syntax.match(syntax.call, rest, position)
        if isinstance(tag, Tag):
            return "yes" if not self._tools or tag.name in self._tools else "no"
        open_ = position == len(rest) or tag == "undecided" or begins(rest, position, self._block_end)
        return "undecided" if open_ and len(rest) < MAX_CANDIDATE else "no"

    def starts_sibling(self, text: str, at: int, given: Collection[str], spec: ToolSpec | None) -> Verdict:
        """Whether an argument that is not there yet starts here, though the value before it was left open."""
        tag = self._syntax.match(self._syntax.argument, text[at : at + MAX_CANDIDATE], 0)
        if not isinstance(tag, Tag):
            return "undecided" if tag == "undecided" else "no"
        return "yes" if tag.name not in given and (spec is None or admits_argument(spec, tag.name)) else "no"
