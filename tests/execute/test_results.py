import json

import pytest
from executor_helpers import a_call, result_of
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak.data.messages import FilePart, ImagePart, JsonPart, TextPart
from toolspeak.errors import ToolError
from toolspeak.execute import Interceptor
from toolspeak.tools import tool


def cut_result(value, max_bytes):
    @tool(read_only=True)
    async def give():
        return value

    return result_of([give], a_call("give"), options={"max_result_bytes": max_bytes})


def test_a_long_text_keeps_its_head_and_its_tail():
    text = "".join(f"line {number}\n" for number in range(10_000))
    result = cut_result(text, 1_000)
    size = len(result.text.encode())
    assert 950 <= size <= 1_000
    assert result.text.startswith("line 0\nline 1\n")
    assert result.text.endswith("line 9998\nline 9999\n")
    left_out = result.extra["truncated_bytes"]
    assert f"[… {left_out} bytes left out here." in result.text
    assert "paging" in result.text
    assert len(result.content) == 1
    head, tail = result.text.split("\n[… ")[0], result.text.split("]\n", 1)[1]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) + left_out == len(text)


def test_what_fits_stays_as_it_is():
    result = cut_result("x" * 1_000, 1_000)
    assert result.content == (TextPart("x" * 1_000),)
    assert result.extra == {}


@given(st.text("aé€😀\n\ud800", min_size=100, max_size=400), st.integers(0, 800))
def test_a_cut_never_splits_a_character_and_keeps_to_the_limit(text, max_bytes):
    result = cut_result(text, max_bytes)
    size = len(text.encode("utf-8", "surrogatepass"))
    if size <= max_bytes:
        assert result.text == text
        return
    head, rest = result.text.split("\n[… ", 1)
    tail = rest.split("less.]\n", 1)[1]
    assert text.startswith(head)
    assert text.endswith(tail)
    kept_bytes = len((head + tail).encode("utf-8", "surrogatepass"))
    assert result.extra["truncated_bytes"] == size - kept_bytes
    marker = len(result.text.encode("utf-8", "surrogatepass")) - kept_bytes
    assert kept_bytes + marker <= max(max_bytes, marker)


def test_lone_surrogates_survive():
    result = cut_result("\ud800" * 1_000, 500)
    assert result.text.startswith("\ud800")
    assert result.text.endswith("\ud800")


def test_long_json_stays_json_and_says_what_is_missing():
    value = {"rows": list(range(10_000)), "note": "x" * 5_000, "ok": True}
    result = cut_result(value, 2_000)
    short, note = result.content
    assert short.value["rows"][:3] == [0, 1, 2]
    assert short.value["rows"][-1] == 9_999
    shown_rows = [row for row in short.value["rows"] if isinstance(row, int)]
    assert f"… {10_000 - len(shown_rows)} items left out …" in short.value["rows"]
    assert "characters left out" in short.value["note"]
    assert short.value["ok"] is True
    left_out = len(json.dumps(value)) - len(json.dumps(short.value, ensure_ascii=False).encode())
    assert result.extra == {"truncated_bytes": left_out}
    assert f"{left_out} of {len(json.dumps(value))} bytes" in note.text
    assert result.structured is None


@settings(max_examples=fewer(50))
@given(
    st.recursive(
        st.text('aé😀"\\') | st.integers(),
        lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text("ab", max_size=3), inner),
        max_leaves=60,
    ).filter(lambda value: not isinstance(value, str)),
    st.integers(300, 600),
)
def test_json_is_never_longer_than_allowed(value, max_bytes):
    parts = cut_result(value, max_bytes).content
    texts = [part.text if isinstance(part, TextPart) else json.dumps(part.value, ensure_ascii=False) for part in parts]
    assert sum(len(text.encode()) for text in texts) <= max_bytes


def test_json_that_cannot_be_shortened_becomes_capped_text():
    (part,) = cut_result({"x" * 400: 1, "y" * 400: 2}, 500).content
    assert isinstance(part, TextPart)
    assert part.text.startswith('{"xxx')
    assert part.text.endswith('": 2}')
    assert "bytes left out" in part.text


def test_short_json_stays_json():
    result = cut_result({"rows": [1]}, 500)
    assert result.content == (JsonPart({"rows": [1]}),)
    assert result.structured == {"rows": [1]}


def test_images_and_files_are_not_cut():
    image, file = ImagePart("image/png", b"x" * 5_000), FilePart("a.bin", "application/octet-stream", b"y" * 5_000)
    result = cut_result([TextPart("a" * 1_000), image, TextPart("b" * 1_000), file], 600)
    assert [type(part) for part in result.content] == [TextPart, ImagePart, TextPart, FilePart]
    assert result.content[1] == image
    assert result.content[3] == file
    assert len(result.text.encode()) <= 600
    assert result.text.startswith("aaa")
    assert result.text.endswith("bbb")
    assert result.text.count("bytes left out") == 1


def test_many_small_parts_are_capped_together():
    result = cut_result([TextPart(f"{number} ") for number in range(10_000)], 1_000)
    assert len(result.text.encode()) <= 1_000
    assert result.text.startswith("0 1 2 ")
    assert result.text.endswith("9998 9999 ")


def test_failures_are_capped_too():
    @tool(read_only=True)
    async def fail() -> None:
        raise ToolError("x" * 100_000)

    result = result_of([fail], a_call("fail"), options={"max_result_bytes": 1_000})
    assert result.code == "exception"
    assert len(result.text.encode()) <= 1_000


@pytest.mark.parametrize("value", ["", None, 0, [], {}])
def test_empty_values_pass(value):
    result = cut_result(value, 100)
    assert result.status == "success"
    assert result.extra == {}


def test_long_json_with_a_note_after_it_stays_json():
    result = cut_result({"rows": list(range(5_000)), "share": float("nan")}, 1_000)
    part, note, shortening_note = result.content
    assert part.value["share"] == "nan"
    assert "result.share is nan" in note.text
    assert "Shortened" in shortening_note.text
    assert sum(len(json.dumps(each.value if each is part else each.text)) for each in result.content) < 1_100


def test_json_too_deep_to_show_is_told_of_and_the_call_has_run():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    result = cut_result(JsonPart(deep), 1_000)
    assert (result.status, result.code) == ("success", None)
    assert "The call ran" in result.text
    while deep:  # taken apart by hand: Python frees it recursively otherwise
        deep = deep[0]


def test_an_after_interceptor_sees_the_whole_result():
    lengths = []

    class Reads(Interceptor):
        async def after(self, call, result, context):
            lengths.append(len(result.text))
            return result

    @tool(read_only=True)
    async def long() -> str:
        return "x" * 10_000

    options = {"interceptors": (Reads(),), "max_result_bytes": 500}
    result = result_of([long], a_call("long"), options=options)
    assert lengths == [10_000]
    assert len(result.text.encode()) <= 500
