"""The scripted model of toolspeak's program. A real one is a string: "openai:gpt-5"."""

from __future__ import annotations

from collections.abc import Sequence

from shop import turn_of_the_model

from toolspeak import Message
from toolspeak.data.messages import TextMessage
from toolspeak.testing import ScriptedCall, ScriptedProvider, ScriptedTurn

CALLS = {
    "stock": [ScriptedCall("stock", {"item": "pear"})],
    "order": [ScriptedCall("order", {"item": "pear", "count": 20})],
}


def reply(messages: Sequence[Message | TextMessage]) -> ScriptedTurn:
    turn = turn_of_the_model(sum(len(each.results) for each in messages if isinstance(each, Message)))
    return ScriptedTurn("" if turn in CALLS else '{"item": "pear", "quantity": 20}', calls=CALLS.get(turn, ()))


MODEL = ScriptedProvider([reply] * 3, tools=True, follow=True)
