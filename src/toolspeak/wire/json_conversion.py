"""JSON of all APIs to values and back: what the readers and the writers of all formats share.

- Checks of JSON from outside, whose errors name the place. `require_…` and `optional_…` check JSON from clients and
  raise FormatError; `as_…` check JSON from servers and raise ProviderError.
- Readers build messages, give calls unique ids, and match results to calls.
- Writers check options, and replace what JSON in UTF-8 cannot hold.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from toolspeak.data.messages import (
    JSON,
    ContentPart,
    FilePart,
    ImagePart,
    JsonPart,
    MalformedCall,
    Message,
    Opaque,
    Part,
    Role,
    TextMessage,
    TextPart,
    ToolCall,
    no_extra,
)
from toolspeak.errors import ConfigurationError, FormatError, ProviderError
from toolspeak.wire.base import ModelRequest

MAX_DEPTH = 128
"""The deepest nesting of arguments, as in text dialects. A call with deeper arguments is malformed."""

# --- checks of JSON from outside -------------------------------------------------------------------------------------


def describe(value: JSON) -> str:
    """A short description of the value for a message: `nothing`, `'text'`, `a list`, `an object`, …"""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(excerpt(value, 60))
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    return "a number" if not isinstance(value, bool) else str(value).lower()


def excerpt(text: str, limit: int = 300) -> str:
    """One line of at most `limit` characters, without control characters."""
    printable = "".join(c if c.isprintable() else " " for c in text[: 2 * limit])
    line = " ".join(printable.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def invalid_field(place: str, expected: str, actual: JSON) -> FormatError:
    """`messages[0].role: expected a string, found a number`."""
    return FormatError(f"{place}: expected {expected}, found {describe(actual)}")


def ill_formed(place: str, expected: str, actual: JSON) -> ProviderError:
    """`the server sent an ill-formed answer: 'choices' should be a list, found a number`."""
    return ProviderError(
        f"the server sent an ill-formed answer: {place} should be {expected}, found {describe(actual)}",
        code="ill_formed",
    )


class _Validator:
    """Checks of values from one side. `error` makes the exception from the place, the expectation and the value."""

    def __init__(self, error: Callable[[str, str, JSON], Exception]) -> None:
        self._error = error

    def object(self, value: JSON, place: str) -> dict[str, JSON]:
        if not isinstance(value, dict):
            raise self._error(place, "an object", value)
        return cast("dict[str, JSON]", value)

    def optional_list(self, value: JSON, place: str) -> list[JSON]:
        """None is the empty list."""
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._error(place, "a list", value)
        return cast("list[JSON]", value)

    def text(self, value: JSON, place: str) -> str:
        if not isinstance(value, str):
            raise self._error(place, "a string", value)
        return value

    def optional_text(self, value: JSON, place: str) -> str:
        """None is the empty string."""
        return "" if value is None else self.text(value, place)

    def name(self, value: JSON, place: str) -> str:
        """A string that is not empty."""
        if not isinstance(value, str) or not value:
            raise self._error(place, "a name", value)
        return value

    def optional_flag(self, value: JSON, place: str) -> bool | None:
        """True, false or None."""
        if value is not None and not isinstance(value, bool):
            raise self._error(place, "true or false", value)
        return value


_client = _Validator(invalid_field)
require_object = _client.object
require_text = _client.text
require_name = _client.name
optional_list = _client.optional_list
optional_text = _client.optional_text
optional_flag = _client.optional_flag

_server = _Validator(ill_formed)
as_object = _server.object
as_list = _server.optional_list
as_text = _server.optional_text


def token_count(counts: JSON, field: str) -> int | None:
    """A number of tokens; None for any other value, which must not make a good answer fail."""
    value = cast("dict[str, JSON]", counts).get(field) if isinstance(counts, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


# --- what readers share ---------------------------------------------------------------------------------------------


def read_arguments(raw: str, *, whole: bool = True) -> tuple[Mapping[str, JSON] | None, tuple[str, ...], str]:
    """Parses a native call's JSON text. Returns the arguments, notes on how they were read, and, if the arguments are
    None, the reason.

    In a whole call an empty text or `null` is `{}`. An object inside a JSON string is accepted, with a note.
    """
    text = raw.strip()
    if text in ("", "null") and whole:
        return {}, (), ""
    notes: tuple[str, ...] = ()
    try:
        value: JSON = json.loads(text, parse_constant=_reject_constant)
        if isinstance(value, str):
            value, notes = json.loads(value, parse_constant=_reject_constant), ("arguments_text",)
    except (ValueError, RecursionError) as error:
        why = f"its arguments are not JSON: {error}" if whole else "the turn ended in the middle of its arguments"
        return None, (), f"{why}; write one JSON object: {excerpt(raw, 80)!r}"
    if not isinstance(value, dict):
        return None, (), f"its arguments are not a JSON object: {excerpt(raw, 80)!r}"
    arguments = cast("dict[str, JSON]", value)
    if depth_beyond(arguments, MAX_DEPTH):
        return None, (), f"its arguments are nested more than {MAX_DEPTH} deep"
    return arguments, notes, ""


def _reject_constant(name: str) -> JSON:
    raise ValueError(f"{name} is not JSON")


def _inner(value: JSON) -> Iterable[JSON]:
    if isinstance(value, dict):
        return cast("dict[str, JSON]", value).values()
    return cast("list[JSON]", value) if isinstance(value, list) else ()


def depth_beyond(value: JSON, most: int) -> bool:
    """Whether a value is nested more than `most` deep. Does not recurse."""
    level: list[JSON] = [value]
    for _ in range(most + 1):
        level = [inner for each in level for inner in _inner(each)]
        if not level:
            return False
    return True


class ConversationReader:
    """Reads the messages of a client's conversation. Each API has a subclass.

    `model`: the request's model, to which opaque data are bound.

    Each call gets a unique id: some clients omit ids, start counting again in each turn, or repeat an id in a turn.
    """

    def __init__(self, model: str) -> None:
        self.model = model
        self._messages: list[tuple[Role, list[Part], Mapping[str, JSON]]] = []
        self._turn: list[Part] = []  # the parts of the model's newest message
        self._ids: set[str] = set()
        self._next_number: dict[str, int] = {}
        self._newest: dict[str, tuple[list[Part], deque[ToolCall | MalformedCall], ToolCall | MalformedCall]] = {}
        self._answered_ids: set[str] = set()

    @property
    def messages(self) -> list[Message]:
        return [Message(role, tuple(parts), extra) for role, parts, extra in self._messages]

    def begin(self, role: Role, extra: Mapping[str, JSON] | None = None) -> list[Part]:
        """Begins a message, and returns its empty list of parts."""
        parts: list[Part] = []
        self._messages.append((role, parts, no_extra() if extra is None else extra))
        if role == "assistant":
            self._turn = parts
        return parts

    def join(self, role: Role) -> list[Part]:
        """The parts of the last message if it has this role; else those of a new message."""
        if self._messages and self._messages[-1][0] == role:
            return self._messages[-1][1]
        return self.begin(role)

    # --- calls ---------------------------------------------------------------------------------------------------

    def call(
        self,
        client_id: str,
        name: str,
        arguments: Mapping[str, JSON],
        notes: tuple[str, ...] = (),
        opaque: Opaque | None = None,
    ) -> ToolCall:
        """A call with the client's id, which may be empty. For `match_by_id`, begin the model's message first."""
        call = ToolCall(self._unique_id(client_id), name, arguments, client_id or None, notes, opaque)
        self._remember(client_id, call)
        return call

    def call_from_text(
        self, client_id: str, name: str, raw: str, opaque: Opaque | None = None
    ) -> ToolCall | MalformedCall:
        """A call whose arguments are the JSON text `raw`; a malformed one if they cannot be read."""
        arguments, notes, reason = read_arguments(raw)
        if arguments is not None:
            return self.call(client_id, name, arguments, notes, opaque)
        call = MalformedCall(self._unique_id(client_id), raw, "invalid_arguments", reason, name)
        self._remember(client_id, call)
        return call

    def _unique_id(self, client_id: str) -> str:
        """`client_id`, changed if it is empty or another call has it. Takes linear time in the number of calls."""
        unique, number = client_id, self._next_number.get(client_id, 1)
        while not unique or unique in self._ids:
            unique, number = f"{client_id or 'call'}-{number}", number + 1
        self._next_number[client_id] = number
        self._ids.add(unique)
        return unique

    def _remember(self, client_id: str, call: ToolCall | MalformedCall) -> None:
        if not client_id:
            return
        turn, unanswered_calls, _ = self._newest.get(client_id, (None, deque[ToolCall | MalformedCall](), None))
        if turn is not self._turn:
            unanswered_calls = deque[ToolCall | MalformedCall]()
        unanswered_calls.append(call)
        self._newest[client_id] = (self._turn, unanswered_calls, call)

    # --- results -------------------------------------------------------------------------------------------------

    def match_by_id(self, client_id: str) -> tuple[str, str | None]:
        """The id and the name of the call that a result for `client_id` answers.

        In the newest turn with such calls it is the first call without a result, else the last call. Returns
        `client_id` and None if no call has this id.
        """
        if client_id not in self._newest:
            return client_id, None
        _, unanswered_calls, last = self._newest[client_id]
        call = unanswered_calls.popleft() if unanswered_calls else last
        return call.id, call.name or ""

    def match_in_turn(self, client_id: str, name: str, place: str) -> ToolCall:
        """The call in the model's newest message that a result for `client_id` and the tool `name` answers.

        Either may be empty. Without an id it is the first call of `name` without a result. Without both it is the first
        call without a result. Raises FormatError if no call waits for the result.
        """
        waiting = [part for part in self._turn if isinstance(part, ToolCall) and part.id not in self._answered_ids]
        calls = [call for call in waiting if client_id and client_id == (call.provider_id or call.id)]
        if not calls:
            calls = [call for call in waiting if name == call.name or not (name or client_id)]
        if not calls:
            which = f" of {name!r}" if name else ""
            raise FormatError(
                f"{place}: no call{which} waits for this result; send it right after the turn with its call"
            )
        self._answered_ids.add(calls[0].id)
        return calls[0]


# --- what writers share --------------------------------------------------------------------------------------------


def check_request(request: ModelRequest, own: Iterable[str], *, format_name: str, grammars: bool = False) -> None:
    """Raises ConfigurationError for an option with the name of one of the format's `own` fields, and for a grammar if
    the format has no field for it."""
    for name in own:
        if name in request.options:
            raise ConfigurationError(f"the option {name!r} cannot be set: the request sets this field itself")
    if request.constraint is not None and not grammars:
        raise ConfigurationError(
            f"{format_name} requests have no field for a grammar; omit the constraint (see Capabilities.grammar)"
        )


def call_ids(messages: Iterable[Message | TextMessage]) -> dict[str, str]:
    """Maps each call's own id to the id in the request, for the call and its result: its `provider_id`, if that is
    unique."""
    ids: dict[str, str] = {}
    ids_so_far: set[str] = set()
    for message in messages:
        if isinstance(message, Message) and message.role == "assistant":
            for part in message.parts:
                if isinstance(part, ToolCall):
                    provider_id = part.provider_id
                    ids[part.id] = wire_id = provider_id if provider_id and provider_id not in ids_so_far else part.id
                    ids_so_far.add(wire_id)
    return ids


def is_native(part: Part) -> bool:
    """Whether a part of an assistant's message has its own form in the API.

    A malformed call has none, since no API accepts arguments that are not JSON. It is sent as text
    (`MalformedCall.raw`), and its result as text in a user message.
    """
    return not isinstance(part, MalformedCall)


def text_of(parts: Sequence[ContentPart]) -> str:
    """Content as text. A line describes an image or a file."""
    return "\n".join(_text_of(part) for part in parts)


def _text_of(part: ContentPart) -> str:
    match part:
        case TextPart(text):
            return text
        case JsonPart(value):
            return json.dumps(value, ensure_ascii=False)
        case ImagePart():
            return f"[image: {part.media_type}]" if part.url is None else f"[image: {part.url}]"
        case FilePart():
            return f"[file {part.name}: {part.media_type}, {len(part.data)} bytes]"


def without_lone_surrogates(value: JSON) -> JSON:
    """The value with each lone surrogate replaced by U+FFFD: UTF-8 cannot encode it."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            # Through UTF-16, so that two adjacent halves become their character.
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return value
    if isinstance(value, list | tuple):
        return [without_lone_surrogates(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, Mapping):
        return {
            without_lone_surrogates(key): without_lone_surrogates(item)
            for key, item in cast("Mapping[Any, Any]", value).items()
        }
    return value


_LIMIT_NAMES = (
    "max_completion_tokens",  # OpenAI; takes precedence over the older name
    "max_tokens",  # Anthropic, Mistral and every server with OpenAI's Chat Completions
    "max_output_tokens",  # OpenAI Responses
    "maxOutputTokens",  # Gemini
    "num_predict",  # Ollama
    "n_predict",  # llama.cpp's server
)

_LIMIT_PLACES = ("generationConfig", "options")
"""The fields that hold it in Gemini's and Ollama's requests."""


def token_limit(options: Mapping[str, JSON]) -> int | None:
    """The most tokens that a request's body or options allow for a turn; None without a limit above 0."""
    for fields in (options, *(options.get(place) for place in _LIMIT_PLACES)):
        if isinstance(fields, Mapping):
            for name in _LIMIT_NAMES:
                limit = cast("Mapping[str, JSON]", fields).get(name)
                if type(limit) is int and limit > 0:
                    return limit
    return None
