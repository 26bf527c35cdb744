"""Cohere's actions: a JSON array with `tool_name` and `parameters`, between markers or in a fence after `Action:`."""

from __future__ import annotations

from typing import cast

from toolspeak.data.messages import FAILURE_PREFIX, JSON, ToolResult
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.json_dialect import ONE_ARRAY, frames, json_dialect
from toolspeak.dialects.prompt import EarlierThoughts
from toolspeak.dialects.prompts.rendering import MarkerEscaper, result_value
from toolspeak.dialects.readers.json_call import CallShape
from toolspeak.dialects.text.block_delimiters import Starts
from toolspeak.dialects.text.markers import Marker

_NO_CALLS = ("directly-answer", "directly_answer")  # the template's word for an answer without a tool
_TURN = ("<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>")


def _tool_result(escaper: MarkerEscaper, result: ToolResult) -> str:
    """A result as the template writes it: each part is an object, and text is its `content`."""
    is_failure = result.status == "failure"
    value = result_value(result)
    whole = len(result.content) == 1 and isinstance(value, dict)
    text = FAILURE_PREFIX + value if is_failure and isinstance(value, str) else cast("JSON", value)
    content = cast("JSON", value) if whole else {"content": text}
    return f"""\
    {{
        "tool_call_id": {escaper.dump(result.call_id)},
        "results": {{
            "0": {escaper.dump(content)}
        }},
        "is_error": {"true" if is_failure else "null"}
    }}"""


COHERE_COMMAND = json_dialect(
    DialectInfo(
        "cohere-command",
        '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": …, "parameters": {…}}, …]<|END_ACTION|>',
        "chat templates of CohereLabs/c4ai-command-r7b-12-2024 and c4ai-command-a-03-2025",
        models=("command-r7b", "command-a", "north-mini-code"),
        results="<|START_TOOL_RESULT|>[…]<|END_TOOL_RESULT|> in a system turn",
        earlier=EarlierThoughts("<|START_THINKING|>", "<|END_THINKING|>", "always", calls_only=True),
        reasoning="<|START_THINKING|> … <|END_THINKING|>",
    ),
    [
        Marker("calls", "<|START_ACTION|>", "<|END_ACTION|>", Starts("[{")),
        Marker("results", "<|START_TOOL_RESULT|>", "<|END_TOOL_RESULT|>", Starts("[{"), plain=True),
        Marker("reasoning", "<|START_THINKING|>", "<|END_THINKING|>"),
        *frames("<|START_TEXT|>", "<|START_RESPONSE|>", *_TURN),
        *(Marker("noise", text, None, ends_message=True) for text in ("<|END_TEXT|>", "<|END_RESPONSE|>")),
    ],
    CallShape(
        "parameters",
        array=True,
        arguments_required=False,
        name_key="tool_name",
        id_key="tool_call_id",
        no_calls=_NO_CALLS,
    ),
    around=("<|START_ACTION|>", "<|END_ACTION|>"),
    write_result=_tool_result,
    results_around=("<|START_TOOL_RESULT|>[\n", "\n]<|END_TOOL_RESULT|>"),
    results_between=",\n",
    list_layout=("[\n    ", ",\n    ", "\n]"),
    ids="numbers",
    rules=f'- "tool_call_id" counts the calls of the conversation from "0".\n{ONE_ARRAY}',
)

_ACTION = "Action:\n```json"

COMMAND_R_PLUS = json_dialect(
    DialectInfo(
        "command-r-plus",
        'Action:⏎```json⏎[{"tool_name": …, "parameters": {…}}, …]⏎```',
        "chat template of CohereLabs/c4ai-command-r-plus (tool_use)",
        models=("command-r",),
        results="<results> in a system turn",
        reasoning="",
    ),
    [
        *(Marker("calls", text, "```", Starts("[{")) for text in (_ACTION, "Action: ```json", "Action:```json")),
        Marker("results", "<results>", "</results>", Starts('\n[{"'), plain=True),
        *frames(*_TURN),
    ],
    CallShape("parameters", array=True, arguments_required=False, name_key="tool_name", no_calls=_NO_CALLS),
    around=(f"{_ACTION}\n", "\n```"),
    results_around=("<results>\n", "\n</results>"),
    rules=ONE_ARRAY,
)
