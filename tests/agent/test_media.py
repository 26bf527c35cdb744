"""Images and files of a user's message, where calls are text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolspeak import Agent, tool
from toolspeak.agent.drivers.text import with_marks, with_media
from toolspeak.data.messages import FilePart, ImagePart, Message, TextMessage, TextPart
from toolspeak.dialects import DIALECTS
from toolspeak.providers.scripted_provider import ScriptedProvider

CAT = ImagePart("image/png", b"cat")
LETTER = FilePart("letter.pdf", "application/pdf", b"%PDF")


@tool(read_only=True)
def look(where: str) -> str:
    """Looks."""
    return where


@pytest.mark.parametrize("dialect", [each.name for each in DIALECTS])
def test_they_reach_the_model_in_their_places(dialect: str):
    question = Message("user", (TextPart("What is "), CAT, TextPart("and this?"), LETTER))
    media: list = []
    history = next(each for each in DIALECTS if each.name == dialect).history()
    for message in (Message.user("Hi."), Message.assistant("Hello."), question, Message.user("Well?")):
        history.add(with_marks(message, media))
    messages = with_media(history.messages, media)
    (media_message,) = [message for message in messages if isinstance(message, Message)]
    assert [part for part in media_message.parts if not isinstance(part, TextPart)] == [CAT, LETTER]
    texts = [part.text for part in media_message.parts if isinstance(part, TextPart)]
    assert texts[0].endswith("What is ")
    assert texts[1] == "and this?"
    assert "\ue0f1" not in "".join(message.text for message in messages)


@given(st.lists(st.sampled_from(["", "\ue0f1", "\u2063", "0", "\ue0f1\u20630\u2063\ue0f1", "x"])).map("".join))
def test_text_that_looks_like_a_mark_loses_nothing_but_that_mark(text: str):
    assert with_media([TextMessage("user", text)], []) == [TextMessage("user", text)]
    assert with_media([TextMessage("assistant", text)], [CAT]) == [TextMessage("assistant", text)]


def test_an_agent_shows_them_in_every_turn():
    provider = ScriptedProvider(['<execute>[{"name": "look", "args": {"where": "up"}}]</execute>', "A cat."])
    agent = Agent(provider, [look], dialect="cogency-json")
    assert agent.run_sync(Message("user", (TextPart("What is this?"), CAT))).answer == "A cat."
    for request in provider.requests:
        (media_message,) = [message for message in request.messages if isinstance(message, Message)]
        assert media_message.parts[-1] == CAT
