"""Answers of Anthropic's Messages API as a client reads them, whole and streamed. Sans-IO.

Source: Anthropic's API reference, "Messages", "Streaming messages" and "Errors", and the types of its Python SDK 2.12.
"Server tools", "Handling stop reasons" (a turn that ended with `pause_turn` continues when its content is sent back
unchanged) and "Web search tool" (encrypted content and citations are sent back in later turns).
"""

from __future__ import annotations

import json
from typing import cast

from toolspeak.data.deltas import Delta, PartEnded, ReasoningDelta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON, NORMAL_END, FinishReason, Opaque, Usage
from toolspeak.errors import ProviderError
from toolspeak.wire.anthropic.common import ERROR_TYPES, NAME, STOP_REASONS, ContentBlock
from toolspeak.wire.call_assembler import CallAssembler
from toolspeak.wire.error_table import reported_error
from toolspeak.wire.json_conversion import as_object, as_text, ill_formed, token_count

_ERROR_STATUS = {kind: status for status, kind in ERROR_TYPES.items()}
_INPUT_COUNTS = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)  # each token is in only one of them


def decode_response(body: JSON, *, model: str | None = None) -> list[Delta]:
    """See `WireFormat.decode_response`."""
    message = as_object(body, "the response")
    if message.get("error"):
        raise _stream_error(message["error"])
    content = message.get("content")
    if not isinstance(content, list):
        raise ProviderError(
            "the response has no content: is this an API like Anthropic's /v1/messages?", code="ill_formed"
        )
    decoder = AnthropicDecoder(model=model)
    deltas = decoder.feed({"type": "message_start", "message": message})
    for index, block in enumerate(cast("list[JSON]", content)):
        deltas += decoder.feed({"type": "content_block_start", "index": index, "content_block": block})
        deltas += decoder.feed({"type": "content_block_stop", "index": index})
    deltas += decoder.feed({"type": "message_delta", "delta": message})
    return deltas + decoder.close()


class AnthropicDecoder:
    """Reads one streamed answer; a `Decoder`.

    `model`: the name in the request, to which signatures of reasoning are bound; None is the name in the answer.
    """

    def __init__(self, *, model: str | None = None) -> None:
        self.finished: bool = False
        self.stopped: bool = False
        """Whether the last event has arrived."""
        self._request_model = model
        self._model: str | None = None
        self._finish: FinishReason = "stop"
        self._counts: dict[str, int] = {}
        self._reasoning: int | None = None
        self._kinds: dict[int, str] = {}
        self._calls = CallAssembler()
        self._inputs: dict[int, JSON] = {}
        self._opaque_blocks = _OpaqueBlocks()
        self._ended_calls: list[int] = []
        self._thought = False
        self._signature = ""

    def feed(self, data: JSON) -> list[Delta]:
        """See `Decoder`."""
        try:
            if data["type"] == "content_block_delta":
                delta = data["delta"]
                if delta["type"] == "text_delta":
                    text = delta["text"]
                    if text.__class__ is str and text:
                        return [TextDelta(text)]
                elif delta["type"] == "input_json_delta" and not self._inputs:
                    text, index = delta["partial_json"], data["index"]
                    if text.__class__ is str and self._calls.is_open(index):
                        return self._calls.add(index, text)
        except (KeyError, TypeError):
            pass  # _event raises an error that names the place
        return self._event(as_object(data, "an event of the stream"))

    def close(self) -> list[Delta]:
        """See `Decoder`."""
        out = self._settle(self._finish in NORMAL_END)
        out += self._calls.close(self._finish)
        out.append(TurnEnded(self._finish, self._usage(), self._model))
        return out

    def _event(self, event: dict[str, JSON]) -> list[Delta]:
        match event.get("type"):
            case "content_block_delta":
                return self._delta(_index(event), as_object(event.get("delta"), "'delta' of a content_block_delta"))
            case "content_block_start":
                block = as_object(event.get("content_block"), "'content_block' of a content_block_start")
                return self._settle(whole=True) + self._start(_index(event), block)
            case "content_block_stop":
                return self._stop(_index(event))
            case "message_start":
                message = as_object(event.get("message"), "'message' of the message_start")
                self._model = as_text(message.get("model"), "'model' of the message_start") or None
                self._count(message.get("usage"))
            case "message_delta":
                self._count(event.get("usage"))
                reason = as_object(event.get("delta"), "'delta' of a message_delta").get("stop_reason")
                if reason is not None:
                    self.finished = True
                    self._finish = STOP_REASONS.get(as_text(reason, "'stop_reason'"), "error")
                    return self._settle(self._finish in NORMAL_END)
            case "message_stop":
                self.finished = self.stopped = True
            case "error":
                raise _stream_error(event.get("error") or event)
            case _ if event.get("error"):
                raise _stream_error(event["error"])
            case _:
                pass  # ping, and future events
        return []

    def _start(self, index: int, block: dict[str, JSON]) -> list[Delta]:
        kind = self._kinds[index] = as_text(block.get("type"), "'type' of a content block")
        match kind:
            case "text":
                return self._start_text(index, block)
            case "thinking":
                self._thought, self._signature = (
                    False,
                    as_text(block.get("signature"), "'signature' of a thinking block"),
                )
                return self._thinking(as_text(block.get("thinking"), "'thinking' of a thinking block"))
            case "redacted_thinking":
                data = as_text(block.get("data"), "'data' of a redacted_thinking block")
                return [PartEnded("reasoning", self._opaque({"redacted": data}))]
            case "tool_use":
                name, call_id = as_text(block.get("name"), "a call's 'name'"), as_text(block.get("id"), "a call's 'id'")
                self._inputs[index] = as_object(block.get("input") or {}, "a call's 'input'")
                return self._calls.start(index, name, call_id)
            case _:
                self._opaque_blocks.start(index, block)
                return []

    def _delta(self, index: int, delta: dict[str, JSON]) -> list[Delta]:
        match delta.get("type"):
            case "text_delta":
                return _text(as_text(delta.get("text"), "'text' of a text_delta"))
            case "thinking_delta":
                return self._thinking(as_text(delta.get("thinking"), "'thinking' of a thinking_delta"))
            case "signature_delta":
                self._signature = as_text(delta.get("signature"), "'signature' of a signature_delta")
            case "input_json_delta":
                text = as_text(delta.get("partial_json"), "'partial_json' of an input_json_delta")
                if self._calls.is_open(index):
                    if text:
                        self._inputs.pop(index, None)
                    return self._calls.add(index, text)
                self._opaque_blocks.add(index, text)
                if index not in self._kinds:
                    raise ProviderError(
                        f"the server sent arguments for content block {index}, which it did not start",
                        code="ill_formed",
                    )
            case "citations_delta":
                self._opaque_blocks.cite(index, [delta["citation"]] if delta.get("citation") else None)
            case _:
                pass  # future deltas
        return []

    def _start_text(self, index: int, block: dict[str, JSON]) -> list[Delta]:
        """Ends the text before a text with citations."""
        out: list[Delta] = []
        if isinstance(block.get("citations"), list) and not self._opaque_blocks.cites:
            self._opaque_blocks.cites = True
            if self._kinds.get(index - 1) == "text":
                out.append(_part_end("text", self._opaque({})))
        self._opaque_blocks.cite(index, block.get("citations"))
        return out + _text(as_text(block.get("text"), "'text' of a content block"))

    def _stop(self, index: int) -> list[Delta]:
        if self._calls.is_open(index):
            # The next event shows whether the token limit cut it off.
            if index not in self._ended_calls:
                self._ended_calls.append(index)
        elif self._kinds.get(index) == "thinking" and (self._thought or self._signature):
            opaque = self._opaque({"signature": self._signature}) if self._signature else None
            self._thought, self._signature = False, ""
            return [PartEnded("reasoning", opaque)]
        elif (end := self._opaque_blocks.stop(index)) is not None:
            return [_part_end(end[0], self._opaque(end[1]))]
        return []

    def _settle(self, whole: bool) -> list[Delta]:
        """Completes the calls whose blocks have ended. `whole`: the turn was not cut off there."""
        out: list[Delta] = []
        for index in self._ended_calls:
            arguments = self._inputs.pop(index, None)
            if arguments:
                # Arguments in one piece. The API closes the braces of an object that was cut off, and it must not be
                # read as a whole object.
                text = json.dumps(arguments, ensure_ascii=False)
                out += self._calls.add(index, text if whole else text[:-1])
            out += self._calls.complete(index, whole=whole)
        self._ended_calls.clear()
        return out

    def _thinking(self, text: str) -> list[Delta]:
        self._thought = self._thought or bool(text)
        return [ReasoningDelta(text)] if text else []

    def _opaque(self, data: JSON) -> Opaque:
        return Opaque(NAME, self._request_model or self._model or "", data)

    def _count(self, usage: JSON) -> None:
        """Counts accumulate, so the greatest is the latest. Some servers send 0 for the input at the end."""
        if not isinstance(usage, dict):
            return
        for field in (*_INPUT_COUNTS, "output_tokens"):
            count = token_count(usage, field)
            if count is not None:
                self._counts[field] = max(self._counts.get(field, 0), count)
        details = cast("dict[str, JSON]", usage).get("output_tokens_details")
        reasoning = token_count(details, "thinking_tokens")
        if reasoning is not None:
            self._reasoning = reasoning

    def _usage(self) -> Usage:
        counts = self._counts
        return Usage(
            input=sum(counts.get(field, 0) for field in _INPUT_COUNTS) if "input_tokens" in counts else None,
            output=counts.get("output_tokens"),
            cached=counts.get("cache_read_input_tokens"),
            reasoning=self._reasoning,
            cache_write=counts.get("cache_creation_input_tokens"),
        )


class _OpaqueBlocks:
    """Blocks of one answer that are sent back unchanged: calls of tools that Anthropic runs, their results, and
    citations."""

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[ContentBlock, list[str]]] = {}
        self._citations: dict[int, list[JSON]] = {}
        self.cites = False
        """Whether a text of the answer has citations: then every text is a separate part."""

    def start(self, index: int, block: ContentBlock) -> None:
        """Starts a block of an unknown type."""
        self._blocks[index] = dict(block), []

    def add(self, index: int, fragment: str) -> None:
        """Adds a fragment of the input of a call that Anthropic runs."""
        if index in self._blocks:
            self._blocks[index][1].append(fragment)

    def cite(self, index: int, citations: JSON) -> None:
        if isinstance(citations, list) and citations:
            self.cites = True
            self._citations.setdefault(index, []).extend(cast("list[JSON]", citations))

    def stop(self, index: int) -> tuple[str, JSON] | None:
        """The kind and the opaque data of the part that ends with this block; None if it has no such data."""
        if index in self._blocks:
            block, pieces = self._blocks.pop(index)
            if pieces and not (block.get("input")):
                try:
                    block["input"] = json.loads("".join(pieces))
                except (ValueError, RecursionError):
                    return None  # cut off, so it did not run
            return "reasoning", {"block": block}
        if self.cites:
            citations = self._citations.pop(index, None)
            return "text", {"citations": citations} if citations else {}
        return None


def _part_end(part: str, opaque: Opaque) -> PartEnded:
    return PartEnded("text" if part == "text" else "reasoning", opaque)


def _text(text: str) -> list[Delta]:
    return [TextDelta(text)] if text else []


def _index(event: dict[str, JSON]) -> int:
    index = event.get("index")
    if not isinstance(index, int):
        raise ill_formed(f"'index' of a {event['type']}", "a number", index)
    return index


def _stream_error(error: JSON) -> ProviderError:
    kind = cast("dict[str, JSON]", error).get("type") if isinstance(error, dict) else None
    return reported_error(error, _ERROR_STATUS.get(str(kind)))
