"""Fields of Chat Completions that the gateway does not know, kept for answers that it writes anew. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from toolspeak.data.messages import JSON
from toolspeak.gateway.http.asgi import Fields
from toolspeak.wire.base import StreamFrame, WireFormat
from toolspeak.wire.openai_chat import OPENAI_CHAT

_TOP_FIELDS = ("id", "object", "created", "model", "choices", "usage")
_CHOICE_FIELDS = ("index", "delta", "message", "finish_reason")
_DELTA_FIELDS = ("role", "content", "tool_calls", "function_call", "refusal", "reasoning_content", "reasoning",
         "reasoning_details")  # fmt: skip


class _More:
    """Unknown fields of events, of their choices and of their deltas, until they go into another event."""

    def __init__(self) -> None:
        self._top: dict[str, JSON] = {}
        self._choice: dict[str, JSON] = {}
        self._delta: dict[str, JSON] = {}

    def add(self, data: Fields) -> None:
        choice = _first(data)
        _merge(self._top, _without(data, _TOP_FIELDS))
        _merge(self._choice, _without(choice, _CHOICE_FIELDS))
        _merge(self._delta, _without(_object(choice.get("delta")), _DELTA_FIELDS))

    def into(self, frame: dict[str, Any]) -> dict[str, Any]:
        """The frame, which has one choice, with these fields. Each field goes into one frame only."""
        (choice,) = frame["choices"]
        choice = {**choice, **self._choice, "delta": {**choice["delta"], **self._delta}}
        frame = {**frame, **self._top, "choices": [choice]}
        self._top, self._choice, self._delta = {}, {}, {}
        return frame


class UnknownFields:
    """Collects the unknown fields of a stream's events. `id` and `created_at` are the answer's."""

    def __init__(self, wire: WireFormat) -> None:
        self.id = ""
        self.created_at = 0
        self._is_chat = wire is OPENAI_CHAT
        self._usage: JSON = None
        self._finish: JSON = None
        self._more = _More()
        self._last = _More()
        """Fields of the event with the finish reason, and of the events after it."""

    @property
    def is_identified(self) -> bool:
        """Whether `id` and `created_at` are known."""
        return bool(self.id and self.created_at)

    def begin(self, data: Fields) -> None:
        """Stores the fields that apply to the whole answer. Call it before `add`, once per event."""
        if self._is_chat and self.is_identified:
            usage, choices = data.get("usage"), data.get("choices")
            if usage is not None:
                self._usage = usage
            if choices.__class__ is list and choices and choices[0].__class__ is dict:
                self._finish = choices[0].get("finish_reason") or self._finish
            return
        if not self._is_chat:
            inner = data.get("message") or data.get("response")
            data = cast("Fields", inner) if isinstance(inner, dict) else {}
        answer_id, created_at = data.get("id"), data.get("created")
        self.id = self.id or (answer_id if isinstance(answer_id, str) else "")
        self.created_at = self.created_at or (created_at if isinstance(created_at, int) else 0)
        if self._is_chat:
            self._usage = data.get("usage") or self._usage
            self._finish = _first(data).get("finish_reason") or self._finish

    def add(self, data: Fields) -> None:
        """Adds the fields of an event that is written anew."""
        if self._is_chat:
            (self._last if self._finish else self._more).add(data)

    def complete(self, frames: Sequence[StreamFrame], *, usage: bool) -> list[StreamFrame]:
        """The frames with the collected fields, which go into the first frame that has a choice, and the server's
        usage."""
        return [(name, self._with(data, usage=usage)) for name, data in frames]

    def _with(self, data: JSON, *, usage: bool) -> JSON:
        if not self._is_chat or not isinstance(data, dict):
            return data
        frame = cast("dict[str, Any]", data)
        if frame.get("usage") is not None:
            return {**frame, "usage": (usage and self._usage) or frame["usage"]}
        if not frame.get("choices"):
            return frame
        frame = self._more.into(frame)
        return self._last.into(frame) if frame["choices"][0]["finish_reason"] else frame

    def tells_finish(self, frames: Sequence[StreamFrame]) -> bool:
        """Whether the server gave the finish reason that these frames give."""
        finishes = [_first(cast("Fields", data)).get("finish_reason") for _, data in frames if isinstance(data, dict)]
        return not self._is_chat or self._finish in filter(None, finishes)


def with_unknown_fields(body: dict[str, JSON], data: Fields, wire: WireFormat, *, usage: bool) -> dict[str, JSON]:
    """A whole answer that was written anew, with the unknown fields of the server's. `usage`: keep the server's
    usage."""
    if wire is not OPENAI_CHAT:
        return {**{name: value for name, value in data.items() if name not in body}, **body}
    own, choice = _first(body), _first(data)
    message = {**_object(own.get("message")), **_without(_object(choice.get("message")), _DELTA_FIELDS)}
    own_fields = {name: data[name] for name in ("id", "created") if data.get(name)}
    if usage and data.get("usage"):
        own_fields["usage"] = data["usage"]
    rows: list[JSON] = [{**own, **_without(choice, _CHOICE_FIELDS), "message": message}]
    return {**body, **_without(data, _TOP_FIELDS), **own_fields, "choices": rows}


def same_finish(data: Fields, body: Fields, wire: WireFormat) -> bool:
    """Whether two non-streamed answers give the same finish reason."""
    return wire is not OPENAI_CHAT or _first(data).get("finish_reason") == _first(body).get("finish_reason")


def call_chunk_checker() -> Callable[[Fields, int], bool]:
    """Makes a check for the calls of each chunk, or of a whole answer. They are sound if they are numbered in order, if
    each has an id and a name of its own, sent once, and if the arguments have `size` characters. A role must be
    `assistant`: llama-cpp-python sends null beside calls, and OpenAI's client for Node takes it over.
    """
    ids: dict[int, str] = {}

    def sound(data: Fields, size: int) -> bool:
        choice = _first(data)
        whole = "message" in choice
        message = _object(choice.get("message" if whole else "delta"))
        if message.get("function_call") or message.get("role", "assistant") != "assistant":
            return False
        calls: JSON = message.get("tool_calls") or []
        characters = 0
        for at, call in enumerate(cast("list[JSON]", calls) if isinstance(calls, list) else [None]):
            fields = _object(call)
            function = _object(fields.get("function"))
            index, call_id, name = at if whole else fields.get("index"), fields.get("id"), function.get("name")
            text = function.get("arguments")
            if not isinstance(index, int) or not isinstance(text, str | None) or (whole and not text):
                return False
            characters += len(text or "")
            if index in ids:
                if call_id or name:
                    return False
            elif index == len(ids) and call_id and isinstance(call_id, str) and name and call_id not in ids.values():
                ids[index] = call_id
            else:
                return False
        return whole or characters == size

    return sound


def with_role(data: dict[str, JSON], *, says: bool) -> tuple[dict[str, JSON], bool]:
    """The chunk with the assistant's role if `says`, and with no other role; and whether the role is in it."""
    choice = _first(data)
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return data, False
    delta = cast("Fields", delta)
    if delta.get("role") == "assistant":
        return data, True
    if not says and "role" not in delta:
        return data, False
    delta_with_role = {**({"role": "assistant"} if says else {}), **_without(delta, ("role",))}
    others = cast("list[JSON]", data["choices"])[1:]
    return {**data, "choices": [{**choice, "delta": delta_with_role}, *others]}, says


def _first(data: Fields) -> Fields:
    """The first choice."""
    choices = data.get("choices")
    return _object(cast("list[JSON]", choices)[0]) if isinstance(choices, list) and choices else {}


def _object(value: JSON) -> Fields:
    return cast("Fields", value) if isinstance(value, dict) else {}


def _without(fields: Fields, names: Sequence[str]) -> dict[str, JSON]:
    return {name: value for name, value in fields.items() if name not in names}


def _merge(fields: dict[str, JSON], more: Fields) -> None:
    """Adds fields; lists in them (`logprobs.content`) are continued."""
    for name, value in more.items():
        old = fields.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            _merge(cast("dict[str, JSON]", old), cast("Fields", value))
        elif isinstance(old, list) and isinstance(value, list):
            fields[name] = [*cast("list[JSON]", old), *cast("list[JSON]", value)]
        elif value is not None or old is None:
            fields[name] = dict(cast("Fields", value)) if isinstance(value, dict) else value
