"""The tool `todo` in a run: the list is the arguments of its last call, and the model gets the counts."""

import pytest

from toolspeak import Agent
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.tools.builtin import todo_tool


def item(text, state="pending"):
    return {"text": text, "state": state}


def result_of(arguments):
    model = ScriptedProvider([ScriptedTurn("", calls=[ScriptedCall("todo", arguments)]), "Done."])
    result = Agent(model, [todo_tool()]).run_sync("x")
    assert result.status == "answered", "it asks nobody"
    return result.steps[0].executions[0].result


def test_the_model_reads_how_far_it_is():
    items = [item("a", "completed"), item("b", "in_progress"), item("c"), item("d")]
    assert result_of({"items": items}).text == "4 items: 1 completed, 1 in progress, 2 pending."
    assert result_of({"todos": items[:1]}).text == "1 items: 1 completed, 0 in progress, 0 pending."
    assert result_of({"items": []}).text == "0 items: 0 completed, 0 in progress, 0 pending."


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"items": [item(" ")]}, "'items[0].text' is empty: say what is to do."),
        ({"items": [item("a"), item("x" * 501)]}, "'items[1].text' has 501 characters: give at most 500."),
        ({"items": [item("a")] * 101}, "'items' has 101 items: give at most 100."),
        ({"items": [item("a", "done")]}, 'items[0].state: expected one of "pending", "in_progress", "completed"'),
        ({"items": "a, b"}, "items: expected"),
        ({}, "items"),
    ],
)
def test_a_list_that_cannot_be_shown_is_an_error_that_names_the_place(arguments, problem):
    result = result_of(arguments)
    assert result.status == "failure"
    assert problem in result.text
