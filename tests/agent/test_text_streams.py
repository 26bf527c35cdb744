"""`stream_text` and `stream_output`: what a program shows of a run while it goes on."""

import asyncio
from dataclasses import dataclass
from typing import Literal, NotRequired

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from toolspeak import Agent, AgentStop, ConfigurationError, MemoryJournal, Output, RunContext, RunError, Session, tool
from toolspeak.agent import StreamedOutput, result_of, stream_output, stream_text
from toolspeak.errors import ProviderError
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn


@tool(read_only=True)
def stock(item: str) -> int:
    "Says how many there are."
    return 3


@tool
def pick(ctx: RunContext[None]) -> None:
    "Picks a pear."


class Pear(BaseModel):
    sort: str
    weight: int = Field(ge=1)
    kind: Literal["green", "greenish"] = "green"


class Basket(BaseModel):
    owner: str
    pears: list[Pear]
    paid: bool | None = None


CALL = [ScriptedCall("stock", {"item": "apple"})]
BLOCK = '<execute>[{"name": "stock", "args": {"item": "apple"}}]</execute>'
BASKET = '{"owner": "Bob", "pears": [{"sort": "Abate", "weight": 120}, {"sort": "Conference", "weight": 95}]}'


async def gather(stream):
    return [each async for each in stream]


def items(stream):
    return asyncio.run(gather(stream))


def values_of(stream):
    return [each.value for each in items(stream)]


def scripted_provider(*turns, chunk=3, **options):
    turns_made = [turn if isinstance(turn, ScriptedTurn) else ScriptedTurn(turn, chunk=chunk) for turn in turns]
    return ScriptedProvider(turns_made, **options)


TWO_TURNS = {
    "text": lambda: scripted_provider(f"<think>Hm.</think>I look. {BLOCK}", "We have 3."),
    "native": lambda: scripted_provider(ScriptedTurn("I look. ", calls=CALL, reasoning="Hm."), "We have 3."),
}


@pytest.mark.parametrize("way", TWO_TURNS)
def test_text_comes_in_pieces_without_thoughts_and_calls(way):
    pieces = items(Agent(TWO_TURNS[way](), [stock]).stream_text("How many?"))
    assert "".join(pieces).replace("I look. ", "I look.") == "I look.\n\nWe have 3."
    assert len(pieces) > 3


@pytest.mark.parametrize("way", TWO_TURNS)
def test_accumulated_text_begins_anew_with_each_turn(way):
    texts = items(Agent(TWO_TURNS[way](), [stock]).stream_text("How many?", accumulated=True))
    at = next(i for i, text in enumerate(texts) if text.startswith("We"))
    assert texts[at - 1].strip() == "I look."
    assert all(later.startswith(earlier) for earlier, later in zip(texts[at:], texts[at + 1 :], strict=False))
    assert texts[-1] == "We have 3."


def test_text_that_proves_to_be_reasoning_is_taken_back():
    texts = items(Agent(scripted_provider("Hm, 3.</think>We have 3.")).stream_text("How many?", accumulated=True))
    assert "" in texts
    assert texts[-1] == "We have 3."


def test_an_answer_that_no_turn_wrote_as_text_is_the_last_piece():
    @tool(read_only=True)
    def end() -> str:
        "Ends."
        raise AgentStop("enough", answer="We have 3.")

    model = scripted_provider("I look. " + BLOCK.replace("stock", "end").replace('"item": "apple"', ""))
    assert "".join(items(Agent(model, [end]).stream_text("go"))) == "I look. \n\nWe have 3."
    model = scripted_provider(BLOCK.replace("stock", "end").replace('"item": "apple"', ""))
    assert items(Agent(model, [end]).stream_text("go", accumulated=True)) == ["We have 3."]


def test_a_session_streams_after_its_messages():
    model = scripted_provider("One.", "Two.")
    session = Session(Agent(model, journal=MemoryJournal()))
    assert "".join(items(session.stream_text("1"))) == "One."
    assert items(session.stream_text("2", accumulated=True))[-1] == "Two."
    assert [message.text for message in model.requests[1].messages[-3:]] == ["1", "One.", "2"]


def test_a_run_that_is_started_streams_too_and_says_how_it_ended():
    async def watch():
        run = Agent(scripted_provider("Hello.")).start("Hi.")
        return "".join([text async for text in stream_text(run)]), run.state.status

    assert asyncio.run(watch()) == ("Hello.", "answered")


def test_leaving_the_loop_cancels_the_run():
    async def leave(stream):
        async for _ in stream:
            break
        await stream.aclose()
        return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    assert asyncio.run(leave(Agent(scripted_provider("Hello, Bob.")).stream_text("Hi."))) == []
    assert asyncio.run(leave(Agent(scripted_provider(BASKET), output=Basket).stream_output("Hi."))) == []
    session = Session(Agent(scripted_provider("Hello, Bob."), journal=MemoryJournal()))
    assert asyncio.run(leave(session.stream_text("Hi."))) == []


def test_a_failing_model_raises():
    model = scripted_provider(ScriptedTurn("Hel", error=ProviderError("no route")))
    with pytest.raises(ProviderError, match="no route"):
        items(Agent(model).stream_text("Hi."))


# --- answers of a type


@pytest.mark.parametrize("mode", ["prompted", "tool"])
def test_an_answer_grows_to_the_validated_whole(mode):
    turn = (
        BASKET
        if mode == "prompted"
        else f'<execute>[{{"name": "final_answer", "args": {{"answer": {BASKET}}}}}]</execute>'
    )
    values = values_of(Agent(scripted_provider(turn, chunk=1), output=Output(Basket, mode=mode)).stream_output("Pack."))
    assert values[-1] == Basket.model_validate_json(BASKET)
    partial = [value for value in values if not hasattr(value, "pears")]
    assert partial[-1].owner == "Bob"
    assert all(isinstance(value, Basket) for value in values)
    pears = [value.pears[0] for value in values if getattr(value, "pears", [])]
    sorts = [pear.sort for pear in pears if not hasattr(pear, "weight") and hasattr(pear, "sort")]
    assert len({*sorts}) > 2
    assert all("Abate".startswith(each) for each in sorts)
    weights = {pear.weight for value in values for pear in getattr(value, "pears", []) if hasattr(pear, "weight")}
    assert weights == {120, 95}  # never 1, 12, 9


def test_a_native_call_grows_too():
    turn = ScriptedTurn("", calls=[ScriptedCall("final_answer", {"answer": {"sort": "Abate", "weight": 120}})], chunk=1)
    values = values_of(Agent(scripted_provider(turn), output=Output(Pear, mode="tool")).stream_output("Pick."))
    assert values[-1] == Pear(sort="Abate", weight=120)


def test_prose_and_fences_around_an_answer_are_left_out():
    text = 'Here it is:\n```json\n{"sort": "Abate", "weight": 120}\n```\nEnjoy.'
    values = values_of(
        Agent(scripted_provider(text, chunk=1), output=Output(Pear, mode="prompted")).stream_output("Pick.")
    )
    assert {getattr(value, "sort", "") for value in values} >= {"", "Ab", "Abate"}
    assert values[-1] == Pear(sort="Abate", weight=120)


def test_a_word_of_a_list_is_no_part_of_itself():
    text = '{"sort": "Abate", "weight": 120, "kind": "greenish"}'
    values = values_of(Agent(scripted_provider(text, chunk=1), output=Pear).stream_output("Pick."))
    assert {value.kind for value in values if "kind" in value.model_fields_set} == {"greenish"}


def sorts_of(items_of_stream, attempt):
    return {getattr(each.value, "sort", "") for each in items_of_stream if each.attempt == attempt}


def test_after_an_answer_that_does_not_fit_the_items_begin_anew():
    model = scripted_provider('{"sort": "Abate", "weight": 0}', '{"sort": "Conference", "weight": 95}', chunk=1)
    stream_items = items(Agent(model, output=Output(Pear, retries=1)).stream_output("Pick."))
    assert sorts_of(stream_items, 1) >= {"", "Ab", "Abate"}
    assert sorts_of(stream_items, 2) >= {"", "Co", "Conference"}
    assert [each.is_final for each in stream_items] == [False] * (len(stream_items) - 1) + [True]
    assert stream_items[-1] == StreamedOutput(Pear(sort="Conference", weight=95), 2, is_final=True)


def final_answer(weight, sort, **more):
    call = ScriptedCall("final_answer", {"answer": {"sort": sort, "weight": weight}})
    return ScriptedTurn("", calls=[call], chunk=1, **more)


def test_an_answering_call_that_is_refused_is_taken_back():
    model = scripted_provider(final_answer(0, "Abate"), final_answer(95, "Conference"))
    stream_items = items(Agent(model, output=Output(Pear, mode="tool")).stream_output("Pick."))
    assert "Abate" in sorts_of(stream_items, 1)
    assert sorts_of(stream_items, 2) >= {"C", "Conference"}
    assert sorts_of(stream_items, 3) == set()
    assert stream_items[-1] == StreamedOutput(Pear(sort="Conference", weight=95), 2, is_final=True)


def test_turns_without_any_of_the_answer_are_no_attempts():
    model = scripted_provider(ScriptedTurn("I look.", calls=CALL), final_answer(95, "Conference"))
    stream_items = items(Agent(model, [stock], output=Output(Pear, mode="tool")).stream_output("Pick."))
    assert {each.attempt for each in stream_items} == {1}


def test_the_result_of_a_streamed_run_has_the_answer():
    async def stream_all():
        run = Agent(scripted_provider('{"sort": "Abate", "weight": 95}'), output=Pear).start("Pick.")
        last = [each async for each in stream_output(run)][-1]
        return last.value, result_of(run).output

    assert asyncio.run(stream_all()) == (Pear(sort="Abate", weight=95),) * 2


def test_a_run_without_an_answer_raises():
    with pytest.raises(RunError, match="has no output: the model's answers do not match the output type"):
        items(Agent(scripted_provider("I cannot."), output=Output(Pear, retries=0)).stream_output("Pick."))
    waits = Agent(
        scripted_provider(ScriptedTurn("", calls=[ScriptedCall("pick", {})])), [pick], output=Output(Pear, mode="tool")
    )
    with pytest.raises(RunError, match="has no output: it is awaiting approval"):
        items(waits.stream_output("Pick."))
    with pytest.raises(ConfigurationError, match="output="):
        items(Agent(scripted_provider("Hello.")).stream_output("Hi."))


@dataclass(frozen=True)
class Town:
    name: str
    people: int
    rivers: tuple[str, ...] = ()


class Row(TypedDict):
    key: str
    value: NotRequired[float]


@pytest.mark.parametrize(
    ("kind", "text", "partial", "whole"),
    [
        (list[int], "[1, 22, 333]", [1, 22], [1, 22, 333]),
        (dict[str, int], '{"a": 1, "b": 2}', {"a": 1}, {"a": 1, "b": 2}),
        (Row, '{"key": "a", "value": 1.5}', {"key": "a"}, {"key": "a", "value": 1.5}),
        (list[Row], '[{"key": "a", "value": 1.5}]', [{"key": "a"}], [{"key": "a", "value": 1.5}]),
        (str, "Hello, Bob.", "Hello", "Hello, Bob."),
        (Literal["red", "redder"], "redder", None, "redder"),
        (int, "42", None, 42),
        (Pear | None, '{"sort": "A", "weight": 2}', None, Pear(sort="A", weight=2)),
    ],
)
def test_types_that_can_be_partial_are(kind, text, partial, whole):
    values = values_of(
        Agent(scripted_provider(text, chunk=1), output=Output(kind, mode="prompted")).stream_output("go")
    )
    assert partial is None or partial in values[:-1]
    assert values[-1] == whole


def test_a_frozen_dataclass_has_the_fields_that_are_there():
    text = '{"name": "Bonn", "people": 330000, "rivers": ["Rhein"]}'
    values = values_of(Agent(scripted_provider(text, chunk=1), output=Town).stream_output("go"))
    assert values[-1] == Town("Bonn", 330000, ("Rhein",))
    assert not hasattr(values[0], "people")
    assert values[0].rivers == ()


def test_a_stream_is_read_in_linear_time():
    text = '{"sort": "' + "x" * 20_000 + '", "weight": 1}'
    values = values_of(Agent(scripted_provider(text, chunk=2), output=Pear).stream_output("go"))
    assert len(values) < 1000
    assert values[-1].weight == 1
