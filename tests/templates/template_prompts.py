"""Our prompts against what the models' own chat templates write: `make test-templates`."""

from __future__ import annotations

import asyncio
import json

import pytest
from chat_templates import folder, prompt_of
from comparison import Comparison, compare, sent_for
from conversations import ASK, SYSTEMS, TOOLS, Case, first_requests, requests_with_history
from template_levels import LEVELS, Expected

from toolspeak.agent.drivers.text import TextDriver
from toolspeak.dialects import known_dialect
from toolspeak.gateway.requests.request_mapping import turn_of
from toolspeak.gateway.settings.gateway_settings import Settings
from toolspeak.gateway.settings.upstream_settings import Upstream
from toolspeak.gateway.upstreams.routing import Router
from toolspeak.wire.openai_chat import OPENAI_CHAT

TEMPLATES = [name for name, expected in LEVELS.items() if expected.first != "none"]
TEMPLATE_NAMES = [name for name in TEMPLATES if LEVELS[name].first != "to come"]


def levels_of(comparisons: list[Comparison]) -> set[str]:
    return {each.level for each in comparisons} - {"unwritten"}


def test_every_template_has_its_row():
    assert sorted(path.stem for path in folder().glob("*.jinja")) == sorted(LEVELS)


@pytest.mark.parametrize("name", TEMPLATE_NAMES)
def test_the_model_is_known_by_its_name(name: str):
    assert known_dialect(LEVELS[name].model) is not None


@pytest.mark.parametrize("name", TEMPLATE_NAMES)
def test_the_first_request_is_what_the_template_writes(name: str):
    expected = LEVELS[name]
    comparisons = [compare(name, expected.model, label, case) for label, case in first_requests().items()]
    admissible_levels = {"whole": {"whole"}, "block": {"whole", "block"}, "other": {"whole", "differs"}}[expected.first]
    assert levels_of(comparisons) <= admissible_levels, _report(comparisons)
    assert levels_of(comparisons) != {"whole"} or expected.first == "whole", "it is whole by now: say so"
    assert bool(expected.why) == (expected.first != "whole")


@pytest.mark.parametrize("name", [name for name in TEMPLATE_NAMES if LEVELS[name].history])
def test_a_conversation_with_calls_and_results_is_what_the_template_writes(name: str):
    expected = LEVELS[name]
    comparisons = [
        compare(name, expected.model, label, case, tool_role=expected.history == "tool")
        for label, case in requests_with_history().items()
    ]
    assert levels_of(comparisons) == {"whole"}, _report(comparisons)


def _report(comparisons: list[Comparison]) -> str:
    return "\n".join(f"{each.case}: {each.level} {each.error}" for each in comparisons)


@pytest.mark.parametrize("name", [name for name, expected in LEVELS.items() if expected.first == "none"])
def test_a_template_without_tools_says_nothing_of_them(name: str):
    case = Case("", TOOLS["one"], [ASK])
    try:
        without = prompt_of(name, case.chat_messages())
    except Exception:  # noqa: BLE001 - it asks for what no API has
        return
    assert prompt_of(name, case.chat_messages(), case.tool_definitions) == without


def through_the_gateway(model: str, case: Case, tool_role: bool) -> list[dict[str, str]]:
    """What the upstream is sent for a client's request."""
    upstream = Upstream(url="http://127.0.0.1:9/v1", model=model, capabilities={"tools": False, "tool_role": tool_role})
    body = {"model": "any", "messages": case.chat_messages(json.dumps), "tools": case.tool_definitions, "stream": True}

    async def ask() -> list[dict[str, str]]:
        router = Router(Settings((upstream,)), {})
        try:
            with router.routes("any") as candidates:
                driver, request, _ = turn_of(OPENAI_CHAT.decode_request(body), candidates.routes[0], "openai-chat")
                assert isinstance(driver, TextDriver)
                return OPENAI_CHAT.encode_request(driver.open().model_request(request), model=model, stream=True)[
                    "messages"
                ]
        finally:
            await router.aclose()

    return asyncio.run(ask())


@pytest.mark.parametrize("name", TEMPLATE_NAMES)
def test_the_gateway_sends_the_same(name: str):
    """For the first request, and for one with a history."""
    expected: Expected = LEVELS[name]
    tool_role = expected.history == "tool"
    cases = [Case(system, TOOLS["nested"], [ASK]) for system in SYSTEMS.values()]
    for case in (*cases, *requests_with_history().values()):
        assert through_the_gateway(expected.model, case, tool_role) == sent_for(expected.model, case, tool_role)
