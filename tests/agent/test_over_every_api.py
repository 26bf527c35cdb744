"""What an agent promises, over each API and a real connection: streams cut anywhere, and faults in their midst."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

import pytest
from api_servers import Api, Breaks, Model, ReachableModel, Status, each_api, reach, turn
from pydantic import BaseModel, Field

from toolspeak import Agent, Limits, Output, RunContext, tool
from toolspeak.agent import ReActDriver
from toolspeak.data.messages import Message, Usage
from toolspeak.data.prices import Price
from toolspeak.errors import ProviderError
from toolspeak.providers import Capabilities

BUSY = Status("429 Too Many Requests", ("retry-after: 7",), "slow down")
DOWN = Status("503 Service Unavailable")


class Person(BaseModel):
    name: str
    age: int = Field(ge=0)
    friends: list[Person] = []
    mood: Literal["fröhlich", "traurig"] | None = None


ZOE = Person(name='Zoë "Z" 😀\n', age=3, friends=[Person(name="{}", age=0)], mood="fröhlich")
GOOD = ZOE.model_dump(mode="json")
WRONG = {**GOOD, "age": -1}


@tool(read_only=True)
def look(where: str) -> str:
    """Looks somewhere."""
    return f"«{where}» is empty 😀"


@tool(read_only=True)
def ping() -> str:
    """Answers."""
    return "pong"


def over(api: Api, *script: Any, **settings: Any) -> Any:
    """Runs `work(reached)` with the script's server."""

    def run(work: Any) -> Any:
        async def go() -> Any:
            async with reach(api, *script, **settings) as endpoint:
                return await work(endpoint)

        return asyncio.run(go())

    return run


def heard_by(model: Model, number: int = -1) -> str:
    """What the server was told in a request's messages."""
    texts: list[str] = []
    for message in model.requests[number].request.messages:
        texts.append(message.text)
        if isinstance(message, Message):
            texts += [result.text for result in message.results]
    return "\n".join(texts)


# --- structured output -------------------------------------------------------------------------------------------

MODES = pytest.mark.parametrize("mode", ["native", "tool", "prompted"])


def answer(mode: str, value: Any) -> Any:
    if mode == "tool":
        return turn("", ("final_answer", {"answer": value}))
    return turn(json.dumps(value, ensure_ascii=False))


@each_api
@MODES
def test_an_answer_of_a_type_with_a_call_before_and_faults_between(api: Api, mode: Any):
    script = (BUSY, turn("Hm… ", ("look", {"where": "É"})), answer(mode, WRONG), DOWN, answer(mode, GOOD))

    async def work(endpoint: ReachableModel) -> Any:
        return await Agent(endpoint.provider, [look], output=Output(Person, mode=mode)).run("Who?"), endpoint

    result, endpoint = over(api, *script)(work)
    assert (result.status, result.output) == ("answered", ZOE)
    assert endpoint.clock.sleeps[0] >= 7
    assert len(endpoint.model.bodies) == 5
    assert "«É» is empty 😀" in heard_by(endpoint.model, 2)
    assert "greater than or equal to 0" in heard_by(endpoint.model)
    schema = endpoint.model.requests[0].request.output
    assert (schema is not None) == (mode == "native")


@each_api
@MODES
@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (list[int], [1, 2]),
        (dict[str, bool], {"é": True}),
        (Literal["a", "b"], "b"),
        (int, 7),
        (str, "[1] 😀"),
        (bool, False),
    ],
    ids=str,
)
def test_answers_that_are_no_objects(api: Api, mode: Any, type_: Any, value: Any):
    content = {"value": value} if mode == "native" else value

    async def work(endpoint: ReachableModel) -> Any:
        return await Agent(endpoint.provider, [look], output=Output(type_, mode=mode)).run("Which?")

    assert over(api, answer(mode, content))(work).output == value


@each_api
@MODES
def test_a_model_that_cannot_ends_without_an_answer(api: Api, mode: Any):
    async def work(endpoint: ReachableModel) -> Any:
        agent = Agent(endpoint.provider, [look], output=Output(Person, mode=mode, retries=1))
        return await agent.run("Who?"), len(endpoint.model.bodies)

    for last in (turn("I cannot."), answer(mode, WRONG)):
        result, requests = over(api, answer(mode, WRONG), last)(work)
        assert (result.status, result.reason, requests) == ("no_answer", "invalid_output", 2)


@each_api
@MODES
@pytest.mark.parametrize("how", ["reset", "stall", "error"])
def test_a_run_that_broke_off_in_its_answer_is_taken_up_by_the_next(api: Api, mode: Any, how: str):
    script = (turn("", ("look", {"where": "x"})), Breaks(how, answer(mode, GOOD)), answer(mode, GOOD))

    async def work(endpoint: ReachableModel) -> Any:
        agent = Agent(endpoint.provider, [look], output=Output(Person, mode=mode))
        with pytest.raises(ProviderError) as raised_error:
            await agent.run("Who?")
        assert raised_error.value.retryable
        assert len(endpoint.model.bodies) == 2  # what was begun is not asked again unseen
        failed_result = raised_error.value.result
        assert failed_result.status == "failed"
        return await agent.run("Go on.", history=failed_result.messages), endpoint

    result, endpoint = over(api, *script, silence=1 if how == "stall" else 20)(work)
    assert (result.status, result.output) == ("answered", ZOE)
    assert "«x» is empty" in heard_by(endpoint.model)


# --- usage and cost ----------------------------------------------------------------------------------------------

FULL = Usage(100, 50, 40, 20)
PRICE = Price(input=1_000_000, output=10_000_000, cached=100_000)


@each_api
def test_each_token_is_counted_once_and_has_its_price(api: Api):
    script = (BUSY, turn("", ("look", {"where": "x"}), usage=FULL), turn("Done.", thought="so", usage=FULL))

    async def work(endpoint: ReachableModel) -> Any:
        agent = Agent(endpoint.provider, [look], prices={endpoint.provider.name: PRICE})
        return await agent.run("Look.")

    result = over(api, *script)(work)
    expected_usage = Usage(200, 100, 80, 40)
    if api.wire.name == "ollama":  # it tells neither
        expected_usage = Usage(200, 100, 0, 0)
    assert (result.usage.input, result.usage.output) == (200, 100)
    assert (result.usage.cached or 0, result.usage.reasoning or 0) == (expected_usage.cached, expected_usage.reasoning)
    plain = 200 - (expected_usage.cached or 0)
    assert result.cost == pytest.approx(plain * 1 + (expected_usage.cached or 0) * 0.1 + 100 * 10)


@each_api
@pytest.mark.parametrize("limits", [Limits(tokens=150), Limits(cost=100.0)], ids=["tokens", "cost"])
def test_a_limit_holds_before_the_next_request(api: Api, limits: Limits):
    script = (
        turn("", ("look", {"where": "x"}), usage=FULL),
        turn("That is all.", ("look", {"where": "y"}), usage=FULL),
    )

    async def work(endpoint: ReachableModel) -> Any:
        agent = Agent(endpoint.provider, [look], prices={endpoint.provider.name: PRICE}, limits=limits)
        return await agent.run("Look."), endpoint

    result, endpoint = over(api, *script)(work)
    assert (result.answer, len(endpoint.model.bodies)) == ("That is all.", 2)
    assert result.reason == ("tokens" if limits.tokens else "cost")
    assert [each.name for message in result.messages for each in message.results] == ["look"]


@each_api
def test_what_a_sub_run_uses_is_its_parents(api: Api):
    script = (turn("", ("delegate", {}), usage=FULL), turn("Small.", usage=Usage(7, 3)), turn("Done.", usage=FULL))

    async def work(endpoint: ReachableModel) -> Any:
        child = Agent(endpoint.provider)

        @tool(read_only=True)
        async def delegate(ctx: RunContext) -> str:
            """Asks somebody."""
            return (await child.run("Do it.", parent_run_id=ctx.state.run_id)).answer

        return await Agent(endpoint.provider, [delegate]).run("Go.")

    result = over(api, *script)(work)
    assert (result.usage.input, result.usage.output) == (207, 103)


@each_api
def test_a_turn_that_broke_off_has_no_known_usage_but_the_run_keeps_the_others(api: Api):
    script = (turn("", ("look", {"where": "x"}), usage=FULL), Breaks("reset"))

    async def work(endpoint: ReachableModel) -> Any:
        with pytest.raises(ProviderError) as raised_error:
            await Agent(endpoint.provider, [look]).run("Look.")
        return raised_error.value.result

    result = over(api, *script)(work)
    assert (result.usage.input, result.usage.output) == (100, 50)


# --- tool choice -------------------------------------------------------------------------------------------------


def choice_in(body: Any) -> str:
    """What a request's own field says of the choice."""
    choice = body.get("tool_choice", body.get("toolConfig"))
    text = json.dumps(choice)
    if choice is None:
        return "auto"
    if '"look"' in text:
        return "look"
    return "none" if "none" in text.lower() else "required"


@each_api
@pytest.mark.parametrize("choice", ["required", "look"])
def test_a_choice_holds_for_the_first_step_natively(api: Api, choice: str):
    script = (BUSY, turn("I need none."), turn("", ("look", {"where": "x"})), turn("Done."))

    async def work(endpoint: ReachableModel) -> Any:
        return await Agent(endpoint.provider, [look, ping], tool_choice=choice).run("Look."), endpoint

    result, endpoint = over(api, *script)(work)
    assert result.answer == "Done."
    bodies = endpoint.model.bodies
    if api.wire.name == "ollama":  # it has none
        tool_phrase = "at least one tool" if choice == "required" else "the tool 'look'"
        last = [each.request.messages[-1].text for each in endpoint.model.requests]
        assert [f"You must call {tool_phrase} in this turn." in text for text in last] == [True, True, True, False]
    else:
        assert [choice_in(body) for body in bodies] == [choice, choice, choice, "auto"]
    assert "must call" in heard_by(endpoint.model, 2)
    assert len({json.dumps(body["tools"]) for body in bodies}) == 1


@each_api
@pytest.mark.parametrize("choice", ["required", "look", "none"])
@pytest.mark.parametrize("dialect", ["cogency-json", "hermes", "react"])
def test_a_choice_in_text(api: Api, choice: str, dialect: str):
    call, refusal, final_turn = (
        decision_text(dialect, "look"),
        decision_text(dialect, None, "No."),
        decision_text(dialect, None, "Done."),
    )
    script = (refusal,) if choice == "none" else (refusal, call, final_turn)

    async def work(endpoint: ReachableModel) -> Any:
        return await Agent(endpoint.provider, [look, ping], dialect=dialect, tool_choice=choice).run("Look."), endpoint

    result, endpoint = over(api, *script)(work)
    assert result.answer == ("No." if choice == "none" else "Done.")
    assert [each.name for message in result.messages for each in message.results] == ["look"] * (choice != "none")
    assert all("tools" not in body for body in endpoint.model.bodies)


def decision_text(dialect: str, name: str | None, text: str = "") -> str:
    if dialect == "react":
        say = {"type": "final_answer", "answer": text} if name is None else {"type": "call_tool", "tool": name}
        return json.dumps({"thought": "hm 😀", **say, **({} if name is None else {"args": {"where": "x"}})})
    if name is None:
        return text
    if dialect == "hermes":
        return f'<tool_call>\n{{"name": "{name}", "arguments": {{"where": "x"}}}}\n</tool_call>'
    return f'<execute>[{{"name": "{name}", "args": {{"where": "x"}}}}]</execute>'


# --- ReAct -------------------------------------------------------------------------------------------------------


@each_api
def test_react_asks_by_schema_where_the_api_takes_open_objects(api: Api):
    """Anthropic refuses the arguments' object, whose keys depend on the tool, and Gemini gives it back empty."""

    async def work(endpoint: ReachableModel) -> Any:
        return await Agent(endpoint.provider, [look], dialect="react").run("Look."), endpoint

    result, endpoint = over(api, decision_text("react", None, "Empty."))(work)
    assert result.answer == "Empty."
    takes = api.wire.name not in ("anthropic", "gemini")
    assert (endpoint.model.requests[0].request.output is not None) == takes


@each_api
@pytest.mark.parametrize(("type_", "closed"), [(dict[str, int], False), (Person, False), (list[str], True)], ids=str)
def test_a_type_that_an_api_cannot_hold_to_is_asked_for_by_a_tool(api: Api, type_: Any, closed: bool):
    native = closed or api.wire.name not in ("anthropic", "gemini")
    value = {dict[str, int]: {"a": 1}, Person: GOOD, list[str]: ["a"]}[type_]
    content = {"value": value} if native and type_ is not Person else value

    async def work(endpoint: ReachableModel) -> Any:
        return await Agent(endpoint.provider, output=type_).run("Which?"), endpoint

    result, endpoint = over(api, answer("native" if native else "tool", content))(work)
    assert result.output == (ZOE if type_ is Person else value)
    assert (endpoint.model.requests[0].request.output is not None) == native


@each_api
@pytest.mark.parametrize("schemas", [True, False], ids=["schema", "prompted"])
def test_react_with_bad_decisions_and_faults(api: Api, schemas: bool):
    script = (
        BUSY,
        "I think I should look first.",
        '```json\n{"thought": "é", "type": "call_tool", "tool": "lok", "args": {}}\n```',
        'Well: {"thought": "é", "type": "call_tool", "tool": "look", "args": {"where": "{x}"}} there',
        DOWN,
        decision_text("react", None, "Empty."),
        "Nothing is there, says the streamed answer. 😀",
    )

    async def work(endpoint: ReachableModel) -> Any:
        driver = ReActDriver(endpoint.provider, final_via_inference=True)
        return await Agent(driver, [look]).run("Look."), endpoint

    result, endpoint = over(api, *script, capabilities=Capabilities(tools=True, output=schemas))(work)
    assert result.answer == "Nothing is there, says the streamed answer. 😀"
    assert [each.text for message in result.messages for each in message.results] == ["«{x}» is empty 😀"]
    assert (result.usage.input, result.usage.output) == (50, 25)
    requests = endpoint.model.requests
    has_schema = schemas and api.wire.name != "anthropic"  # which takes no open object, as the arguments are
    assert [each.request.output is not None for each in requests] == [has_schema] * 6 + [False]
    assert "holds no JSON object" in heard_by(endpoint.model, 2)
    assert "there is no tool 'lok'" in heard_by(endpoint.model, 3)


@each_api
@pytest.mark.parametrize("how", ["reset", "stall", "error"])
def test_react_breaks_off_as_any_turn(api: Api, how: str):
    async def work(endpoint: ReachableModel) -> Any:
        with pytest.raises(ProviderError) as raised_error:
            await Agent(endpoint.provider, [look], dialect="react").run("Look.")
        return raised_error.value

    assert over(api, Breaks(how), silence=1 if how == "stall" else 20)(work).retryable
