"""Reads whole replies with another engine's parsers, without the engine, for `tests/dialects/mutations.py`.

    .venv-peers/bin/python benchmarks/peers/reading.py vllm|sglang

Reads one job per line, `{"tool_parser", "reasoning_parser", "text", "tools"}`; `reasoning_parser` is empty if the
reply has no reasoning. Writes one result per line, `{"text", "calls": [[name, arguments as JSON text], …]}`, or
`{"error"}`. It reads a reply as the engine's server reads one that is not streamed, because the engine makes the
fewest mistakes there.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import warnings
from typing import Any

from engines import Tokenizer

Reading = dict[str, Any]
_SPECIAL = r"\]<\]minimax\[>\[|<[^<>\s]{1,60}>|\[/?[A-Z_]+\]"
_PIECES = re.compile(rf"{_SPECIAL}|(?:(?!{_SPECIAL}).)+", re.DOTALL)


class TextTokenizer(Tokenizer):
    """Recognises special tokens by their form. Each text between them is one token."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return [self.vocab[piece] for piece in _PIECES.findall(text)]


def read_vllm(job: dict[str, Any]) -> Reading:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.parser_manager import ParserManager

    tools = [{"type": "function", "function": tool} for tool in job["tools"]]
    request = ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "x"}], tools=tools)
    tokenizer: Any = TextTokenizer()
    parser_class: Any = ParserManager.get_parser(
        tool_parser_name=job["tool_parser"],
        reasoning_parser_name=job["reasoning_parser"] or None,
        enable_auto_tools=True,
        is_harmony=job["tool_parser"] == "openai",
    )
    parser = parser_class(tokenizer, request.tools)
    ids = tokenizer.encode(job["text"])
    _, text, calls = parser.parse(job["text"], request, enable_auto_tools=True, model_output_token_ids=ids)
    return {"text": text or "", "calls": [[call.name, call.arguments] for call in calls or []]}


def read_sglang(job: dict[str, Any]) -> Reading:
    from sglang.srt.entrypoints.openai.protocol import Function, Tool
    from sglang.srt.function_call.function_call_parser import FunctionCallParser
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    text = job["text"]
    if job["reasoning_parser"]:
        reasoning = ReasoningParser(job["reasoning_parser"], stream_reasoning=False, tool_call_parser_active=True)
        text = reasoning.parse_non_stream(text)[1] or ""
    tools = [Tool(type="function", function=Function(**tool)) for tool in job["tools"]]
    parser = FunctionCallParser(tools, job["tool_parser"])
    if not parser.has_tool_call(text):
        return {"text": text, "calls": []}
    text, calls = parser.parse_non_stream(text)
    return {"text": text or "", "calls": [[call.name, call.parameters] for call in calls]}


READERS = {"vllm": read_vllm, "sglang": read_sglang}


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_LOGGING_LEVEL="ERROR")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of the engines is not a result
    for line in sys.stdin:
        try:
            result = READERS[sys.argv[1]](json.loads(line))
        except Exception as error:  # noqa: BLE001 (a peer may raise anything: the server would answer with an error)
            result = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(result), file=out, flush=True)


if __name__ == "__main__":
    main()
