from __future__ import annotations

import copy
import json
import pickle
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

import pytest
from codec_strategies import JSON_VALUES, STORED_VALUES, joined_surrogates, values_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak.data.codec import dump, dump_row, dumps, load, load_row, load_text, loads
from toolspeak.data.deltas import CallCompleted, TextDelta, TurnEnded
from toolspeak.data.events import (
    LimitReached,
    Limits,
    MemoryChanged,
    Record,
    RunResumed,
    RunStarted,
    ToolFinished,
    UnknownEvent,
)
from toolspeak.data.forms import CLASSES
from toolspeak.data.messages import (
    FilePart,
    ImagePart,
    JsonPart,
    Message,
    ReasoningPart,
    TextMessage,
    TextPart,
    ToolCall,
    ToolResult,
    Usage,
)
from toolspeak.data.tools import Effects, ToolSpec
from toolspeak.errors import FormatError

RESULT = ToolResult("c1", "read", "success", (TextPart("a"), JsonPart({"type": "TextPart"}), TextPart("c")))
RECORD = Record(ToolFinished(RESULT), "r1", 3, 1, 1700000000.25)

# Value and its stored form, both directions.
CASES: list[tuple[Any, dict[str, Any]]] = [
    (TextDelta("hi"), {"format": 1, "type": "TextDelta", "text": "hi"}),
    (
        RECORD,
        {
            "format": 1,
            "type": "Record",
            "event": {
                "type": "ToolFinished",
                "result": {
                    "type": "ToolResult",
                    "call_id": "c1",
                    "name": "read",
                    "status": "success",
                    "content": [
                        {"type": "TextPart", "text": "a"},
                        {"type": "JsonPart", "value": {"type": "TextPart"}},
                        {"type": "TextPart", "text": "c"},
                    ],
                },
            },
            "run_id": "r1",
            "seq": 3,
            "step": 1,
            "time": 1700000000.25,
            "agent": "agent",
        },
    ),
    (
        Effects(reads={"b", "a"}, writes={"c"}, destructive=False),
        {"format": 1, "type": "Effects", "reads": ["a", "b"], "writes": ["c"], "destructive": False, "declared": True},
    ),
    (
        FilePart("n", "a/b", b"\x00\xff"),
        {"format": 1, "type": "FilePart", "name": "n", "media_type": "a/b", "data": "AP8="},
    ),
    (
        TurnEnded("length", Usage(3, output=0), "m"),
        {
            "format": 1,
            "type": "TurnEnded",
            "finish": "length",
            "usage": {"type": "Usage", "input": 3, "output": 0},
            "model": "m",
        },
    ),
    (RunResumed(extra={"later": [1]}), {"format": 1, "type": "RunResumed", "later": [1]}),
    (UnknownEvent("RunForked", {"from": 3}), {"format": 1, "type": "RunForked", "from": 3}),
    (ImagePart("image/png", data=b""), {"format": 1, "type": "ImagePart", "media_type": "image/png", "data": ""}),
]


@pytest.mark.parametrize(("value", "document"), CASES, ids=lambda case: type(case).__name__)
def test_a_value_and_its_stored_form(value: Any, document: dict[str, Any]):
    assert dump(value) == document
    assert load(document) == value


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_class_survives_the_round_trip(name: str):
    @settings(
        max_examples=fewer(30), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
    )
    @given(value=values_of(CLASSES[name]))
    def survives(value: Any):
        assert loads(dumps(value)) == value
        assert load(dump(value)) == value
        assert dumps(value).isascii()
        assert dumps(value) == json.dumps(dump(value), separators=(",", ":"))

    survives()


@settings(
    max_examples=fewer(60), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(values_of(Record))
def test_a_row_holds_a_record_without_the_fields_of_its_key(record: Record):
    row = dump_row(record)
    assert load_text(row) == {key: item for key, item in dump(record).items() if key not in ("run_id", "seq")}
    assert load_row(row, record.run_id, record.seq) == record


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        (replace(RECORD, run_id=b"r1"), "run_id"),
        (replace(RECORD, seq=True), "seq"),
        (replace(RECORD, time=float("nan")), "time"),
        (replace(RECORD, extra={"format": 2}), "format"),
        (replace(RECORD, extra={"seq": 2}), "seq"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_a_row_is_refused_when_the_record_is(wrong: Record, place: str):
    with pytest.raises(FormatError, match=place):
        dump_row(wrong)


def test_a_decoded_record_is_as_frozen_as_a_new_one():
    read = loads(dumps(RECORD))
    assert type(read) is Record
    assert replace(read, seq=4) == replace(RECORD, seq=4)
    assert copy.deepcopy(pickle.loads(pickle.dumps(read))) == RECORD
    with pytest.raises(AttributeError, match="immutable"):
        setattr(read, "seq", 5)  # noqa: B010 - a type checker refuses it too


@settings(deadline=None)
@given(JSON_VALUES)
def test_a_json_value_survives_with_its_types(value: Any):
    read_value = loads(dumps(JsonPart(value))).value
    assert json.dumps(read_value) == json.dumps(value)


@pytest.mark.parametrize("text", ["\x00", "a\ud800b", "\udfff", "\u2028", "é😀"])
def test_awkward_text_survives(text: str):
    assert loads(dumps(TextPart(text))).text == text
    record = replace(RECORD, agent=text)
    assert load_row(dump_row(record), record.run_id, record.seq).agent == text


def test_a_row_holds_text_unescaped_where_utf_8_can():
    assert '"agent":"é😀\x7f"' in dump_row(replace(RECORD, agent="é😀\x7f"))
    assert '"agent":"\\u00e9\\ud800"' in dump_row(replace(RECORD, agent="é\ud800"))


def test_adjacent_surrogates_come_back_as_their_character():
    assert loads(dumps(TextPart("\ud83d\ude00"))).text == "😀" == joined_surrogates("\ud83d\ude00")


@pytest.mark.parametrize(
    ("event", "kind", "data"),
    [
        ({"type": "RunForked", "of": {"type": "Record"}}, "RunForked", {"of": {"type": "Record"}}),
        ({"type": "UnknownEvent", "data": 1}, "UnknownEvent", {"data": 1}),
        ({"type": "", "format": 9}, "", {"format": 9}),
    ],
)
def test_an_event_of_a_later_version_is_kept_and_written_back(event: dict[str, Any], kind: str, data: dict[str, Any]):
    document = {**CASES[1][1], "event": event}
    record = load(document)
    assert record.event == UnknownEvent(kind, data)
    assert dump(record) == document


def test_fields_of_a_later_version_are_kept_where_they_were():
    document = dump(RECORD)
    document["event"]["result"]["content"][2]["colour"] = {"type": "Colour"}
    document["event"]["result"]["extra"] = 5
    document["shard"] = None
    record = load(document)
    assert record.extra == {"shard": None}
    assert record.event.result.extra == {"extra": 5}
    assert record.event.result.content[2].extra == {"colour": {"type": "Colour"}}
    assert dump(record) == document


def test_a_class_without_extra_ignores_fields_of_a_later_version():
    assert load({"format": 1, "type": "Usage", "input": 1, "audio": 2}) == Usage(1)


def test_a_default_that_a_later_version_may_change_is_written():
    assert dump(RunStarted((), "m", Limits()))["limits"] == {
        "type": "Limits",
        "steps": 50,
        "repeats": 4,
        "failures": 8,
    }
    assert load({"format": 1, "type": "RunStarted", "messages": [], "model": "m"}).limits == Limits()


def test_dump_shares_nothing_mutable():
    arguments = {"a": [1]}
    document = dump(ToolCall("c", "n", MappingProxyType(arguments)))
    arguments["a"].append(2)
    assert document["arguments"] == {"a": [1]}


def test_tuples_in_json_become_lists_and_whole_numbers_become_floats():
    assert loads(dumps(JsonPart((1, (2,))))).value == [1, [2]]
    limit = loads('{"format":1,"type":"LimitReached","limit":"steps","used":3,"allowed":2}')
    assert limit == LimitReached("steps", 3.0, 2.0)
    assert isinstance(limit.used, float)


STORED_TEXTS: list[tuple[Any, str]] = [
    (LimitReached("cost", 1e-05, 1e16), '"limit":"cost","used":1e-05,"allowed":1e+16}'),
    (LimitReached("steps", 3, 0.0001), '"limit":"steps","used":3.0,"allowed":0.0001}'),
    (Limits(seconds=60), '"steps":50,"seconds":60.0,"repeats":4,"failures":8}'),
    (JsonPart([1e-05, 1e22, -0.0]), '"value":[1e-05,1e+22,-0.0]}'),
    (JsonPart({"a": (1, (True,))}), '"value":{"a":[1,[true]]}}'),
    (TextPart("\x7fé😀\u2028"), '"text":"\\u007f\\u00e9\\ud83d\\ude00\\u2028"}'),
    (Effects(reads={"d", "b", "c", "a"}), '"reads":["a","b","c","d"],"destructive":true,"declared":true}'),
    (RunStarted((), "é", setup={}), '"messages":[],"model":"\\u00e9","limits":'),
    (ToolSpec("a", "", {}, aliases={}), '"name":"a","description":"","parameters":{},"effects":'),
    (JsonPart(2**70), '"value":1180591620717411303424}'),
]


@pytest.mark.parametrize(("value", "text"), STORED_TEXTS, ids=[text for _, text in STORED_TEXTS])
def test_the_text_of_values_that_libraries_write_differently(value: Any, text: str):
    assert dumps(value).startswith(f'{{"format":1,"type":"{type(value).__name__}",{text}')
    assert dumps(value) == json.dumps(dump(value), separators=(",", ":"))


HAS_EXTRA = [name for name, cls in CLASSES.items() if "extra" in [field.name for field in fields(cls)]]
# A field that no class has: msgspec refuses it, so the loops of `forms` write and read the whole value.
LATER = ',"of a later version":0}'


@pytest.mark.parametrize("name", HAS_EXTRA)
def test_msgspec_and_the_loops_write_alike(name: str):
    @settings(
        max_examples=fewer(20), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
    )
    @given(value=values_of(CLASSES[name]))
    def alike(value: Any):
        later = replace(value, extra={**value.extra, "of a later version": 0})
        assert dumps(later) == dumps(value)[:-1] + LATER

    alike()


@pytest.mark.over_a_second
@settings(
    max_examples=fewer(300), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.sampled_from(HAS_EXTRA).flatmap(lambda name: values_of(CLASSES[name])), st.data())
def test_msgspec_and_the_loops_read_alike(value: Any, data: st.DataObject):
    document = json.loads(dumps(value))
    _mutate(document, data)
    text = json.dumps(document, separators=(",", ":"))
    outcome, by_loops = _outcome(text), _outcome(text[:-1] + LATER)
    if isinstance(by_loops, FormatError):
        assert str(outcome) == str(by_loops)
        return
    unknown_fields = by_loops.data if isinstance(by_loops, UnknownEvent) else getattr(by_loops, "extra", {})
    unknown_fields.pop("of a later version", None)
    assert dumps(outcome) == dumps(by_loops)


@pytest.mark.parametrize("depth", [150, 250])
def test_a_value_that_is_nested_too_deeply_for_some_reader_is_refused_on_write(depth: int):
    value: Any = ["]" * 300]
    for _ in range(depth):
        value = [{"a": value}]
    if depth == 150:
        assert loads(dumps(JsonPart(value))).value == value
    else:
        with pytest.raises(FormatError, match="nested too deeply"):
            dumps(JsonPart(value))


def _outcome(text: str) -> Any:
    try:
        return loads(text)
    except FormatError as error:
        return error


@pytest.mark.parametrize("place", ["result", "memory"])
def test_a_tag_is_required_even_where_only_one_class_is_possible(place: str):
    document = dump(ToolFinished(RESULT, memory=(MemoryChanged(("a",), 1),)))
    inner = document[place][0] if place == "memory" else document[place]
    del inner["type"]
    for read in (load, lambda it: loads(json.dumps(it, separators=(",", ":")))):
        with pytest.raises(FormatError, match=rf"ToolFinished\.{place}.*missing the text field 'type'"):
            read(document)


def test_a_number_that_is_not_json_is_refused_inside_an_object_too():
    with pytest.raises(FormatError, match=r"LimitReached\.used: NaN and infinite numbers are not JSON"):
        load({"format": 1, "type": "LimitReached", "limit": "steps", "used": float("nan"), "allowed": 1.0})


BAD_FIELDS: list[tuple[str, Any, str]] = [
    ("Record.event.result.content[2].text", 5, "expected text, found an integer"),
    ("Record.event.result.content[2].text", None, "expected text, found null"),
    ("Record.event.result.content[2]", "x", "expected an object, found text"),
    ("Record.event.result.content[1]", {"text": "x"}, "missing the text field 'type'"),
    ("Record.event.result.content[1]", {"type": 5}, "'type' is an integer, not text"),
    ("Record.event.result.content[1]", {"type": "ReasoningPart", "text": ""}, "type 'ReasoningPart' does not belong"),
    ("Record.event.result.content", {}, "expected a list, found an object"),
    ("Record.event.result.status", "maybe", "'maybe' is not one of: 'success', 'failure'"),
    ("Record.event.result.status", ["success"], "a list is not one of"),
    ("Record.event.result.opaque", 1, ""),
    ("Record.event", {"type": "ToolCall", "id": "x"}, "type 'ToolCall' does not belong here; expected one of:"),
    ("Record.seq", True, "expected an integer, found true or false"),
    ("Record.seq", 3.0, "expected an integer, found a number"),
    ("Record.time", "now", "expected a number, found text"),
    ("Record.time", 10**400, "NaN and infinite numbers are not JSON"),
    ("Record.call_id", 1, "expected text"),
]


def _set(document: dict[str, Any], place: str, value: Any) -> None:
    *way, last = place.replace("[", ".").replace("]", "").split(".")[1:]
    at: Any = document
    for step in way:
        at = at[int(step) if step.isdigit() else step]
    at[int(last) if last.isdigit() else last] = value


@pytest.mark.parametrize(("place", "value", "problem"), BAD_FIELDS)
def test_an_ill_typed_field_is_named(place: str, value: Any, problem: str):
    document = dump(RECORD)
    _set(document, place, value)
    if not problem:  # unknown fields are no error
        assert load(document).event.result.extra == {"opaque": 1}
        return
    with pytest.raises(FormatError) as raised_error:
        load(document)
    assert str(raised_error.value).startswith(f"{place}: ")
    assert problem in str(raised_error.value)


@pytest.mark.parametrize("place", ["Record.run_id", "Record.event", "Record.event.result.content[2].text"])
def test_a_missing_field_is_named(place: str):
    document = dump(RECORD)
    _set(document, place, None)
    text = json.dumps(document).replace(f', "{place.rpartition(".")[2]}": null', "")
    text = text.replace(f'"{place.rpartition(".")[2]}": null, ', "")
    with pytest.raises(FormatError, match="missing") as raised_error:
        loads(text)
    assert str(raised_error.value).startswith(f"{place}: ")


@pytest.mark.parametrize("version", [0, 2, 17, "1", 1.0, True, None, [], 10**5000], ids=lambda v: type(v).__name__)
def test_an_unknown_format_version_says_what_to_do(version: Any):
    with pytest.raises(FormatError, match=r"this build of toolspeak reads: 1\. Upgrade toolspeak"):
        load({"format": version, "type": "TextDelta", "text": ""})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("NaN", "NaN is not JSON"),
        ('{"format":1,"type":"JsonPart","value":-Infinity}', "-Infinity is not JSON"),
        ('{"format":1,"type":"JsonPart","value":1e999}', "too large"),
        ('{"format":1,"type":"JsonPart","value":' + "9" * 5000 + "}", "not JSON that can be read"),
        ("[" * 100_000, "not JSON that can be read"),
        ("[]", "expected an object with 'format' and 'type', found a list"),
        ("{}", "no format version"),
        ('{"format":1}', "missing the text field 'type'"),
        ('{"format":1,"type":"FilePart","name":"","media_type":"","data":"a"}', "FilePart.data: expected base64 text"),
        ('{"format":1,"type":"FilePart","name":"","media_type":"","data":"é"}', "FilePart.data: expected base64 text"),
    ],
)
def test_text_that_cannot_be_read(text: str, problem: str):
    with pytest.raises(FormatError) as raised_error:
        loads(text)
    assert problem in str(raised_error.value)


def _endless() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


UNWRITABLE: list[tuple[Any, str]] = [
    (JsonPart(float("nan")), "JsonPart.value: NaN and infinite numbers are not JSON"),
    (JsonPart({"a": [1, {2, 3}]}), "JsonPart.value['a'][1]: a set is not a JSON value"),
    (JsonPart({"a": {5: 1}}), "JsonPart.value['a']: the key 5 is not text"),
    (JsonPart(_endless()), "JsonPart: nested too deeply"),
    (JsonPart(10**5000), "JsonPart: cannot be written as JSON"),
    (LimitReached("steps", float("inf"), 1.0), "LimitReached.used: NaN"),
    (TextPart(5), "TextPart.text: expected text"),  # pyright: ignore[reportArgumentType]
    (TextPart("", extra={"text": 1}), "TextPart.extra: 'text' is a field of TextPart and cannot be in its extra"),
    (TextPart("", extra={"type": 1}), "TextPart.extra: 'type' is a field"),
    (TextPart("", extra={"format": 1}), "TextPart: a field named 'format' cannot be written at the outermost level"),
    (ToolResult("", "", "success", (ReasoningPart(""),)), "ToolResult.content[0]: expected FilePart or ImagePart or"),  # pyright: ignore[reportArgumentType]
    (Message("robot", ()), "Message.role: 'robot' is not one of"),  # pyright: ignore[reportArgumentType]
    (UnknownEvent("RunStarted", {}), "UnknownEvent: an unknown event cannot be of the known type 'RunStarted'"),
    (UnknownEvent("X", {"type": 1}), "UnknownEvent: the data of an unknown event cannot have a field 'type'"),
    (ToolSpec("", "", {}, aliases={"a": 1}), "ToolSpec.aliases['a']: expected text"),  # pyright: ignore[reportArgumentType]
    (CallCompleted(0, "", {"a": b""}), "CallCompleted.arguments['a']: a bytes is not a JSON value"),
    ("text", "str is not a value that can be stored; known: AnswerRejected, ApprovalDecided,"),
]


@pytest.mark.parametrize(("value", "problem"), UNWRITABLE, ids=[problem for _, problem in UNWRITABLE])
def test_a_value_that_could_not_be_read_back_is_refused_on_write(value: Any, problem: str):
    with pytest.raises(FormatError) as raised_error:
        dumps(value)
    assert problem in str(raised_error.value)


def test_a_nested_extra_may_hold_a_field_named_format():
    event = RunStarted((Message("user", (TextPart("x", extra={"format": 7}),)),), "m")
    assert loads(dumps(event)) == event


@settings(deadline=None)
@given(st.text() | JSON_VALUES.map(json.dumps))
def test_garbage_text_never_raises_anything_but_format_error(text: str):
    _read_or_refuse(text)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(STORED_VALUES, st.data())
def test_a_mutated_value_never_raises_anything_but_format_error(value: Any, data: st.DataObject):
    document = json.loads(dumps(value))
    _mutate(document, data)
    _read_or_refuse(json.dumps(document))


def _mutate(document: Any, data: st.DataObject) -> None:
    """Changes, adds or removes something somewhere in it."""
    at: Any = document
    while True:
        keys = list(range(len(at))) if isinstance(at, list) else list(at)
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if isinstance(at[key], list | dict) and data.draw(st.booleans()):
            at = at[key]
            continue
        if data.draw(st.booleans()):
            del at[key]
        else:
            at[key] = data.draw(JSON_VALUES | st.just({"type": "TextPart"}))
        break


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(["text", "event", "parts", "usage", "reads"]), JSON_VALUES),
    st.sampled_from(sorted(CLASSES)),
)
def test_a_known_type_with_any_fields_never_raises_anything_but_format_error(fields: dict[str, Any], name: str):
    _read_or_refuse(json.dumps({**fields, "format": 1, "type": name}))


def _read_or_refuse(text: str) -> None:
    try:
        value = loads(text)
    except FormatError:
        return
    assert loads(dumps(value)) == value


def test_text_messages_can_be_stored_too():
    assert loads(dumps(TextMessage("tool", "x"))) == TextMessage("tool", "x")
