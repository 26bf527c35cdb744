"""A model that changes its dialect in mid-conversation is followed, and whoever watches is told."""

import io

import pytest
from agent_helpers import TOOLS, assert_pairs, calling, play
from rich.console import Console

from toolspeak.data.events import ModelAnswered
from toolspeak.dialects import get_dialect
from toolspeak.ui import Renderer

DRIFT = ("hermes", "qwen3-coder", "harmony")
TURNS = [*(calling(name, ("add", {"a": i, "b": 1})) for i, name in enumerate(DRIFT)), "done"]


@pytest.mark.parametrize(
    ("dialect", "reported_changes"),
    [
        (get_dialect("auto", model="Qwen/Qwen3-8B"), [(), ("qwen3-coder",), ("harmony",), ()]),
        (get_dialect("auto"), [("hermes",), ("qwen3-coder",), ("harmony",), ()]),
        ("auto", [("hermes",), ("qwen3-coder",), ("harmony",), ()]),
        (get_dialect("auto", model="openai/gpt-oss-20b"), [("hermes",), ("qwen3-coder",), (), ()]),
    ],
    ids=["hermes", "open", "told cogency-json", "harmony"],
)
def test_every_call_runs_and_each_change_is_in_the_record(dialect, reported_changes):
    result, journal, provider = play(TURNS, tools=TOOLS, dialect=dialect)
    assert result.answer == "done"
    assert [call.content[0].value for call in journal.results()] == [1, 2, 3]
    assert [event.notes for event in journal.all(ModelAnswered)] == [
        tuple(f"dialect:{name}" for name in names) for names in reported_changes
    ]
    assert_pairs(result.messages)
    # What the model reads of its own turns stays in one dialect.
    texts = [message.text for message in provider.requests[-1].messages if message.role == "assistant"]
    expected_dialect = get_dialect("cogency-json") if dialect == "auto" else dialect.renderer
    assert texts == [calling(expected_dialect.name, ("add", {"a": i, "b": 1})) for i in range(3)]


def test_whoever_watches_is_told():
    console = Console(file=io.StringIO(), width=200)
    show = Renderer(console).show
    parser = get_dialect("auto", model="Qwen/Qwen3-8B").parser(TOOLS.specs)
    for delta in (*parser.feed(TURNS[1]), *parser.close("stop")):
        show(delta)
    assert "! not in the model's own dialect, but in qwen3-coder" in console.file.getvalue()
    assert "leniently" not in console.file.getvalue()
