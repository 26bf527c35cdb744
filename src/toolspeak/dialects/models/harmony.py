"""Harmony (gpt-oss): messages on channels; a message of the assistant to a recipient is a call."""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolspeak.data.messages import MalformedCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import DialectInfo, Parser
from toolspeak.dialects.declarations.declared_dialect import Calls, DeclaredDialect, DeclaredHistory, Tools
from toolspeak.dialects.grammar.avoid import texts
from toolspeak.dialects.grammar.ir import Node, choice, optional
from toolspeak.dialects.grammar.json_frames import named_call
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.parser.harmony_header import EXAMPLE
from toolspeak.dialects.parser.harmony_parser import HarmonyParser
from toolspeak.dialects.prompt import EarlierThoughts
from toolspeak.dialects.prompts.rendering import dump_json, result_or_error
from toolspeak.dialects.readers.named_calls import NamedCalls, NamedShape, plain_name
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.turn_rules import Section

_ASSISTANT = "<|start|>assistant"
_NAMES = ("start", "end", "message", "channel", "constrain", "return", "call", "endoftext")
_TOKENS = tuple(f"<|{name}|>" for name in _NAMES)
_LIVE = re.compile(r"<(?=\|(?:start|end|message|channel|constrain|return|call)\|>)")


def _write_calls(calls: Calls, _tools: Tools) -> str:
    return "".join(
        f"<|start|>assistant{call.raw}<|call|>"
        if isinstance(call, MalformedCall)
        else f"<|start|>assistant to=functions.{call.name}<|channel|>commentary json<|message|>"
        f"{dump_json(dict(call.arguments), _LIVE)}<|call|>"
        for call in calls
    )


def _header(name: str) -> Node:
    """A call's header in the chat template's form and in the model's."""
    to = f" to=functions.{name}"
    return choice(
        f"{to}<|channel|>commentary json<|message|>",
        f"<|channel|>commentary{to} <|constrain|>json<|message|>",
        f"<|channel|>commentary{to} json<|message|>",
    )


def _write_results(results: Sequence[ToolResult]) -> str:
    return "".join(
        f"<|start|>functions.{plain_name(result.name)} to=assistant<|channel|>commentary<|message|>"
        f"{dump_json(result_or_error(result), _LIVE)}<|end|>"
        for result in results
    )


class _Harmony(DeclaredDialect):
    """A dialect with its own parser: turns are messages with headers, not blocks in text."""

    def parser(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> Parser:
        return HarmonyParser(tools, starts_in)

    def history(self, tools: Sequence[ToolSpec] = (), *, tool_role: bool = False) -> DeclaredHistory:
        return _HarmonyHistory(self, tools, tool_role=tool_role)


class _HarmonyHistory(DeclaredHistory):
    def join_calls(self, text: str, calls: Calls, block: str) -> str:
        """Text before calls is a separate message, and so is each call."""
        return (f"{_ASSISTANT}<|channel|>commentary<|message|>{text}<|end|>" if text else "") + block


HARMONY = _Harmony(
    info=DialectInfo(
        "harmony",
        EXAMPLE,
        "openai/harmony, docs/format.md; chat template of openai/gpt-oss-120b",
        aliases=("gpt-oss",),
        models=("gpt-oss",),
        results="<|start|>functions.name to=assistant<|channel|>commentary<|message|>…<|end|>, as JSON",
        reasoning="<|channel|>analysis",
        stop=("<|return|>", "<|call|>"),
        earlier=EarlierThoughts("<|channel|>analysis<|message|>", "<|end|>", calls_only=True),
    ),
    table=MarkerTable([Marker("calls", "<|start|>", "<|call|>")]),
    new_body=lambda _marker, first, caps, _tools: NamedCalls(NamedShape(lambda _: None, EXAMPLE), first, caps),
    write_calls=_write_calls,
    write_results=_write_results,
    live=_LIVE,
    frame=Frame(
        call=named_call(_LIVE, _header, "<|call|>"),
        joint=_ASSISTANT,
        lead=optional(_ASSISTANT),  # the prompt may have written it already
        text_start="<|channel|>final<|message|>",
        text_before_calls=("<|channel|>commentary<|message|>", "<|end|>", _ASSISTANT),
        reasoning=(("<|channel|>analysis<|message|>", "<|end|>", _ASSISTANT),),
        avoid=lambda _: texts(*_TOKENS),
    ),
    rules=(
        "- A call is a message to `functions.` and the tool's name, on the commentary channel; its content is one\n"
        "  JSON object. What you think goes to the analysis channel, your answer to the final channel."
    ),
)
