"""Inkling: each message has one kind of content. A call is JSON after a header that repeats the tool's name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import DialectInfo, Parser
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect
from toolspeak.dialects.declarations.json_dialect import EACH_ALONE, frames, json_dialect
from toolspeak.dialects.parser.prefill import PrefilledParser
from toolspeak.dialects.readers.json_call import CallShape
from toolspeak.dialects.text.block_delimiters import Signature, Starts
from toolspeak.dialects.text.markers import Marker
from toolspeak.dialects.turn_rules import Section

_INVOKE, _MODEL = "<|content_invoke_tool_json|>", "<|message_model|>"
_TEXTS = ("<|content_text|>", "<|content_invoke_tool_text|>", "<|content_tool_error|>")
"""The tokens that open text. The last two name no tool, so nothing after them is a call."""

_SPECIAL = (
    *("<|message_user|>", "<|message_system|>", "<|message_tool|>", "<|content_image|>", "<|content_audio_input|>"),
    *("<|audio_end|>", "<|content_xml|>", "<|content_model_end_sampling|>", "<|model_trigger_generation|>"),
    "<|endoftext|>",
)
"""The other framing tokens of the vocabulary: engines drop them everywhere."""

_NAME = r"[\w.:/-]"
_HEADER = re.compile(_NAME + r"{1,160}(?P<marker><[^<>]*+>?)?")


class _Inkling(DeclaredDialect):
    """A dialect whose prompt ends with the first `<|message_model|>`, so a turn may begin with the header of a call."""

    def parser(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> Parser:
        inner = super().parser(tools, starts_in)
        return PrefilledParser(inner, _MODEL, _opens) if starts_in == "text" else inner


def _opens(text: str) -> bool | None:
    match = _HEADER.match(text)
    if match is None or (not match["marker"] and match.end() < len(text)):
        return False
    if match["marker"] == _INVOKE:
        return True
    return None if _INVOKE.startswith(match["marker"] or "") else False


INKLING = json_dialect(
    DialectInfo(
        "inkling",
        '<|message_model|>f<|content_invoke_tool_json|>{"name": …, "args": {…}}<|end_message|>, repeated',
        "vllm-project/vllm tests/parser/engine/test_inkling.py",
        models=("inkling",),
        results="a tool message",
        reasoning="<|content_thinking|> … <|end_message|>",
    ),
    [
        # A new message ends the one before it, even if that is reasoning.
        Marker("calls", _INVOKE, "<|end_message|>", Starts("{["), ends_reasoning=True),
        Marker(  # the header repeats the tool's name
            "calls",
            _INVOKE,
            "<|end_message|>",
            opening=Signature(
                (_MODEL, re.compile(_NAME + r"{0,160}"), _INVOKE, re.compile(r"\s*"), "{"),
                4,
                "<",
                ("<", re.escape(_MODEL[1:])),
            ),
            ends_reasoning=True,
        ),
        Marker("reasoning", "<|content_thinking|>", "<|end_message|>"),
        *(Marker("noise", text, None, ends_reasoning=True) for text in (_MODEL, *_TEXTS)),
        Marker("noise", "<|end_message|>", None, ends_message=True),
        *frames(*_SPECIAL),
    ],
    CallShape("args", array=False, arguments_required=False),
    around=(_INVOKE, "<|end_message|>"),
    between=_MODEL,
    rules=EACH_ALONE,
    kind=_Inkling,
)
