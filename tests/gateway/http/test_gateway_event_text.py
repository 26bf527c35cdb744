"""The shortcut for an event with a piece of text says what the general way says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolspeak.gateway.http.asgi import event, text_event

TEXTS = st.text(st.characters() | st.characters(categories=["Cs", "Cc"]))


@given(TEXTS, TEXTS, st.none() | st.sampled_from(["content_block_delta"]), st.integers(0, 2**40))
def test_an_event_of_text_is_written_as_any_other(text: str, model: str, name: str | None, created_at: int):
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    frame = (name, {"id": "chatcmpl-1", "created": created_at, "model": model, "choices": [choice]})
    assert text_event(frame) == event(frame)
