"""Answers of a given type: natively, by a tool, in words; and what happens to those that are not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import date
from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from toolspeak import Agent, Output, tool
from toolspeak.agent import Finish, RunInterceptor, RunStart
from toolspeak.data.events import AnswerRejected
from toolspeak.errors import ConfigurationError, RunError
from toolspeak.execute import HookContext
from toolspeak.providers import Capabilities
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn


class Town(BaseModel):
    name: str
    people: int = Field(ge=0)


@dataclass
class Pair:
    first: str
    second: str


@tool(read_only=True)
def ping() -> str:
    """Answers."""
    return "pong"


class Schemas(ScriptedProvider):
    capabilities = Capabilities(tools=True, output=True, output_with_tools=True)


PROVIDERS: dict[str, Any] = {
    "native": Schemas,
    "tool": lambda turns: ScriptedProvider(turns, tools=True),
    "prompted": lambda turns: ScriptedProvider(turns, tools=False),
}
MODES = pytest.mark.parametrize("mode", list(PROVIDERS))
GOOD = '{"name": "Ulm", "people": 129000}'


def run(mode, turns, output: Any = Town, **options):
    provider = PROVIDERS[mode](turns)
    agent = Agent(provider, [ping], output=output, **options)
    return provider, agent.run_sync("Which town?")


def answer_turn(mode, text):
    """A turn that gives an answer as the mode has it."""
    if mode == "tool":
        return ScriptedTurn("", calls=[ScriptedCall("final_answer", f'{{"answer": {text}}}')])
    return text


@MODES
def test_an_answer_is_a_value(mode):
    provider, result = run(mode, [answer_turn(mode, GOOD)])
    assert (result.status, result.output) == ("answered", Town(name="Ulm", people=129000))
    request = provider.requests[0]
    assert (request.output is not None) == (mode == "native")
    assert ("final_answer" in [spec.name for spec in request.tools]) == (mode == "tool")
    assert ('"people"' in request.messages[0].text) == (mode == "prompted")


@MODES
def test_calls_come_before_the_answer(mode):
    call = ScriptedTurn("", calls=[ScriptedCall("ping")])
    if mode == "prompted":
        call = '<execute>[{"name": "ping", "args": {}}]</execute>'
    _, result = run(mode, [call, answer_turn(mode, GOOD)])
    assert result.output == Town(name="Ulm", people=129000)
    assert any(message.role == "tool" for message in result.messages)


@MODES
def test_what_is_wrong_goes_back_to_the_model(mode):
    provider, result = run(mode, [answer_turn(mode, '{"name": "Ulm", "people": -1}'), answer_turn(mode, GOOD)])
    assert result.output == Town(name="Ulm", people=129000)
    feedback = provider.requests[1].messages[-1]
    words = feedback.results[0].text if mode == "tool" else feedback.text
    assert "people" in words
    assert "greater than or equal to 0" in words


@MODES
def test_prose_is_no_answer(mode):
    provider, result = run(mode, ["It is Ulm.", answer_turn(mode, GOOD)])
    assert result.output == Town(name="Ulm", people=129000)
    assert "it holds no JSON" in provider.requests[1].messages[-1].text
    assert ("call final_answer" in provider.requests[1].messages[-1].text) == (mode == "tool")


@MODES
def test_a_model_that_cannot_ends_without_an_answer_and_what_it_said_is_kept(mode):
    provider, result = run(mode, ["No.", "No!", "No?", "never asked"], Output(Town, retries=2))
    assert (result.status, result.reason, result.answer) == ("no_answer", "invalid_output", "No?")
    with pytest.raises(RunError, match="has no output: the model's answers"):
        assert result.output
    assert len(provider.requests) == 3


@pytest.mark.parametrize(
    "text",
    [GOOD, f"```json\n{GOOD}\n```", f"Here you are: {GOOD}. Good?", f"Not {{x}} but\n```\n{GOOD}\n```\nas said"],
)
def test_json_is_found_in_prose(text):
    assert run("prompted", [text])[1].output == Town(name="Ulm", people=129000)


TYPES = [
    (list[int], "[1, 2]", [1, 2]),
    (int, "7", 7),
    (bool, "true", True),
    (str, "just words", "just words"),
    (Literal["yes", "no"], '"yes"', "yes"),
    (dict[str, int], '{"a": 1}', {"a": 1}),
    (Pair, '{"first": "a", "second": "b"}', Pair("a", "b")),
    (list[Town], f"[{GOOD}]", [Town(name="Ulm", people=129000)]),
    (int | None, "null", None),
]


@pytest.mark.parametrize(("answer_type", "text", "value"), TYPES)
def test_any_type_of_pydantics(answer_type, text, value):
    _, result = run("prompted", [text], answer_type)
    assert (result.status, result.output) == ("answered", value)
    if answer_type is not str:
        assert run("tool", [answer_turn("tool", text)], answer_type)[1].output == value


@pytest.mark.parametrize(("answer_type", "text", "value"), TYPES)
def test_what_is_no_object_is_wrapped_for_an_api(answer_type, text, value):
    native_text = (
        text if answer_type is Pair else f'{{"value": {text}}}' if answer_type is not str else '{"value": "just words"}'
    )
    provider, result = run("native", [native_text], answer_type)
    schema = provider.requests[0].output.schema
    assert schema["type"] == "object"
    if answer_type is not str:
        assert result.output == value


def test_a_rejected_answer_is_a_fact_and_a_resumed_run_counts_it():
    provider = PROVIDERS["prompted"](["No.", GOOD])
    agent = Agent(provider, output=Town)
    run = agent.start("Which?")
    asyncio.run(run.finish())
    records = asyncio.run(run.journal.read(run.run_id))
    assert [type(record.event) for record in records].count(AnswerRejected) == 1
    assert run.state.turn.rejected_answers == 1


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (Output(Town, mode="native"), "needs an API"),
        (Output(Town, mode="loud"), r"Output\(mode='loud'\): expected one of auto"),
        (Output(Town, retries=-1), r"Output\(retries=-1\): expected a number from 0 up"),
        (object(), "has no JSON Schema"),
    ],
)
def test_what_cannot_be_is_refused(output, message):
    with pytest.raises(ConfigurationError, match=message):
        Agent(ScriptedProvider([]), output=output)


def test_an_answer_of_another_type_from_an_interceptor_is_the_callers_mistake():
    class Ending(RunInterceptor):
        async def after(self, start: RunStart, finish: Finish, context: HookContext) -> Finish:
            return replace(finish, answer="Ulm")

    with pytest.raises(ConfigurationError, match="an interceptor gave the run an answer"):
        run("prompted", [GOOD], interceptors=[Ending()])


def test_a_tool_of_the_answers_name_is_refused():
    @tool(read_only=True)
    def final_answer() -> str:
        """Mine."""
        return ""

    with pytest.raises(ConfigurationError, match="rename it"):
        Agent(ScriptedProvider([]), [final_answer], output=Output(Town, mode="tool"))


class AliasedCity(BaseModel):
    full: str = Field(validation_alias="fullName", serialization_alias="name")
    secret: int = Field(exclude=True)


class Colour(Enum):
    RED = "red"


@MODES
def test_an_answer_is_read_as_it_was_written_whatever_its_own_json_would_be(mode):
    _, result = run(mode, [answer_turn(mode, '{"fullName": "Ulm", "secret": 1}')], AliasedCity)
    assert result.output == AliasedCity(fullName="Ulm", secret=1)


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (str, 'Write {"a": 1} or [1].', 'Write {"a": 1} or [1].'),
        (str, "5", "5"),
        (str, "true", "true"),
        (Town | str, "I see [1] of them.", "I see [1] of them."),
        (Colour, "red", Colour.RED),
        (date, "2026-01-02", date(2026, 1, 2)),
        (Literal["a", "b"], "a", "a"),
    ],
)
@pytest.mark.parametrize("mode", ["native", "prompted"])
def test_a_plain_text_is_an_answer_where_the_type_is_one(mode, type_, text, value):
    _, result = run(mode, [text], Output(type_, retries=0))
    assert (result.status, result.output) == ("answered", value)


def test_an_object_with_a_mistake_is_no_text_though_the_type_may_be_one():
    _, result = run("prompted", ['{"name": "Ulm", "people": -1}', GOOD], Town | str)
    assert result.output == Town(name="Ulm", people=129000)


@pytest.mark.parametrize("type_", [int, bool, Town])
def test_a_number_in_quotes_or_in_prose_is_no_answer(type_):
    _, result = run("prompted", ['It is "forty-two", I think.'], Output(type_, retries=0))
    assert (result.status, result.reason) == ("no_answer", "invalid_output")


def test_a_run_that_waits_has_no_output_and_says_so():
    @tool
    def burn(town: str) -> None:
        """Burns a town."""

    call = ScriptedTurn("", calls=[ScriptedCall("burn", {"town": "Ulm"})])
    waiting = Agent(ScriptedProvider([call]), [burn], output=Town).run_sync("Go.")
    with pytest.raises(RunError, match="has no output: it is awaiting approval"):
        assert waiting.output


def test_an_agent_without_a_type_has_no_output():
    assert Agent(ScriptedProvider(["Ulm."])).run_sync("Which town?").output is None


class Engine(ScriptedProvider):
    """Holds a whole turn to the schema: a model could call nothing."""

    capabilities = Capabilities(tools=True, output=True)


def test_a_schema_that_would_let_no_call_through_is_not_sent_beside_tools():
    provider = Engine([answer_turn("tool", GOOD)])
    assert Agent(provider, [ping], output=Town).run_sync("Which town?").output == Town.model_validate_json(GOOD)
    assert provider.requests[0].output is None
    provider = Engine([GOOD])
    assert Agent(provider, output=Town).run_sync("Which town?").output == Town.model_validate_json(GOOD)
    assert provider.requests[0].output is not None
    assert not provider.requests[0].tools
    provider = Engine([GOOD])
    Agent(provider, [ping], output=Output(Town, mode="native")).run_sync("Which town?")
    assert provider.requests[0].output is not None


@pytest.mark.parametrize("answer", ['<think>[1], or {"value": 1}?</think>\n{"value": 2}', '{"value": 1}?\n</think>\n2'])
def test_a_draft_in_a_thought_is_no_answer(answer):
    result = Agent(ScriptedProvider([answer]), output=Output(int, mode="prompted")).run_sync("How many?")
    assert result.output == 2
