"""The `<tool_call>` protocol: one JSON object, at most one block that counts (the last), results as `tool` messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolspeak.data.messages import (
    FAILURE_PREFIX,
    MalformedCall,
    Message,
    TextMessage,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import DialectInfo, Listing
from toolspeak.dialects.grammar.build import WithGrammar
from toolspeak.dialects.grammar.json_frames import json_call
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.parser.attempts import sample_call
from toolspeak.dialects.parser.block_format import BlockFormat
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.dialects.prompt import Prompt, append_message, choice_text, join_paragraphs
from toolspeak.dialects.prompts.rendering import (
    calls_to_write,
    dump_json,
    join_block,
    marker_prefix,
    render_all,
    result_text,
    unescape_text,
)
from toolspeak.dialects.prompts.schema_text import example_tools, list_tools, sample_arguments
from toolspeak.dialects.readers.json_call import CallShape
from toolspeak.dialects.readers.json_calls import JsonCalls
from toolspeak.dialects.text.block_delimiters import Starts
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.text.scan import Caps
from toolspeak.dialects.turn_rules import BatchRule, Section

CALL, RESULT, THINK = "tool_call", "tool_result", "think"
_LIVE = marker_prefix((CALL, RESULT, THINK))
_TABLE = MarkerTable(
    [
        Marker("calls", f"<{CALL}>", f"</{CALL}>", Starts("{[<")),
        Marker("results", f"<{RESULT}>", f"</{RESULT}>", Starts('\n[{"'), plain=True),
        Marker("reasoning", f"<{THINK}>", f"</{THINK}>"),
    ]
)
_SHAPE = CallShape(arguments_key="arguments", array=False, arguments_required=False)
_BATCH = BatchRule("last_call", max_calls=1)

_INTRODUCTION = """\
## Tools

You can use tools. To use one, write a <tool_call> block with one JSON object inside:

{example}

- "name" is the tool, "arguments" an object with the tool's own argument names and JSON types.
- It is strict JSON: double quotes, no comments, no trailing comma; in a string write a line break as \\n, a
  quote as \\" and a backslash as \\\\. Anything else, tags included, may stand in a string as it is.
- At most one block in a response: of several only the last one is executed.
- No block inside <think> tags: nothing in there is executed.
- The result appears in the conversation as the next message. Read it, then answer in plain language or, if the
  work is not done, call another tool. Never repeat a call you already made: its result is in the conversation.
- A result that starts with "ERROR:" says what went wrong; acknowledge it and try an alternative. If an operation
  fails repeatedly, explain the issue to the user.
- A response without a block is your answer, and the work is over."""


def _new_body(_marker: Marker, first_index: int, caps: Caps, _tools: Mapping[str, ToolSpec]) -> JsonCalls:
    return JsonCalls(_SHAPE, first_index, caps)


class ToolCallDialect(WithGrammar):
    """Implements `Dialect`."""

    name = "tool-call"
    info = DialectInfo(
        "tool-call",
        '<tool_call>{"name": …, "arguments": {…}}</tool_call>, the last one counts; results as tool messages',
        "AstraCodex, tool_protocol.md (branch openai-format)",
        native_schedule="sequential",
        results="a tool turn, or <tool_result> in a user turn",
    )
    batch: BatchRule = _BATCH
    tool_turns = True

    def instructions(
        self, tools: Sequence[ToolSpec], choice: ToolChoice = ToolChoice(), listing: Listing = "trained"
    ) -> str:
        examples = [ToolCall("", spec.name, sample_arguments(spec)) for spec in example_tools(tools)[:1]]
        example = "\n".join(_render_call(call) for call in examples)
        parts = [_INTRODUCTION.replace("{example}", example), choice_text(choice, tools)]
        return join_paragraphs(*parts, "## The tools you have", list_tools(tools, listing))

    def prompt(self, system: str, tools: Sequence[ToolSpec], listing: Listing = "trained") -> Prompt:
        return Prompt((join_paragraphs(system, self.instructions(tools, listing=listing) if tools else ""),))

    def parser(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> BlockParser:
        by_name = {spec.name: spec for spec in tools}
        format = BlockFormat(_TABLE, _BATCH, _new_body, by_name, thoughts_hide=True, writes=_example)  # noqa: A001
        return BlockParser(format, starts_in)

    def grammar_parts(self) -> tuple[Frame, Sequence[Marker], BatchRule]:
        return _FRAME, _TABLE.markers, _BATCH

    def history(self, tools: Sequence[ToolSpec] = (), *, tool_role: bool = False) -> ToolCallHistory:
        return ToolCallHistory({spec.name: spec for spec in tools}, tool_role)

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, tool_role: bool = False
    ) -> list[TextMessage]:
        history = self.history(tools, tool_role=tool_role)
        render_all(history, messages)
        history.flush()
        return history.messages

    def render_results(self, results: Sequence[ToolResult]) -> str:
        """Each result as the content of its `tool` message: text as it is, other values as JSON, failures
        after `ERROR: `. The '<' of a live marker is `&lt;` in text (`read_result` reverses it), `\\u003c` in JSON."""
        return "\n".join(result_text(result, _LIVE) for result in results)


class ToolCallHistory:
    """Implements `History`.

    Results are `tool` messages with `tool_role`, otherwise user messages with a <tool_result> block. A turn of several
    calls, which another dialect allows, becomes that many pairs of call and result.
    """

    def __init__(self, tools: Mapping[str, ToolSpec], tool_role: bool) -> None:
        self._tools = tools
        self._tool_role = tool_role
        self._waiting: list[ToolCall | MalformedCall] = []  # calls of the last turn after its first
        self.messages: list[TextMessage] = []

    def add(self, message: Message) -> None:
        if message.role == "tool":
            results = {result.call_id: result for result in message.results}
            waiting = {call.id for call in self._waiting}
            for result in message.results:
                if result.call_id not in waiting:
                    append_message(self.messages, _result_message(result, self._tool_role))
            for call in self._waiting:
                append_message(self.messages, TextMessage("assistant", _render_call(call)))
                if call.id in results:
                    append_message(self.messages, _result_message(results[call.id], self._tool_role))
            self._waiting = []
            return
        self.flush()
        calls = calls_to_write(message.calls, self._tools)
        self._waiting = list(calls[1:])
        text = join_block(message.text, _render_call(calls[0])) if calls else message.text
        append_message(self.messages, TextMessage(message.role, text))

    def flush(self) -> None:
        """Writes the calls that wait for their results: the turn was interrupted, and there are none."""
        for call in self._waiting:
            append_message(self.messages, TextMessage("assistant", _render_call(call)))
        self._waiting = []


_FRAME = Frame(
    call=json_call(_LIVE, name_key="name", arguments_key="arguments", before=f"<{CALL}>\n", after=f"\n</{CALL}>"),
    triggers=lambda _: [f"<{CALL}>"],
)


def _example(tools: Sequence[ToolSpec]) -> str:
    return _render_call(sample_call(tools)[0])


def _render_call(call: ToolCall | MalformedCall) -> str:
    if isinstance(call, MalformedCall):
        return f"<{CALL}>{call.raw}</{CALL}>"
    return f"<{CALL}>\n{dump_json({'name': call.name, 'arguments': call.arguments}, _LIVE)}\n</{CALL}>"


def read_result(text: str) -> str:
    """A text result of `render_results`, without its escapes and its `ERROR: `."""
    return unescape_text(text.removeprefix(FAILURE_PREFIX), _LIVE)


def _result_message(result: ToolResult, tool_role: bool) -> TextMessage:
    text = result_text(result, _LIVE)
    return TextMessage("tool", text) if tool_role else TextMessage("user", f"<{RESULT}>\n{text}\n</{RESULT}>")


TOOL_CALL = ToolCallDialect()
