"""Server-sent events: the same data as httpx2's own reader finds, however the bytes come."""

from __future__ import annotations

import itertools
import tracemalloc

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolspeak.errors import ProviderError
from toolspeak.providers.reply import EventData

LINES = st.sampled_from(
    [
        b"",
        b"data: one",
        b"data:two",
        b"data:  two spaces",
        b"data",
        b"data:",
        b"data : none",
        b"datas: none",
        b": a comment",
        b"event: name",
        b"id: 7",
        b"retry: 10",
        "data: caf\u00e9 \u2028 \x85 \x0b".encode(),
        b"data: \xff\xc3",
    ]
)
STREAMS = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=12).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


def by_httpx2(stream: bytes) -> list[str]:
    response = httpx2.Response(
        200,
        headers={"content-type": "text/event-stream; charset=utf-8"},
        content=stream,
        request=httpx2.Request("GET", "http://x"),
    )
    return [event.data for event in httpx2.EventSource(response) if event.data]


def read(*pieces: bytes, longest: int = 1_000) -> list[str]:
    reader = EventData(longest)
    return [data for piece in pieces for data in reader.feed(piece) if data]


@given(STREAMS, st.binary(max_size=3), st.sets(st.integers(0, 200)))
@settings(deadline=None)
def test_as_httpx2_reads_it_at_any_cut(stream: bytes, tail: bytes, cuts: set[int]):
    # httpx2 takes a carriage return at the very end of all for two line breaks.
    whole = stream + b": end" + tail.replace(b"\n", b"").replace(b"\r", b"")
    edges = [0, *sorted(cut for cut in cuts if cut < len(whole)), len(whole)]
    pieces = [whole[start:stop] for start, stop in itertools.pairwise(edges)]
    expected = by_httpx2(whole)
    assert read(*pieces) == expected
    assert read(*[whole[i : i + 1] for i in range(len(whole))]) == expected


def test_an_event_leaves_with_its_last_byte():
    reader = EventData(100)
    assert reader.feed(b"data: a\r") == []
    assert reader.feed(b"\n\r") == ["a"]
    assert reader.feed(b"\ndata: b\n") == []
    assert reader.feed(b"\n") == ["b"]


@pytest.mark.parametrize("line", [b"data: ", b": ", b"x"])
def test_an_event_has_a_bound_that_many_events_do_not_share(line: bytes):
    fits = [line + b"a" * 40 + b"\n\n"] * 50
    assert len(read(*fits, longest=50)) == (50 if line == b"data: " else 0)
    for size in (1, 7, 100):
        long = line + b"a" * 60
        with pytest.raises(ProviderError, match="more than 50 bytes"):
            read(*[long[i : i + size] for i in range(0, len(long), size)], longest=50)
    with pytest.raises(ProviderError, match="more than 50 bytes"):
        read(*[b"data: aaaa\n"] * 6, longest=50)


def test_a_line_in_many_pieces_is_read_in_linear_space():
    reader = EventData(1 << 26)
    tracemalloc.start()
    for _ in range(20_000):
        reader.feed(b"data: " + b"a" * 94)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * 20_000 * 150
    (data,) = reader.feed(b"\n\n")
    assert len(data) == 20_000 * 100 - 6


@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_byte_order_mark_is_no_part_of_the_first_line(size: int):
    whole = b"\xef\xbb\xbfdata: a\n\ndata: \xef\xbb\xbfb\n\n"
    assert read(*[whole[i : i + size] for i in range(0, len(whole), size)]) == ["a", "\ufeffb"]


@pytest.mark.parametrize(
    ("end", "rest"), [(b"data: b", "b"), (b"data: b\ndata: c\n", "b\nc"), (b": no", ""), (b"", "")]
)
def test_what_the_end_of_the_stream_cut_off_can_be_asked_for(end: bytes, rest: str):
    reader = EventData(100)
    assert reader.feed(b"data: a\n\n" + end) == ["a"]
    assert reader.rest() == rest
