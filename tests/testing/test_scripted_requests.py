"""What a scripted model was asked, and failures that show it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from toolspeak import Agent, ToolError, tool
from toolspeak.testing import (
    ScriptedCall,
    ScriptedProvider,
    ScriptedTurn,
    assert_played,
    assert_request,
    scripted_request,
)

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "testing.md"


@tool(read_only=True)
def size(of: str) -> dict[str, int]:
    "Measures."
    if of == "?":
        raise ToolError("name a thing")
    return {"size": len(of)}


CALLS = [ScriptedCall("size", {"of": "ab"}), ScriptedCall("size", {"of": "?"})]
BLOCK = '<execute>\n[{"name": "size", "args": {"of": "ab"}}]\n</execute>'


def play(*turns):
    provider = ScriptedProvider(list(turns))
    Agent(provider, [size], instructions="Measure well.").run_sync("How long?")
    return provider


def test_native_results_are_one_text_each():
    provider = play(ScriptedTurn("", calls=CALLS), "2")
    assert scripted_request(provider, 0).results == ()
    assert scripted_request(provider).results == ('{"size": 2}', "name a thing")
    assert scripted_request(provider).tools == ("size",)
    assert_request(provider, 1, user="How long?", system="Measure", results=["2", "name"], tools=["size"])
    assert_played(provider)


def test_in_a_dialect_results_are_text():
    provider = play(BLOCK, "2")
    assert scripted_request(provider).tools == ()
    (results,) = scripted_request(provider).results
    assert "size" in results
    assert_request(provider, 0, system="size", user="How long?", results=[], tools=[])
    assert_request(provider, 1, results=["2"])


@pytest.mark.parametrize(
    ("expectations", "problem"),
    [
        ({"user": "How wide?"}, "request 1 to scripted: 'How wide?' is not in its user message"),
        ({"system": "Measure badly"}, "is not in its system message"),
        ({"results": ["2"]}, "it has 2 results, not 1"),
        ({"results": ["2", "3"]}, "'3' is not in its result 1, 'name a thing'"),
        ({"tools": ["weigh"]}, "its tools are ['size'], not ['weigh']"),
    ],
)
def test_a_failure_shows_what_was_asked(expectations, problem):
    provider = play(ScriptedTurn("Hm.", calls=CALLS), "2")
    with pytest.raises(AssertionError) as raised_error:
        assert_request(provider, **expectations)
    text = str(raised_error.value)
    assert problem in text
    assert "tools: size\n[system] Measure well." in text
    assert "[assistant] Hm.\ncalls size\ncalls size" in text


def test_requests_that_were_not_made_and_turns_that_were_not_asked_for():
    provider = play("2", "3")
    with pytest.raises(AssertionError, match="was asked 1 times: there is no request 1"):
        scripted_request(provider, 1)
    with pytest.raises(AssertionError, match="1 turns are left"):
        assert_played(provider)


def test_the_page_runs(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 4
    command = [sys.executable, "-W", "error", "-c", "\n".join(blocks)]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "apples.jsonl").exists()
