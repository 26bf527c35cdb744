"""The layout of calls with the name outside the JSON, for a dialect's writer and its grammar."""

from __future__ import annotations

import re
from collections.abc import Callable

from toolspeak.data.messages import MalformedCall, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.declarations.declared_dialect import Calls, Tools
from toolspeak.dialects.grammar.ir import EMPTY, Literal, Node, Rules, series
from toolspeak.dialects.grammar.json_frames import arguments
from toolspeak.dialects.grammar.tool_choice import Avoid, Frame, Triggers
from toolspeak.dialects.prompts.rendering import dump_json


@quick(kw_only=True)
class NamedLayout:
    """A call is a head with the tool's name, the arguments as JSON, and `tail`."""

    live: re.Pattern[str]
    """As in `DeclaredDialect`."""
    head: Callable[[str, Node | str], Node | str]
    """Makes the head from the tool's name and the call's id."""
    tail: str = ""
    start: str = ""
    """The text before the first call."""
    joint: str = ""
    """The text between calls."""
    end: str = ""
    """The text after the last call."""
    write_malformed: Callable[[MalformedCall], str]
    """Writes a malformed call as the model did."""
    call_id: Callable[[ToolCall], str] = lambda _: ""
    """Makes the id that the text shows."""
    any_id: Node = EMPTY
    """Any such id, for grammars."""

    def write_calls(self, calls: Calls, _tools: Tools) -> str:
        return self.start + self.joint.join(map(self._write, calls)) + self.end

    def _write(self, call: ToolCall | MalformedCall) -> str:
        if isinstance(call, MalformedCall):
            return self.write_malformed(call)
        head = series(self.head(call.name, self.call_id(call)))
        assert isinstance(head, Literal), "a head of texts is a text"
        return f"{head.text}{dump_json(dict(call.arguments), self.live)}{self.tail}"

    def call_node(self, spec: ToolSpec, rules: Rules) -> Node:
        """A call of a tool, for grammars."""
        return series(self.head(spec.name, self.any_id), arguments(spec, rules, self.live), self.tail)

    def frame(self, *, triggers: Triggers | None = None, avoid: Avoid | None = None) -> Frame:
        """All calls of a turn, for grammars."""
        return Frame(
            call=self.call_node, start=self.start, joint=self.joint, end=self.end, triggers=triggers, avoid=avoid
        )
