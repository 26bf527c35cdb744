"""dots: a call as JSON, or calls as elements, between the same markers."""

from __future__ import annotations

from dataclasses import replace

from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect, Tools
from toolspeak.dialects.declarations.json_dialect import EACH_ALONE, THINK, frames, json_dialect
from toolspeak.dialects.readers.body import Body, ChosenBody
from toolspeak.dialects.readers.element_tags import ElementSyntax
from toolspeak.dialects.readers.elements import ElementCalls
from toolspeak.dialects.readers.json_call import CallShape
from toolspeak.dialects.readers.json_calls import JsonCalls
from toolspeak.dialects.text.block_delimiters import Starts
from toolspeak.dialects.text.markers import Marker
from toolspeak.dialects.text.scan import Caps

_START, _END = "<dots_function_call>", "</dots_function_call>"
_SHAPE = CallShape("arguments", array=False, arguments_required=False, arguments_text=True, alone=True)
_ELEMENTS = ElementSyntax("<invoke", "<parameter")


class _EitherForm(ChosenBody):
    """Implements `Body`: chooses the reader by the first character."""

    def __init__(self, first_index: int, caps: Caps, tools: Tools) -> None:
        super().__init__(caps)
        self._first_index = first_index
        self._tools = tools

    def choose(self, text: str, start: int) -> Body:
        if text[start] == "<":
            return ElementCalls(_ELEMENTS, (_START, _END), self._tools, self._first_index, self.caps)
        return JsonCalls(_SHAPE, self._first_index, self.caps, self._tools, several=True)


def _new_body(_marker: Marker, first_index: int, caps: Caps, tools: Tools) -> Body:
    return _EitherForm(first_index, caps, tools)


DOTS: DeclaredDialect = replace(
    json_dialect(
        DialectInfo(
            "dots",
            '<dots_function_call>{"name": …, "arguments": {…}}</dots_function_call>, repeated; <invoke name="f"> too',
            "vllm-project/vllm, vllm/tool_parsers/dots_tool_parser.py",
            models=("dots",),
            arguments="JSON; text, typed by the tool's schema, in elements",
            results="a tool turn",
        ),
        [Marker("calls", _START, _END, Starts("{[<")), THINK, *frames(_END)],
        _SHAPE,
        around=(_START, _END),
        between="\n",
        rules=EACH_ALONE,
    ),
    new_body=_new_body,
)
