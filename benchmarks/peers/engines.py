"""Runs other engines' streaming tool-call parsers, without the engine, on the texts from `parsers.py`.

    .venv-peers/bin/python benchmarks/peers/engines.py vllm|sglang

Reads one job per line, `{"parser", "pieces", "tool", "arguments", "cap"}`: a text split as a detokenizer splits it (a
special token is always a separate piece), and the call in the text. Writes one result per line, `{"seconds", "done",
"ok"}` or `{"error"}`. `seconds` is the CPU seconds inside the parser. `done` is the number of pieces that it read
before the cap. `ok` says whether the arguments that it streamed are those of the call.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

Read = Callable[[str], list[str]]
"""Takes the next piece and returns the fragments of arguments that the engine would send for it."""


class Vocabulary(dict[str, int]):
    """Treats every text as one token, so that parsers find their special tokens when they look them up."""

    def __missing__(self, text: str) -> int:
        self[text] = number = len(self) + 10
        return number

    def __contains__(self, text: object) -> bool:
        return True

    def get(self, text: str, default: Any = None) -> int:
        return self[text]


class Tokenizer:
    """The part of a tokenizer that the parsers use. It encodes any text as one token."""

    eos_token, bos_token = "</s>", "<s>"
    all_special_ids: tuple[int, ...] = ()
    all_special_tokens: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.vocab = Vocabulary()
        self.eos_token_id, self.bos_token_id = self.vocab["</s>"], self.vocab["<s>"]

    def get_vocab(self) -> Vocabulary:
        return self.vocab

    get_added_vocab = get_vocab

    def encode(self, text: str, **_: Any) -> list[int]:
        return [self.vocab[text]]

    def decode(self, ids: int | list[int], **_: Any) -> str:
        texts = {number: text for text, number in self.vocab.items()}
        return "".join(texts[each] for each in ([ids] if isinstance(ids, int) else ids))

    def convert_tokens_to_ids(self, tokens: str | list[str]) -> Any:
        return self.vocab[tokens] if isinstance(tokens, str) else [self.vocab[token] for token in tokens]


def vllm_reader(job: dict[str, Any]) -> tuple[Read, Callable[[], list[str]]]:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    tokenizer = Tokenizer()
    tool = {"type": "function", "function": job["tool"]}
    request = ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "x"}], tools=[tool])
    parser: Any = ToolParserManager.get_tool_parser(job["parser"])(tokenizer, request.tools)
    incremental = getattr(parser, "engine_based_streaming", False)
    if incremental:
        parser.skip_reasoning_parsing = True
    text, ids = "", list[int]()

    def fragments(message: Any) -> list[str]:
        functions = [call.function for call in (message.tool_calls if message else None) or []]
        pieces = [each.get("arguments") if isinstance(each, dict) else each.arguments for each in functions if each]
        return [each for each in pieces if each]

    def read(piece: str) -> list[str]:
        nonlocal text, ids
        token = [tokenizer.vocab[piece]]
        before, before_ids = text, ids
        if not incremental:  # older parsers receive all of the text so far at every step
            text, ids = before + piece, [*before_ids, *token]
        return fragments(
            parser.extract_tool_calls_streaming(
                previous_text=before,
                current_text=text if not incremental else piece,
                delta_text=piece,
                previous_token_ids=before_ids,
                current_token_ids=ids if not incremental else token,
                delta_token_ids=token,
                request=request,
            )
        )

    def close() -> list[str]:
        last_fragments = fragments(parser.finish_streaming()) if hasattr(parser, "finish_streaming") else []
        calls, streamed_arguments = (
            getattr(parser, "prev_tool_call_arr", None),
            getattr(parser, "streamed_args_for_tool", None),
        )
        if last_fragments or incremental or not (calls and streamed_arguments):
            return last_fragments
        # The server sends what the parser has of the last call but has not streamed.
        arguments = calls[-1].get("arguments", "")
        arguments = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return [arguments[len(streamed_arguments[-1]) :]] if arguments.startswith(streamed_arguments[-1]) else []

    return read, close


def sglang_reader(job: dict[str, Any]) -> tuple[Read, Callable[[], list[str]]]:
    from sglang.srt.entrypoints.openai.protocol import Function, Tool
    from sglang.srt.function_call.function_call_parser import FunctionCallParser

    parser: Any = FunctionCallParser([Tool(type="function", function=Function(**job["tool"]))], job["parser"])

    def read(piece: str) -> list[str]:
        return [call.parameters for call in parser.parse_stream_chunk(piece)[1] if call.parameters]

    def close() -> list[str]:
        if not hasattr(parser, "parse_stream_end"):
            return []
        return [call.parameters for call in parser.parse_stream_end()[1] if call.parameters]

    return read, close


Reader = Callable[[dict[str, Any]], tuple[Read, Callable[[], list[str]]]]
READERS: dict[str, Reader] = {"vllm": vllm_reader, "sglang": sglang_reader}


def run(
    job: dict[str, Any], reader: Callable[[dict[str, Any]], tuple[Read, Callable[[], list[str]]]]
) -> dict[str, Any]:
    read, close = reader(job)
    pieces, argument_pieces, seconds, clock = job["pieces"], list[str](), 0.0, time.thread_time
    for i, piece in enumerate(pieces, 1):
        before = clock()
        new_pieces = read(piece)
        seconds += clock() - before
        argument_pieces += new_pieces
        if seconds > job["cap"]:
            return {"seconds": seconds, "done": i, "ok": None}
    before = clock()
    argument_pieces += close()
    seconds += clock() - before
    try:
        same = json.loads("".join(argument_pieces)) == job["arguments"]
    except ValueError:
        same = False
    return {"seconds": seconds, "done": len(pieces), "ok": same}


def results(engine: str) -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        try:
            yield run(json.loads(line), READERS[engine])
        except Exception as error:  # noqa: BLE001 (a peer may raise anything; it is told and the next job runs)
            yield {"error": f"{type(error).__name__}: {error}"[:300]}


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_LOGGING_LEVEL="ERROR")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of the engines is not a result
    for result in results(sys.argv[1]):
        print(json.dumps(result), file=out, flush=True)


if __name__ == "__main__":
    main()
