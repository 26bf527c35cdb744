"""Answers of OpenAI Responses as a client reads them, whole and streamed. Sans-IO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from toolspeak.data.deltas import Delta, PartEnded, ReasoningDelta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON, FinishReason, Opaque, Usage
from toolspeak.errors import ProviderError
from toolspeak.wire.call_assembler import CallAssembler
from toolspeak.wire.error_table import reported_error
from toolspeak.wire.openai_responses.common import BEFORE_INPUT, BEHIND_INPUT, NAME, joined_name, within_json
from toolspeak.wire.validation import as_list, as_object, as_text, token_count

INCOMPLETE: Mapping[str, FinishReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}
"""`incomplete_details.reason` as our finish reason; any other is `error`."""


def decode_response(body: JSON, model: str | None = None) -> list[Delta]:
    answer = as_object(body, "the response")
    if answer.get("error") and not answer.get("output"):
        raise reported_error(answer["error"])
    if not isinstance(answer.get("output"), list):
        raise ProviderError("the response has no output: is this an API with /v1/responses?", code="ill_formed")
    decoder = ResponseDecoder(model)
    return decoder.read(answer) + decoder.close()


class _Item:
    """One output item while it comes. `key` is its call's; `streamed`: some of its content came as deltas."""

    __slots__ = ("index", "key", "kind", "streamed")

    def __init__(self, key: int, kind: str, index: JSON) -> None:
        self.key, self.kind, self.index = key, kind, index
        self.streamed = False


class ResponseDecoder:
    """Implements `Decoder`.

    An event belongs to the item of its `item_id`; where that is unknown (there are servers that give an item another
    id in each event) to the newest at its `output_index`. What was not streamed is read when its item is done, and what
    no item event told from the last event's response.
    """

    def __init__(self, model: str | None = None) -> None:
        self.finished = False
        self._asked = model
        self._model: str | None = None
        self._id: str | None = None
        self._calls = CallAssembler()
        self._by_id: dict[str, _Item] = {}
        self._by_index: dict[int, _Item] = {}
        self._current: _Item | None = None
        self._items = 0
        self._linked = False
        self._refused = False
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
                            item = self._of(event, "message")
                        item.streamed = True
                        return [TextDelta(text)]
                    case "response.function_call_arguments.delta":
                        return self._arguments(event, text)
                    case _:
                        pass
        return self._event(as_object(data, "an event of the stream"))

    def read(self, answer: dict[str, JSON]) -> list[Delta]:
        """A whole response object. Its output is only read if no item came before."""
        self._begin(answer)
        out: list[Delta] = []
        if not self._items:
            for item in as_list(answer.get("output"), "'output'"):
                out += self._done(as_object(item, "an item of 'output'"), None)
        self._end(answer)
        return out

    def close(self) -> list[Delta]:
        finish = self._finish
        if finish == "stop":
            finish = "tool_calls" if self._calls.any else "refusal" if self._refused else "stop"
        return [*self._calls.close(finish), TurnEnded(finish, self._usage, self._model, self._id)]

    def _event(self, event: dict[str, JSON]) -> list[Delta]:
        kind = as_text(event.get("type"), "'type' of an event")
        if kind == "error" or event.get("error"):
            raise _stream_error(event)
        match kind:
            case "response.output_item.added":
                return self._added(event)
            case "response.output_item.done":
                item = as_object(event.get("item"), "'item'")
                return self._done(item, self._known(event, item))
            case "response.output_text.delta" | "response.refusal.delta":
                return self._said(event, refusal=kind == "response.refusal.delta")
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return self._thought(event)
            case "response.reasoning_summary_part.added":
                # Parts of a summary are paragraphs with headings of their own.
                return [ReasoningDelta("\n\n")] if event.get("summary_index") else []
            case "response.function_call_arguments.delta":
                return self._arguments(event, as_text(event.get("delta"), "'delta'"))
            case "response.custom_tool_call_input.delta":
                return self._arguments(event, within_json(as_text(event.get("delta"), "'delta'")))
            case "response.function_call_arguments.done":
                item = self._known(event, event)
                if item is not None and not item.streamed:
                    return self._arguments(event, as_text(event.get("arguments"), "'arguments'"))
                return []
            case "response.created" | "response.in_progress" | "response.queued":
                self._begin(as_object(event.get("response"), "'response'"))
                return []
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                answer = as_object(event.get("response"), "'response'")
                return self.read({"status": kind.removeprefix("response."), **answer})
            case _:
                return []

    def _begin(self, answer: dict[str, JSON]) -> None:
        model, response_id = answer.get("model"), answer.get("id")
        if isinstance(model, str) and model:
            self._model = model
        if isinstance(response_id, str) and response_id:
            self._id = response_id

    def _end(self, answer: dict[str, JSON]) -> None:
        self._usage = _usage(answer.get("usage"))
        match answer.get("status"):
            case "completed" | None:
                pass
            case "incomplete":
                details = answer.get("incomplete_details")
                reason = cast("dict[str, JSON]", details).get("reason") if isinstance(details, dict) else None
                self._finish = INCOMPLETE.get(reason, "error") if isinstance(reason, str) else "error"
            case "failed":
                raise reported_error(answer.get("error") or "the response failed, and nothing says why")
            case "cancelled":
                self._finish = "cancelled"
            case _:
                raise ProviderError(
                    "the server answered before the response was whole: leave the option 'background'",
                    code="bad_request",
                )
        self.finished = True

    # --- items ---------------------------------------------------------------------------------------------------

    def _added(self, event: dict[str, JSON]) -> list[Delta]:
        given = as_object(event.get("item"), "'item'")
        item = self._new(as_text(given.get("type"), "'type' of an item"), given.get("id"), event.get("output_index"))
        return self._start(item, given) if item.kind in ("function_call", "custom_tool_call") else []

    def _new(self, kind: str, item_id: JSON, index: JSON) -> _Item:
        self._items += 1
        item = self._current = _Item(self._items, kind, index)
        if isinstance(item_id, str):
            self._by_id[item_id] = item
        if isinstance(index, int):
            self._by_index[index] = item
        return item

    def _known(self, event: dict[str, JSON], item: dict[str, JSON]) -> _Item | None:
        """The item that an event is about: `item` holds its id (`id` of an item, `item_id` of an event)."""
        item_id, index = item.get("item_id") or item.get("id"), event.get("output_index")
        found = self._by_id.get(item_id) if isinstance(item_id, str) else None
        return found or (self._by_index.get(index) if isinstance(index, int) else None)

    def _of(self, event: dict[str, JSON], kind: str) -> _Item:
        """The item that an event is about; a new one if none was announced."""
        return self._known(event, event) or self._new(kind, event.get("item_id"), event.get("output_index"))

    def _start(self, item: _Item, given: dict[str, JSON]) -> list[Delta]:
        name = joined_name(given.get("namespace"), as_text(given.get("name"), "'name' of a function call"))
        out = self._calls.start(item.key, name, as_text(given.get("call_id"), "'call_id'") or None)
        return out + self._calls.add(item.key, BEFORE_INPUT) if item.kind == "custom_tool_call" else out

    def _arguments(self, event: dict[str, JSON], text: str) -> list[Delta]:
        item = self._known(event, event)
        if item is None or not self._calls.knows(item.key):
            return []  # of a call that has ended, or of a tool that the API runs itself
        item.streamed = True
        return self._calls.add(item.key, text)

    def _said(self, event: dict[str, JSON], *, refusal: bool) -> list[Delta]:
        text = as_text(event.get("delta"), "'delta'")
        if not text:
            return []
        self._of(event, "message").streamed = True
        self._refused = self._refused or refusal
        return [TextDelta(text)]

    def _thought(self, event: dict[str, JSON]) -> list[Delta]:
        text = as_text(event.get("delta"), "'delta'")
        if not text:
            return []
        self._of(event, "reasoning").streamed = True
        return [ReasoningDelta(text)]

    def _done(self, given: dict[str, JSON], known: _Item | None) -> list[Delta]:
        kind = as_text(given.get("type"), "'type' of an item")
        if known is not None and known.kind != kind:  # a server that gives several items the same index
            known = None
        item = known or self._new(kind, given.get("id"), None)
        match kind:
            case "message":
                return self._message_done(given, item)
            case "reasoning":
                return self._reasoning_done(given, item)
            case "function_call" | "custom_tool_call":
                return self._call_done(given, item, started=known is not None)
            case _:
                return []  # of a tool that the API runs itself, or newer than this

    def _message_done(self, given: dict[str, JSON], item: _Item) -> list[Delta]:
        out: list[Delta] = []
        for each in as_list(given.get("content"), "'content' of a message"):
            part = as_object(each, "a part of 'content'")
            refusal = part.get("type") == "refusal"
            text = as_text(part.get("refusal" if refusal else "text"), "the text of a part of 'content'")
            self._refused = self._refused or (refusal and bool(text))
            if text and not item.streamed:
                out.append(TextDelta(text))
        if item.streamed or out:
            kept = {name: given[name] for name in ("id", "phase") if given.get(name)}
            worth = self._linked or "phase" in kept
            out.append(PartEnded("text", self._opaque(kept) if worth else None))
        return out

    def _reasoning_done(self, given: dict[str, JSON], item: _Item) -> list[Delta]:
        self._linked = True
        text = "" if item.streamed else _thoughts(given)
        return [*([ReasoningDelta(text)] if text else []), PartEnded("reasoning", self._opaque(given))]

    def _call_done(self, given: dict[str, JSON], item: _Item, *, started: bool) -> list[Delta]:
        out: list[Delta] = [] if started else self._start(item, given)
        if not self._calls.knows(item.key):
            return out  # told twice
        freeform, whole = item.kind == "custom_tool_call", given.get("status") != "incomplete"
        if not item.streamed and freeform:
            out += self._calls.add(item.key, within_json(as_text(given.get("input"), "'input'")))
        elif not item.streamed:
            out += self._calls.add(item.key, as_text(given.get("arguments"), "'arguments'"))
        if freeform and whole:
            out += self._calls.add(item.key, BEHIND_INPUT)
        if given.get("id"):
            self._calls.sign(item.key, self._opaque({"id": given["id"]}))
        # A call the token limit cut off is an incomplete item.
        return out + self._calls.complete(item.key, whole=whole)

    def _opaque(self, data: JSON) -> Opaque:
        return Opaque(NAME, self._asked or self._model or "", data)


def _thoughts(item: dict[str, JSON]) -> str:
    """The text of a reasoning item: its summary and, where a server shows it, what was thought."""
    texts: list[str] = []
    for field in ("summary", "content"):
        for each in as_list(item.get(field), f"'{field}' of reasoning"):
            part = as_object(each, f"a part of '{field}'")
            texts.append(as_text(part.get("text"), f"the text of a part of '{field}'"))
    return "\n\n".join(text for text in texts if text)


def _stream_error(event: dict[str, JSON]) -> ProviderError:
    """The API's error event is flat; servers send `error` objects too, some with the HTTP status beside them."""
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
