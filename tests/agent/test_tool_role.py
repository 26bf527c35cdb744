"""Results in text as messages of role `tool`, where a server takes them."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest
from api_servers import APIS, ReachableModel, Status, reach

from toolspeak import Agent, tool
from toolspeak.agent.drivers.text import with_words
from toolspeak.data.messages import TextMessage
from toolspeak.errors import ProviderError
from toolspeak.providers.capabilities import APIS as KNOWN_APIS
from toolspeak.providers.capabilities import Capabilities

CALL = '<tool_call>\n{"name": "look", "arguments": {"where": "here"}}\n</tool_call>'
AGAIN = CALL.replace('"here"', '"there"')
BARE = {"role": "tool", "content": "here is empty"}
FRAMED_RESULT = {"role": "user", "content": "<tool_result>\nhere is empty\n</tool_result>"}
TAKES = Capabilities(tool_role=True)

both = pytest.mark.parametrize("name", ["openai", "ollama"])


@tool(read_only=True)
def look(where: str) -> str:
    """Looks somewhere."""
    return f"{where} is empty"


def run(name: str, *script: Any, capabilities: Capabilities = TAKES, dialect: Any = "tool-call", times: int = 1) -> Any:
    """The messages of each request, as they were sent, and the last result."""

    async def go() -> tuple[list[list[Any]], Any]:
        async with (
            reach(APIS[name], *script, capabilities=capabilities) as endpoint,
            Agent(endpoint.provider, [look], dialect=dialect) as agent,
        ):
            _unread(endpoint)
            result: Any = None
            for _ in range(times):
                result = await agent.run("go")
            return [body["messages"] for body in endpoint.model.bodies], result

    return asyncio.run(go())


def _unread(endpoint: ReachableModel) -> None:
    """A message of role `tool` without an id is none of the API's own: the server here only keeps what was sent."""
    endpoint.model.api = replace(endpoint.model.api, wire=_Unread(endpoint.model.api.wire))


class _Unread:
    def __init__(self, wire: Any) -> None:
        self._wire = wire

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)

    def decode_request(self, body: Any) -> Any:
        other_messages = [message for message in body["messages"] if message["role"] != "tool"]
        return self._wire.decode_request({**body, "messages": other_messages})


@both
def test_a_result_is_a_tool_turn_without_a_frame_of_ours(name: str):
    (_, second, third), result = run(name, CALL, AGAIN, "Empty.")
    assert second[-1] == BARE
    assert third[-3:] == [BARE, {"role": "assistant", "content": AGAIN}, {**BARE, "content": "there is empty"}]
    assert result.answer == "Empty."


@both
def test_elsewhere_it_is_the_users_with_its_frame(name: str):
    (_, second), _ = run(name, CALL, "Empty.", capabilities=Capabilities())
    assert second[-1] == FRAMED_RESULT


@both
@pytest.mark.parametrize("dialect", ["cogency-json", "claude-legacy"])
def test_a_dialect_whose_results_have_a_frame_of_their_own_keeps_the_user_role(name: str, dialect: str):
    call = {
        "cogency-json": '<execute>\n[{"name": "look", "args": {"where": "here"}}]\n</execute>',
        "claude-legacy": "<function_calls>\n<invoke>\n<tool_name>look</tool_name>\n<parameters>\n<where>here</where>\n"
        "</parameters>\n</invoke>\n</function_calls>",
    }[dialect]
    (_, second), _ = run(name, call, "Empty.", dialect=dialect)
    assert second[-1]["role"] == "user"
    assert re.match("<(results|function_results)>", second[-1]["content"])


REFUSALS = [
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
    "Invalid 'messages' in payload. Please check the structure of your 'messages' and try again",
    "[{'type': 'missing', 'loc': ('body', 'messages', 2, 'tool', 'tool_call_id'), 'msg': 'Field required'}]",
    "Conversation roles must alternate user/assistant/user/assistant/...",
]


@both
@pytest.mark.parametrize("problem", REFUSALS)
def test_a_server_that_refuses_it_is_asked_again_and_remembered(name: str, problem: str):
    script = [CALL, Status("400 Bad Request", message=problem), "Empty.", CALL, "Empty again."]
    requests, result = run(name, *script, times=2)
    assert [messages[-1] for messages in (requests[1], requests[2], requests[4])] == [
        BARE,
        FRAMED_RESULT,
        FRAMED_RESULT,
    ]
    assert len(requests) == 5
    assert (result.status, result.answer) == ("answered", "Empty again.")


@both
def test_another_refusal_is_the_runs_end(name: str):
    refusal = Status("400 Bad Request", message="the temperature must be below 2")
    with pytest.raises(ProviderError, match="temperature"):
        run(name, CALL, refusal)


@both
def test_a_refusal_before_any_result_is_none_of_the_role(name: str):
    with pytest.raises(ProviderError, match="role"):
        run(name, Status("400 Bad Request", message="this role may not"))


def test_a_tool_choice_does_not_stand_in_a_result():
    messages = [TextMessage("user", "go"), TextMessage("tool", "empty")]
    assert [*with_words(messages, "Call look now.")] == [*messages, TextMessage("user", "Call look now.")]


def test_the_engines_that_take_it():
    assert {name for name, capabilities in KNOWN_APIS.items() if capabilities.tool_role} == {
        "ollama",
        "vllm",
        "sglang",
        "llamacpp",
    }
