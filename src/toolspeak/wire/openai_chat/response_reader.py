"""Answers of OpenAI Chat Completions as a client reads them, whole and streamed. Sans-IO.

Source: the OpenAI API reference, "Chat Completions", and what compatible servers (llama.cpp, llama-cpp-python, vLLM,
SGLang, LM Studio, Ollama, OpenRouter, Groq, Mistral, Gemini) send in addition: reasoning next to `content`, `error`
objects inside a stream, content as a list of parts, calls whose fragments have no index, no id, or repeat all fields.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from toolspeak.data.deltas import Delta, PartEnded, ReasoningDelta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON, NORMAL_END, FinishReason, Opaque, Usage
from toolspeak.errors import ProviderError
from toolspeak.wire.call_assembler import CallAssembler
from toolspeak.wire.error_table import REMEDIES, reported_error
from toolspeak.wire.json_conversion import as_list, as_object, as_text, ill_formed, token_count
from toolspeak.wire.openai_chat.common import NAME, REASONING_FIELDS

FINISH_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",  # the deprecated predecessor of tool_calls
    "content_filter": "content_filter",
    # Compatible servers send these:
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "max_tokens": "length",
    "model_length": "length",
    "max_length": "length",
}
"""Finish reasons by the API's `finish_reason`. Any other is `error`, since the turn may be incomplete."""

FAILURE_REASONS = frozenset({"error", "insufficient_system_resource"})
"""Finish reasons of failed turns: OpenRouter's and vLLM's, DeepSeek's."""


def decode_response(body: JSON, *, model: str | None = None, keep_reasoning: bool = False) -> list[Delta]:
    """See `WireFormat.decode_response`."""
    answer = as_object(body, "the response")
    choices = answer.get("choices")
    if isinstance(choices, list):
        answer = {**answer, "choices": [_message_as_delta(choice) for choice in cast("list[Any]", choices)]}
    decoder = ChunkDecoder(model=model, keep_reasoning=keep_reasoning)
    deltas = decoder.feed(answer)
    if not choices:
        raise ProviderError("the response has no choices: is this an OpenAI-compatible chat API?", code="ill_formed")
    return deltas + decoder.close()


def _message_as_delta(choice: JSON) -> JSON:
    """Turns the choice of a whole answer into that of one chunk, for the same decoder."""
    if not isinstance(choice, dict):
        return choice
    fields = cast("dict[str, JSON]", choice)
    message = fields.get("message")
    if isinstance(message, dict):
        message_fields = cast("dict[str, JSON]", message)
        calls = as_list(message_fields.get("tool_calls"), "'tool_calls'")
        # Each is a separate call, with any id and index.
        numbered_calls = [{**as_object(call, "a call"), "index": i} for i, call in enumerate(calls)]
        message = {**message_fields, "tool_calls": numbered_calls}
    return {**fields, "delta": message}


@dataclass(slots=True)
class _CallHead:
    """A call without its arguments."""

    id: str
    name: str
    pending: str = ""
    """The arguments that arrived before the name."""
    opaque: Opaque | None = None


class ChunkDecoder:
    """Reads the chunks of one streamed answer; a `Decoder`. `finished`: a chunk has had a finish reason."""

    def __init__(self, *, model: str | None = None, keep_reasoning: bool = False) -> None:
        self.finished: bool = False
        self._request_model = model
        self._keep_reasoning = keep_reasoning
        self._finish: FinishReason = "stop"
        self._is_refused = False
        self._usage = Usage()
        self._model: str | None = None
        # Open reasoning that goes back to the API.
        self._signing = False
        self._field: str | None = None
        self._details: list[dict[str, JSON]] = []
        self._heads: dict[Hashable, _CallHead] = {}
        self._keys: dict[str, Hashable] = {}
        self._last: Hashable = None

    @cached_property
    def _calls(self) -> CallAssembler:
        """Assembles the turn's calls. Made for the first one: the turns of text dialects have none."""
        return CallAssembler()

    def feed(self, data: JSON) -> list[Delta]:
        """See `Decoder`."""
        # The ordinary chunk: one choice with only a piece of text, or of one call's arguments.
        if data.__class__ is dict and not self._signing and "error" not in data and data.get("usage") is None:
            choices = data.get("choices")
            if choices.__class__ is list and len(choices) == 1 and data.get("model") == self._model:
                choice = choices[0]
                if choice.__class__ is dict and choice.get("finish_reason") is None and not choice.get("index"):
                    delta = choice.get("delta")
                    if delta.__class__ is dict and len(delta) == 1:
                        text = delta.get("content")
                        if text.__class__ is str and text:
                            return [TextDelta(text)]
                        calls = delta.get("tool_calls")
                        if calls.__class__ is list and len(calls) == 1:
                            deltas = self._fragment(calls[0])
                            if deltas is not None:
                                return deltas
        return self._chunk(data)

    def close(self) -> list[Delta]:
        """See `Decoder`. Without a finish reason it is `stop`."""
        finish: FinishReason = "refusal" if self._is_refused and self._finish == "stop" else self._finish
        deltas = self._end_reasoning()
        for key, head in self._heads.items():
            if not head.name and head.pending:
                deltas += [*self._calls.start(key, "", head.id), *self._calls.add(key, head.pending)]
        if self._heads:
            deltas += self._calls.close(finish)
        return [*deltas, TurnEnded(finish, self._usage, self._model)]

    def _fragment(self, call: Any) -> list[Delta] | None:
        """The deltas of a fragment that only adds arguments to an open call; None for any other."""
        if call.__class__ is dict and len(call) == 2 and (key := call.get("index")) is not None:
            function = call.get("function")
            if key.__class__ is int and function.__class__ is dict and len(function) == 1 and self._calls.is_open(key):
                text = function.get("arguments")
                if text.__class__ is str:
                    return self._calls.add(key, text)
        return None

    def _chunk(self, chunk: JSON) -> list[Delta]:
        data = as_object(chunk, "a chunk of the stream")
        if data.get("error"):
            raise reported_error(data["error"])
        if data.get("object") == "error":  # vLLM, SGLang
            raise reported_error(data)
        model = data.get("model")
        if isinstance(model, str) and model:
            self._model = model
        # Some servers send a total so far in every chunk: the last one counts.
        self._count(data.get("usage"))
        groq = data.get("x_groq")
        if isinstance(groq, dict):
            self._count(cast("dict[str, JSON]", groq).get("usage"))
        choices: JSON = data.get("choices") or []
        if not isinstance(choices, list):
            raise ill_formed("'choices'", "a list", choices)
        deltas: list[Delta] = []
        for choice in cast("list[Any]", choices):
            deltas += self._choice(as_object(choice, "a choice"))
        return deltas

    def _choice(self, choice: dict[str, JSON]) -> list[Delta]:
        if choice.get("index"):
            return []  # `n` above 1: only the first answer counts
        delta = as_object(choice.get("delta") or {}, "'delta'")
        deltas = self._reasoning(delta)
        thought, content = _content(delta)
        if thought:
            deltas.append(ReasoningDelta(thought))
        refusal = as_text(delta.get("refusal"), "'refusal'")
        self._is_refused = self._is_refused or bool(refusal)
        text_deltas = [TextDelta(text) for text in (content, refusal) if text]
        calls = as_list(delta.get("tool_calls"), "'tool_calls'")
        legacy = delta.get("function_call")
        if self._signing and (text_deltas or calls or legacy):
            deltas += self._end_reasoning()
        deltas += text_deltas
        for call in calls:
            deltas += self._call(as_object(call, "a call"))
        if legacy and (not self._calls.any or "function_call" in self._heads):
            # llama-cpp-python sends it in addition to the same tool_calls.
            deltas += self._call({"function": legacy}, "function_call")
        reason = as_text(choice.get("finish_reason"), "'finish_reason'")
        if reason:  # some servers send "" until the last chunk
            if reason in FAILURE_REASONS:
                raise ProviderError(
                    f"the server ended the turn with an error: finish reason {reason!r}. {REMEDIES['overloaded']}",
                    retryable=True,
                    code="overloaded",
                )
            self.finished = True
            self._finish = FINISH_REASONS.get(reason, "error")
            if self._finish in NORMAL_END and self._heads and (call_ends := self._calls.complete_parsed()):
                deltas += [*self._end_reasoning(), *call_ends]
        self._count(choice.get("usage"))  # Moonshot
        return deltas

    def _count(self, usage: JSON) -> None:
        if isinstance(usage, dict):
            self._usage = _usage(cast("dict[str, JSON]", usage))

    # --- reasoning ---------------------------------------------------------------------------------------------

    def _reasoning(self, delta: dict[str, JSON]) -> list[Delta]:
        text = field = ""
        for field in REASONING_FIELDS:
            text = _joined_text(delta.get(field), field)
            if text:
                break
        details = as_list(delta.get("reasoning_details"), "'reasoning_details'")
        if details:
            parts = [as_object(each, "a part of 'reasoning_details'") for each in details]
            text = text or "".join(each.get("text") or each.get("summary") or "" for each in parts)
            _merge_details(self._details, parts)
            self._signing = True
        elif text and self._keep_reasoning:
            self._field, self._signing = field, True
        return [ReasoningDelta(text)] if text else []

    def _end_reasoning(self) -> list[Delta]:
        if not self._signing:
            return []
        data: dict[str, JSON] = {}
        if self._field is not None:
            data["field"] = self._field
        if self._details:
            data["reasoning_details"] = self._details
        self._signing, self._field, self._details = False, None, []
        return [PartEnded("reasoning", self._opaque(data))]

    def _opaque(self, data: JSON) -> Opaque:
        return Opaque(NAME, self._request_model or self._model or "", data)

    # --- calls -------------------------------------------------------------------------------------------------

    def _call(self, item: dict[str, JSON], key: Hashable = None) -> list[Delta]:
        """Reads a fragment of a call, or a whole call."""
        function = as_object(item.get("function") or {}, "'function' of a call")
        name = as_text(function.get("name"), "'name' of a call")
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # older servers, and some proxies
            arguments = json.dumps(arguments, ensure_ascii=False)
        text = as_text(arguments, "'arguments' of a call")
        call_id = item.get("id")
        call_id = call_id if isinstance(call_id, str) else "" if call_id is None else json.dumps(call_id)
        key, is_new = self._key(key, item.get("index"), call_id, name, text)
        if is_new:
            self._heads[key] = _CallHead(call_id, "")
        head = self._heads[key]
        self._last = key
        if call_id:
            self._keys.setdefault(call_id, key)
        if item.get("extra_content") is not None:
            head.opaque = self._opaque({"extra_content": item["extra_content"]})
        out: list[Delta] = []
        if not head.name:
            head.id = head.id or call_id
            if not name:
                head.pending += text
                return []
            head.name = name
            out += [*self._calls.complete_parsed(), *self._calls.start(key, name, head.id, head.opaque)]
            text, head.pending = head.pending + text, ""
        elif head.opaque is not None:
            self._calls.sign(key, head.opaque)
        return out + self._calls.add(key, text)

    def _key(self, key: Hashable, index: JSON, call_id: str, name: str, text: str) -> tuple[Hashable, bool]:
        """The key of the fragment's call, and whether the fragment starts the call. Servers differ: they send an index,
        an id, both in every chunk, the same index for all calls, a new id in every chunk, or neither."""
        if key is None:
            if index is not None:
                if not isinstance(index, int):
                    raise ill_formed("'index' of a call", "a number", index)
                key = index
            elif call_id:
                key = self._keys.get(call_id, call_id)
            elif self._last is None or (
                name and self._starts_call(self._heads[self._last], self._last, "", name, text)
            ):
                key = ("call", len(self._heads))
            else:
                key = self._last
        head = self._heads.get(key)
        return key, head is None or self._starts_call(head, key, call_id, name, text)

    def _starts_call(self, head: _CallHead, key: Hashable, call_id: str, name: str, text: str) -> bool:
        """Whether a fragment with the key of a call starts another call."""
        if not (name and head.name):
            return False
        if call_id and head.id:
            return call_id != head.id
        if not self._calls.is_open(key):  # the call is complete
            return name != head.name or text.lstrip()[:1] == "{"
        return name != head.name or (text.lstrip()[:1] in ("", "{") and self._calls.is_whole(key))


def _content(delta: dict[str, JSON]) -> tuple[str, str]:
    """The reasoning and the text in `content`, which is a string or a list of parts (Mistral's may be reasoning)."""
    value = delta.get("content")
    if not isinstance(value, list):
        return "", as_text(value, "'content'")
    thoughts: list[str] = []
    texts: list[JSON] = []
    for part in cast("list[Any]", value):
        fields = as_object(part, "a part of 'content'")
        if fields.get("type") == "thinking":
            thoughts.append(_joined_text(fields.get("thinking"), "thinking"))
        else:
            texts.append(fields)
    return "".join(thoughts), _joined_text(texts, "content")


def _joined_text(value: JSON, field: str) -> str:
    """The text of a string or of a list of parts."""
    if not isinstance(value, list):
        return as_text(value, f"'{field}'")
    texts: list[str] = []
    for part in cast("list[Any]", value):
        fields = as_object(part, f"a part of '{field}'")
        text = fields.get("text")
        if isinstance(text, str):
            texts.append(text)
        elif fields.get("type") not in ("reference", "tool_reference"):  # Mistral's, to results of its own tools
            raise ill_formed(f"'text' of a part of '{field}'", "a string", text)
    return "".join(texts)


def _merge_details(target: list[dict[str, JSON]], details: list[dict[str, JSON]]) -> None:
    """Joins the pieces of OpenRouter's reasoning details; those with the same `index` and `type` belong together."""
    for each in details:
        last = target[-1] if target else {}
        if not last or (last.get("type"), last.get("index")) != (each.get("type"), each.get("index")):
            target.append(dict(each))
            continue
        for field, value in each.items():
            if field in ("text", "summary", "data") and isinstance(value, str) and isinstance(last.get(field), str):
                last[field] += value
            elif value is not None:
                last[field] = value


def _usage(usage: dict[str, JSON]) -> Usage:
    cached_tokens = token_count(usage.get("prompt_tokens_details"), "cached_tokens")
    if cached_tokens is None:
        cached_tokens = token_count(usage, "prompt_cache_hit_tokens")  # DeepSeek
    if cached_tokens is None:
        cached_tokens = token_count(usage, "cached_tokens")  # Moonshot
    return Usage(
        input=token_count(usage, "prompt_tokens"),
        output=token_count(usage, "completion_tokens"),
        cached=cached_tokens,
        reasoning=token_count(usage.get("completion_tokens_details"), "reasoning_tokens"),
        cache_write=token_count(usage.get("prompt_tokens_details"), "cache_write_tokens"),  # OpenRouter
    )
