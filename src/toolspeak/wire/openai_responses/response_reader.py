"""Answers of OpenAI Responses as a client reads them, whole and streamed. Sans-IO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from toolspeak.data.deltas import Delta, PartEnded, ReasoningDelta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON, FinishReason, Opaque, Usage
from toolspeak.errors import ProviderError
from toolspeak.wire.call_assembler import CallAssembler
from toolspeak.wire.error_table import reported_error
from toolspeak.wire.json_conversion import as_list, as_object, as_text, token_count
from toolspeak.wire.openai_responses.common import INPUT_END, INPUT_START, NAME, json_fragment, qualified_name

INCOMPLETE: Mapping[str, FinishReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}
"""Finish reasons by `incomplete_details.reason`; any other is `error`."""


def decode_response(body: JSON, *, model: str | None = None) -> list[Delta]:
    answer = as_object(body, "the response")
    if answer.get("error") and not answer.get("output"):
        raise reported_error(answer["error"])
    if not isinstance(answer.get("output"), list):
        raise ProviderError("the response has no output: is this an API with /v1/responses?", code="ill_formed")
    decoder = ResponseDecoder(model=model)
    return decoder.read(answer) + decoder.close()


class _IncomingItem:
    """An output item that is not complete. `key`: its call's key. `streamed`: whether deltas held some of its
    content."""

    __slots__ = ("index", "key", "kind", "streamed")

    def __init__(self, key: int, kind: str, index: JSON) -> None:
        self.key, self.kind, self.index = key, kind, index
        self.streamed: bool = False


class ResponseDecoder:
    """Reads one streamed answer; a `Decoder`.

    An event belongs to the item of its `item_id`. If that is unknown (some servers change an item's id in each event),
    it belongs to the newest item at its `output_index`. Content that was not streamed is read when its item is done,
    else from the response in the last event.
    """

    def __init__(self, *, model: str | None = None) -> None:
        self.finished: bool = False
        self._request_model = model
        self._model: str | None = None
        self._id: str | None = None
        self._calls = CallAssembler()
        self._by_id: dict[str, _IncomingItem] = {}
        self._by_index: dict[int, _IncomingItem] = {}
        self._current: _IncomingItem | None = None
        self._items = 0
        self._has_reasoning = False
        self._is_refused = False
        self._finish: FinishReason = "stop"
        self._usage = Usage()

    def feed(self, data: JSON) -> list[Delta]:
        if type(data) is dict:
            event = cast("dict[str, JSON]", data)
            text = event.get("delta")
            if type(text) is str and text:
                match event.get("type"):
                    case "response.output_text.delta":
                        item = self._current
                        if item is None or item.kind != "message" or item.index != event.get("output_index"):
                            item = self._item_or_new(event, "message")
                        item.streamed = True
                        return [TextDelta(text)]
                    case "response.function_call_arguments.delta":
                        return self._arguments(event, text)
                    case _:
                        pass
        return self._event(as_object(data, "an event of the stream"))

    def read(self, answer: dict[str, JSON]) -> list[Delta]:
        """Reads a whole response object. Reads its output only if no item was streamed."""
        self._note_head(answer)
        out: list[Delta] = []
        if not self._items:
            for item in as_list(answer.get("output"), "'output'"):
                out += self._read_done(as_object(item, "an item of 'output'"), None)
        self._note_end(answer)
        return out

    def close(self) -> list[Delta]:
        finish = self._finish
        if finish == "stop":
            finish = "tool_calls" if self._calls.any else "refusal" if self._is_refused else "stop"
        return [*self._calls.close(finish), TurnEnded(finish, self._usage, self._model, self._id)]

    def _event(self, event: dict[str, JSON]) -> list[Delta]:
        kind = as_text(event.get("type"), "'type' of an event")
        if kind == "error" or event.get("error"):
            raise _stream_error(event)
        match kind:
            case "response.output_item.added":
                return self._start_item(event)
            case "response.output_item.done":
                item = as_object(event.get("item"), "'item'")
                return self._read_done(item, self._item_of(event, item))
            case "response.output_text.delta" | "response.refusal.delta":
                return self._text_delta(event, refusal=kind == "response.refusal.delta")
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return self._reasoning_delta(event)
            case "response.reasoning_summary_part.added":
                # Parts of a summary are paragraphs with their own headings.
                return [ReasoningDelta("\n\n")] if event.get("summary_index") else []
            case "response.function_call_arguments.delta":
                return self._arguments(event, as_text(event.get("delta"), "'delta'"))
            case "response.custom_tool_call_input.delta":
                return self._arguments(event, json_fragment(as_text(event.get("delta"), "'delta'")))
            case "response.function_call_arguments.done":
                item = self._item_of(event, event)
                if item is not None and not item.streamed:
                    return self._arguments(event, as_text(event.get("arguments"), "'arguments'"))
                return []
            case "response.created" | "response.in_progress" | "response.queued":
                self._note_head(as_object(event.get("response"), "'response'"))
                return []
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                answer = as_object(event.get("response"), "'response'")
                return self.read({"status": kind.removeprefix("response."), **answer})
            case _:
                return []

    def _note_head(self, answer: dict[str, JSON]) -> None:
        model, response_id = answer.get("model"), answer.get("id")
        if isinstance(model, str) and model:
            self._model = model
        if isinstance(response_id, str) and response_id:
            self._id = response_id

    def _note_end(self, answer: dict[str, JSON]) -> None:
        self._usage = _usage(answer.get("usage"))
        match answer.get("status"):
            case "completed" | None:
                pass
            case "incomplete":
                details = answer.get("incomplete_details")
                reason = cast("dict[str, JSON]", details).get("reason") if isinstance(details, dict) else None
                self._finish = INCOMPLETE.get(reason, "error") if isinstance(reason, str) else "error"
            case "failed":
                raise reported_error(answer.get("error") or "the response failed, without a reason")
            case "cancelled":
                self._finish = "cancelled"
            case _:
                raise ProviderError(
                    "the server answered before the response was complete: omit the option 'background'",
                    code="bad_request",
                )
        self.finished = True

    # --- items ---------------------------------------------------------------------------------------------------

    def _start_item(self, event: dict[str, JSON]) -> list[Delta]:
        fields = as_object(event.get("item"), "'item'")
        item = self._new(as_text(fields.get("type"), "'type' of an item"), fields.get("id"), event.get("output_index"))
        return self._start(item, fields) if item.kind in ("function_call", "custom_tool_call") else []

    def _new(self, kind: str, item_id: JSON, index: JSON) -> _IncomingItem:
        self._items += 1
        item = self._current = _IncomingItem(self._items, kind, index)
        if isinstance(item_id, str):
            self._by_id[item_id] = item
        if isinstance(index, int):
            self._by_index[index] = item
        return item

    def _item_of(self, event: dict[str, JSON], source: dict[str, JSON]) -> _IncomingItem | None:
        """The item of an event; `source` holds its id (`id` of an item, `item_id` of an event)."""
        item_id, index = source.get("item_id") or source.get("id"), event.get("output_index")
        by_id = self._by_id.get(item_id) if isinstance(item_id, str) else None
        return by_id or (self._by_index.get(index) if isinstance(index, int) else None)

    def _item_or_new(self, event: dict[str, JSON], kind: str) -> _IncomingItem:
        """The event's item, or a new item if the server did not announce one."""
        return self._item_of(event, event) or self._new(kind, event.get("item_id"), event.get("output_index"))

    def _start(self, item: _IncomingItem, fields: dict[str, JSON]) -> list[Delta]:
        name = qualified_name(fields.get("namespace"), as_text(fields.get("name"), "'name' of a function call"))
        out = self._calls.start(item.key, name, as_text(fields.get("call_id"), "'call_id'") or None)
        return out + self._calls.add(item.key, INPUT_START) if item.kind == "custom_tool_call" else out

    def _arguments(self, event: dict[str, JSON], text: str) -> list[Delta]:
        item = self._item_of(event, event)
        if item is None or not self._calls.is_open(item.key):
            return []  # the call is complete, or the API runs the tool itself
        item.streamed = True
        return self._calls.add(item.key, text)

    def _text_delta(self, event: dict[str, JSON], *, refusal: bool) -> list[Delta]:
        text = as_text(event.get("delta"), "'delta'")
        if not text:
            return []
        self._item_or_new(event, "message").streamed = True
        self._is_refused = self._is_refused or refusal
        return [TextDelta(text)]

    def _reasoning_delta(self, event: dict[str, JSON]) -> list[Delta]:
        text = as_text(event.get("delta"), "'delta'")
        if not text:
            return []
        self._item_or_new(event, "reasoning").streamed = True
        return [ReasoningDelta(text)]

    def _read_done(self, data: dict[str, JSON], item_of_event: _IncomingItem | None) -> list[Delta]:
        kind = as_text(data.get("type"), "'type' of an item")
        if item_of_event is not None and item_of_event.kind != kind:  # some servers repeat an index
            item_of_event = None
        item = item_of_event or self._new(kind, data.get("id"), None)
        match kind:
            case "message":
                return self._message_done(data, item)
            case "reasoning":
                return self._reasoning_done(data, item)
            case "function_call" | "custom_tool_call":
                return self._call_done(data, item, started=item_of_event is not None)
            case _:
                return []  # a tool that the API runs itself, or a new kind

    def _message_done(self, data: dict[str, JSON], item: _IncomingItem) -> list[Delta]:
        out: list[Delta] = []
        for each in as_list(data.get("content"), "'content' of a message"):
            part = as_object(each, "a part of 'content'")
            refusal = part.get("type") == "refusal"
            text = as_text(part.get("refusal" if refusal else "text"), "the text of a part of 'content'")
            self._is_refused = self._is_refused or (refusal and bool(text))
            if text and not item.streamed:
                out.append(TextDelta(text))
        if item.streamed or out:
            fields = {name: data[name] for name in ("id", "phase") if data.get(name)}
            is_returned = self._has_reasoning or "phase" in fields
            out.append(PartEnded("text", self._opaque(fields) if is_returned else None))
        return out

    def _reasoning_done(self, data: dict[str, JSON], item: _IncomingItem) -> list[Delta]:
        self._has_reasoning = True
        text = "" if item.streamed else _reasoning_text(data)
        return [*([ReasoningDelta(text)] if text else []), PartEnded("reasoning", self._opaque(data))]

    def _call_done(self, data: dict[str, JSON], item: _IncomingItem, *, started: bool) -> list[Delta]:
        out: list[Delta] = [] if started else self._start(item, data)
        if not self._calls.is_open(item.key):
            return out  # a repeated event
        freeform, whole = item.kind == "custom_tool_call", data.get("status") != "incomplete"
        if not item.streamed and freeform:
            out += self._calls.add(item.key, json_fragment(as_text(data.get("input"), "'input'")))
        elif not item.streamed:
            out += self._calls.add(item.key, as_text(data.get("arguments"), "'arguments'"))
        if freeform and whole:
            out += self._calls.add(item.key, INPUT_END)
        if data.get("id"):
            self._calls.sign(item.key, self._opaque({"id": data["id"]}))
        # If the token limit cut a call off, its item is incomplete.
        return out + self._calls.complete(item.key, whole=whole)

    def _opaque(self, data: JSON) -> Opaque:
        return Opaque(NAME, self._request_model or self._model or "", data)


def _reasoning_text(item: dict[str, JSON]) -> str:
    """The text of a reasoning item: its summary and, where a server shows it, the reasoning itself."""
    texts: list[str] = []
    for field in ("summary", "content"):
        for each in as_list(item.get(field), f"'{field}' of reasoning"):
            part = as_object(each, f"a part of '{field}'")
            texts.append(as_text(part.get("text"), f"the text of a part of '{field}'"))
    return "\n\n".join(text for text in texts if text)


def _stream_error(event: dict[str, JSON]) -> ProviderError:
    """The error of an event. The API's is flat; servers also send `error` objects, some next to the HTTP status."""
    error = event.get("error")
    if not error:
        return reported_error({name: event.get(name) for name in ("message", "code")})
    status = event.get("status")
    return reported_error(error, status if isinstance(status, int) and 400 <= status <= 599 else None)


def _usage(usage: JSON) -> Usage:
    if not isinstance(usage, dict):
        return Usage()
    counts = cast("dict[str, JSON]", usage)
    return Usage(
        input=token_count(counts, "input_tokens"),
        output=token_count(counts, "output_tokens"),
        cached=token_count(counts.get("input_tokens_details"), "cached_tokens"),
        reasoning=token_count(counts.get("output_tokens_details"), "reasoning_tokens"),
    )
