"""Nothing secret gets into a recording, wherever it stands and however a stream cuts it."""

import asyncio
import base64
import json
from contextlib import nullcontext

import pytest
from agent_helpers import WatchedJournal
from chat_screen import reply
from loopback_server import serve

from toolspeak import Agent, AgentStop, Decision, Effects, ProviderError, ToolError, tool
from toolspeak.agent import Cassette
from toolspeak.data.codec import dumps
from toolspeak.data.deltas import ReasoningDelta
from toolspeak.data.messages import FilePart, ImagePart
from toolspeak.providers import Capabilities
from toolspeak.providers.openai import OpenAIProvider
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn

KEY = "s3cr3t\"k'ey\\né☃x"
SECRETS = {"KEY": KEY, "PIN": "918273", "PEM": "-----BEGIN KEY-----\nabcdefghijkl\nmnopqrstuvwx\n"}
PARTS = ("s3cr3t", "k'ey", "918273", "abcdefghijkl", base64.b64encode(KEY.encode()).decode()[:8])
"""Of no spelling of a secret these are left."""

RESULTS = {
    "text": lambda: f"it is {KEY}",
    "key of an object": lambda: {KEY: [KEY]},
    "JSON in JSON": lambda: json.dumps({"inner": json.dumps({"k": KEY})}),
    "repr": lambda: repr({"k": KEY}),
    "number": lambda: {"pin": 918273},
    "file": lambda: FilePart("x.txt", "text/plain", KEY.encode()),
    "bytes": lambda: KEY.encode(),
    "address": lambda: ImagePart("image/png", url=f"https://x/?k={KEY}"),
    "at a cut": lambda: "x" * 16_000 + KEY + "y" * 16_000,
    "a listing": lambda: "\n".join(f"{at:4} {line}" for at, line in enumerate(SECRETS["PEM"].splitlines())),
}


@tool(effects=lambda how: Effects(writes={f"x:{how}:{KEY}"}), preview=lambda how: f"would send {KEY}")
def tell(how: str) -> object:
    "Tells."
    match how:
        case "error":
            raise ToolError(f"bad {KEY}")
        case "exception":
            raise ValueError(KEY)
        case "stop":
            raise AgentStop(f"bad {KEY}", answer=f"is {KEY}")
    return RESULTS[how]() if how in RESULTS else "fine"


class Thinks(ScriptedProvider):
    """Its reasoning is cut in the middle of a secret."""

    capabilities = Capabilities(tools=True)

    async def stream(self, request):
        yield ReasoningDelta(f"thinking of {KEY[:4]}")
        yield ReasoningDelta(KEY[4:])
        async for delta in super().stream(request):
            yield delta


def native(arguments, **more):
    return ScriptedTurn("", calls=[ScriptedCall("tell", arguments)], chunk=1, **more)


ANSWER = ScriptedTurn(f"It is {KEY}, and 918273.", chunk=1)
TURNS = {
    **{how: [native({"how": how}), ANSWER] for how in (*RESULTS, "error", "exception", "stop")},
    "arguments": [native({"how": KEY, KEY: 918273}), ANSWER],
    "JSON in arguments": [native({"how": json.dumps({"a": json.dumps(KEY)})}), ANSWER],
    "malformed": [native(f'{{"how": "{KEY}'), ANSWER],
    "text of a call": [
        ScriptedTurn(f'I tell: <tool_call>{{"name": "tell", "arguments": {{"how": "{KEY}}}</tool_call>'),
        ANSWER,
    ],
    "an error": [native({"how": "x"}), ScriptedTurn("", error=ProviderError(f"refused: {KEY}", status=400))],
}


@pytest.mark.parametrize("how", TURNS)
def test_no_secret_is_recorded_from_anywhere(tmp_path, how):
    async def person(request):
        return Decision(True, f"since {KEY}", by="eve")

    def run(cassette, turns):
        journal = WatchedJournal()
        options = {"instructions": f"The key is {KEY}.", "approve": person, "secrets": SECRETS, "journal": journal}
        with pytest.raises(ProviderError, match="refused") if how == "an error" else nullcontext():
            asyncio.run(Agent(Thinks(turns), [tell], cassette=cassette, **options).run(f"Use {KEY}."))
        return journal

    path = tmp_path / "run.jsonl"
    journal = run(Cassette.record(path), TURNS[how])
    for text in (path.read_text("utf-8"), *map(dumps, journal.records)):
        leaks = [part for part in PARTS if part in text]
        assert leaks == [], text
    cassette = Cassette.replay(path)
    run(cassette, [])
    assert cassette.requests_left == 0


@pytest.mark.parametrize("key", ["none", "not-needed", "s3cret"])
def test_a_word_in_place_of_a_key_stays_in_the_conversation(tmp_path, key):
    async def main():
        async with serve(reply(f"You said {key}.")) as server:
            provider = OpenAIProvider("m", base_url=server.base_url, api_key=key)
            async with Agent(provider, cassette=Cassette.record(tmp_path / "run.jsonl"), dialect="native") as agent:
                return await agent.run(f"Is it {key}?")

    assert asyncio.run(main()).answer == f"You said {key}."
    text = (tmp_path / "run.jsonl").read_text("utf-8")
    assert f"Is it {key}?" in text
    assert "{{secret:" not in text


class KeyedProvider(ScriptedProvider):
    """As a provider over HTTP, it has a key."""

    secrets = ("gsk_0123456789", SECRETS["KEY"])


def test_a_providers_own_key_is_not_recorded_either(tmp_path):
    """A tool read it from a file, say, and the model repeats it."""

    @tool(read_only=True)
    def read(path: str) -> str:
        "Reads."
        return f"{path}: GROQ_API_KEY=gsk_0123456789"

    turns = [ScriptedTurn("", calls=[ScriptedCall("read", {"path": ".env"})]), ScriptedTurn("gsk_0123456789", chunk=3)]
    path = tmp_path / "run.jsonl"

    def run(model, cassette):
        return Agent(model, [read], cassette=cassette, secrets={"KEY": SECRETS["KEY"]}).run_sync("Read.")

    assert run(KeyedProvider(turns), Cassette.record(path)).answer == "gsk_0123456789"
    assert "gsk_" not in path.read_text("utf-8")
    cassette = Cassette.replay(path)
    assert run(ScriptedProvider([]), cassette).answer == "{{secret:API_KEY}}"
    assert cassette.requests_left == 0
