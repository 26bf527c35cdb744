"""Values that are made by the thousand behave like every other frozen dataclass."""

import copy
import inspect
import pickle
from dataclasses import MISSING, field, fields, replace

import pytest

from toolspeak.data import deltas, events, messages
from toolspeak.data.values import no_extra, quick

QUICK = [
    messages.TextPart,
    messages.JsonPart,
    messages.ToolCall,
    messages.ToolResult,
    messages.Message,
    messages.Usage,
    events.ModelAsked,
    events.ModelAnswered,
    events.ToolStarted,
    events.ToolFinished,
    events.Record,
    deltas.TextDelta,
    deltas.CallStarted,
    deltas.ArgumentsDelta,
    deltas.CallCompleted,
    deltas.BatchEnded,
    deltas.TurnEnded,
]


@pytest.mark.parametrize("cls", QUICK)
def test_a_quick_value_takes_what_its_fields_say(cls):
    parameters = inspect.signature(cls).parameters
    assert list(parameters) == [each.name for each in fields(cls)]
    for each in fields(cls):
        is_required = each.default is MISSING and each.default_factory is MISSING
        assert (parameters[each.name].default is inspect.Parameter.empty) == is_required


@pytest.mark.parametrize("cls", QUICK)
def test_what_is_not_given_is_what_the_field_says(cls):
    required_fields = [each for each in fields(cls) if each.default is MISSING and each.default_factory is MISSING]
    instance = cls(*required_fields)
    for each in fields(cls):
        if each.default_factory is no_extra:
            assert getattr(instance, each.name) is no_extra()
        elif each not in required_fields:
            assert getattr(instance, each.name) == each.default


@pytest.mark.parametrize("cls", QUICK)
def test_a_quick_value_is_frozen_and_can_be_copied(cls):
    value = cls(*(f"value of {each.name}" for each in fields(cls)))
    assert [getattr(value, each.name) for each in fields(cls)] == [f"value of {each.name}" for each in fields(cls)]
    first = fields(cls)[0].name
    with pytest.raises(AttributeError, match="immutable"):
        setattr(value, first, "another")
    assert copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value
    other_value = replace(value, **{first: "another"})
    assert other_value != value
    assert getattr(other_value, first) == "another"


def test_a_missing_argument_is_named():
    with pytest.raises(TypeError, match="Missing required argument 'arguments'"):
        messages.ToolCall("1", "f")


def test_a_factory_makes_something_anew_for_each_value():
    @quick()
    class Two:
        name: str
        numbers: list[int] = field(default_factory=list)

    one, other = Two("one"), Two("other")
    one.numbers.append(1)
    assert (one.numbers, other.numbers) == ([1], [])
    assert Two("given", one.numbers).numbers is one.numbers


@quick()
class Bound:
    """It checks itself, and is called."""

    low: int
    high: int = 9

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"{self.low} is more than {self.high}")

    def __call__(self, number: int) -> bool:
        return self.low <= number <= self.high

    def __hash__(self) -> int:
        return 7


def test_what_its_author_wrote_goes_on():
    bound = Bound(3)
    assert (bound(2), bound(3), hash(bound)) == (False, True, 7)
    with pytest.raises(ValueError, match="12 is more than 9"):
        Bound(12)
    with pytest.raises(ValueError, match="3 is more than 1"):
        replace(bound, high=1)


@quick()
class Plain:
    low: int


def test_a_value_is_documented_as_it_was_or_by_its_name():
    assert (Bound.__doc__, Plain.__doc__) == ("It checks itself, and is called.", "Plain")


@quick(kw_only=True)
class Pair:
    first: int = 1
    second: int


def test_fields_by_name_alone():
    assert replace(Pair(second=2), first=3) == Pair(first=3, second=2)
    with pytest.raises(TypeError):
        Pair(1, 2)  # pyright: ignore[reportCallIssue]
