"""Runs recorded in a file and played again: the same to the last record, without a model and without tools."""

import json
from dataclasses import replace

import pytest
from agent_helpers import WatchedJournal, add, calling

from toolspeak import Agent, AgentStop, ConfigurationError, Effects, Interceptor, ProviderError, ToolError, tool
from toolspeak.agent import Cassette
from toolspeak.data.events import ModelAnswered, ToolFinished
from toolspeak.data.messages import Usage
from toolspeak.errors import ReplayDiverged
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.tools import Toolset

RAN = []


@tool(effects=lambda path: Effects(writes={f"note:{path}"}))
def note(path: str) -> str:
    "Writes a note."
    RAN.append(path)
    return f"wrote {path}"


@tool(read_only=True)
async def look(place: str) -> dict[str, list[int]]:
    "Looks."
    RAN.append(place)
    if place == "nowhere":
        raise ToolError("there is nothing")
    if place == "end":
        raise AgentStop("that was the end", answer="The end.")
    return {"seen": [1, 2, len(place)]}


TOOLS = Toolset([note, look, add])
MANY = [
    ("look", {"place": "here"}),
    ("look", {"place": "nowhere"}),
    ("note", {"path": "ä"}),
    ("unknown", {}),
    ("add", {"a": "no"}),
    ("add", {"a": 1, "b": 2}),
]


def as_text(*calls, dialect="cogency-json", **more):
    return ScriptedTurn(calling(dialect, *calls, tools=TOOLS, before="I look. "), chunk=[3, 5], **more)


def natively(*calls, **more):
    return ScriptedTurn("I look.", calls=[ScriptedCall(*call) for call in calls], chunk=4, **more)


MAKES = {"native": natively, "auto": as_text, "tool-call": lambda *calls: as_text(calls[0], dialect="tool-call")}


def run(cassette, provider, tools=TOOLS, task="Go.", **options):
    journal = WatchedJournal()
    options = {"approve": "all", **options}
    agent = Agent(provider, tools, journal=journal, cassette=cassette, **options)
    return agent.run_sync(task), journal


def facts(journal):
    """What was recorded, but for ids and times; and that order is not the order of concurrent calls."""
    kinds = [event for event in journal.events if isinstance(event, ModelAnswered | ToolFinished)]
    answers = [event for event in kinds if isinstance(event, ModelAnswered)]
    return answers, sorted((event.result.call_id, event.result) for event in kinds if isinstance(event, ToolFinished))


def record_run(tmp_path, turns, **options):
    path = tmp_path / "run.jsonl"
    result, journal = run(Cassette.record(path), ScriptedProvider(turns), **options)
    return path, result, journal


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@pytest.mark.parametrize("dialect", MAKES)
def test_a_replay_is_the_run_that_was_recorded(tmp_path, dialect):
    make = MAKES[dialect]
    turns = [make(*MANY), make(MANY[0]), ScriptedTurn("Done.", reasoning="hm", usage=Usage(5, 2, 1, 1))]
    path, first, journal = record_run(tmp_path, turns, dialect=dialect)
    ran = sorted(RAN)
    assert (first.answer, bool(ran)) == ("Done.", True)
    cassette = Cassette.replay(path)
    again, replay_journal = run(cassette, "openai:no-key-and-no-network", dialect=dialect)
    assert sorted(RAN) == ran
    assert again.answer == "Done."
    assert facts(replay_journal) == facts(journal)
    assert list(again.messages) == list(first.messages)
    assert cassette.requests_left == 0


def test_an_error_of_the_provider_is_played_too(tmp_path):
    path = tmp_path / "run.jsonl"
    error = ProviderError("too many", status=429, retryable=True, code="rate_limited", retry_after=2.0)
    with pytest.raises(ProviderError):
        run(Cassette.record(path), ScriptedProvider([ScriptedTurn("half", error=error)]))
    with pytest.raises(ProviderError, match="too many") as raised_error:
        run(Cassette.replay(path), "any")
    assert (raised_error.value.status, raised_error.value.code, raised_error.value.retry_after) == (
        429,
        "rate_limited",
        2.0,
    )
    assert raised_error.value.result.status == "failed"


def test_a_tool_that_ends_the_run_ends_it_again(tmp_path):
    path, first, _ = record_run(tmp_path, [natively(("look", {"place": "end"}))])
    again, _ = run(Cassette.replay(path), "any")
    assert (
        (again.status, again.answer, again.reason)
        == (first.status, "The end.", "stopped")
        == (
            "answered",
            first.answer,
            first.reason,
        )
    )


def test_interceptors_act_once_on_a_result(tmp_path):
    class Shout(Interceptor):
        async def around(self, call, proceed, context):
            result = await proceed(call)
            return replace(result, content=(*result.content, *result.content))

    turns = [natively(("add", {"a": 1, "b": 2})), "3"]
    path, first, _ = record_run(tmp_path, turns, interceptors=[Shout()])
    again, _ = run(Cassette.replay(path), "any", interceptors=[Shout()])
    assert list(again.messages) == list(first.messages)


def test_a_read_that_was_remembered_is_played_as_that(tmp_path):
    files = {"a": "1"}

    @tool(effects=lambda path: Effects(reads={f"file:{path}"}, version=files[path]))
    def read(path: str) -> str:
        "Reads."
        RAN.append(path)
        return files[path]

    calls = [natively(("read", {"path": "a"})), natively(("read", {"path": "a"})), "Done."]
    path, first, _ = record_run(tmp_path, calls, tools=[read])
    assert RAN == ["a"]
    files["a"] = "2"
    again, _ = run(Cassette.replay(path), "any", tools=[read])
    assert (RAN, list(again.messages)) == (["a"], list(first.messages))


def test_a_file_of_lines_that_a_person_can_read(tmp_path):
    path, _, _ = record_run(tmp_path, [natively(("note", {"path": "ä"})), "Done."])
    head, turn, result, last = map(json.loads, path.read_text("utf-8").splitlines())
    assert (head["toolspeak-cassette"], head["provider"]) == (1, "scripted")
    assert turn["asked"]["messages"][-1]["parts"] == [{"type": "TextPart", "text": "Go."}]
    assert [tool["name"] for tool in turn["asked"]["tools"]] == ["note", "look", "add"]
    assert turn["answer"][:2] == ["I lo", "ok."]
    assert (result["name"], result["arguments"], result["result"]["status"]) == ("note", {"path": "ä"}, "success")
    assert "ä" in path.read_text("utf-8")
    assert (last["turn"], last["asked"]["same"], "tools" in last["asked"]) == (2, 1, False)


# --- where a run leaves it ----------------------------------------------------------------------------------------

TURNS = [natively(("add", {"a": 1, "b": 2})), natively(("note", {"path": "x"})), "Done."]


def test_another_task_is_told_with_a_diff(tmp_path):
    path, _, _ = record_run(tmp_path, TURNS, task="Add\none and two.")
    with pytest.raises(ReplayDiverged) as raised_error:
        run(Cassette.replay(path), "any", task="Add\none and three.")
    message = str(raised_error.value)
    assert f"left the recording {path} at model request 1 of 3" in message
    assert "record the run again" in message
    assert "different: messages" in message
    assert "-one and two.\n+one and three." in message


def test_changed_tools_are_named(tmp_path):
    path, _, _ = record_run(tmp_path, TURNS)
    with pytest.raises(ReplayDiverged, match=r"request 1 of 3(.|\n)*different: tools(.|\n)*-tool look: Looks\."):
        run(Cassette.replay(path), "any", tools=[note, add])
    assert RAN == ["x"]


def test_another_dialect_is_named(tmp_path):
    path, _, _ = record_run(tmp_path, TURNS)
    with pytest.raises(ReplayDiverged, match="calls were the API's own and are written in text"):
        run(Cassette.replay(path), "any", dialect="hermes")


def test_another_result_is_found_at_the_next_request(tmp_path):
    path, _, _ = record_run(tmp_path, TURNS)
    lines = path.read_text("utf-8").replace('"value": 3', '"value": 4', 1)
    path.write_text(lines, "utf-8")
    with pytest.raises(ReplayDiverged, match=r"request 2 of 3"):
        run(Cassette.replay(path), "any")


def test_a_result_that_was_edited_wherever_it_stands_is_played(tmp_path):
    path, _, _ = record_run(tmp_path, [natively(("look", {"place": "here"})), "Done."])
    path.write_text(path.read_text("utf-8").replace("[1, 2, 4]", "[9, 2, 4]"), "utf-8")
    result, _ = run(Cassette.replay(path), "any")
    assert result.answer == "Done."
    assert result.messages[-2].results[0].structured == {"seen": [9, 2, 4]}


def test_a_call_that_was_not_recorded_is_not_run(tmp_path):
    path, _, _ = record_run(tmp_path, TURNS, approve="none")
    with pytest.raises(ReplayDiverged, match=r"it calls note \(\w+\), of which no result was recorded"):
        run(Cassette.replay(path), "any")
    assert RAN == []


def test_a_run_that_continues_past_the_recording_says_so(tmp_path):
    path, _, _ = record_run(tmp_path, TURNS)
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-1]), "utf-8")
    with pytest.raises(ReplayDiverged, match="it holds 2 model requests, and one more was asked"):
        run(Cassette.replay(path), "any")


def test_what_is_left_of_it_is_counted(tmp_path):
    path, _, _ = record_run(tmp_path, TURNS)
    lines = path.read_text("utf-8").splitlines(keepends=True)
    ends = json.loads(lines[1]) | {"answer": ["Early.", {"type": "TurnEnded", "finish": "stop"}]}
    path.write_text("".join([lines[0], json.dumps(ends) + "\n", *lines[2:]]), "utf-8")
    cassette = Cassette.replay(path)
    assert (run(cassette, "any")[0].answer, cassette.requests_left) == ("Early.", 2)


# --- secrets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [natively, as_text])
def test_no_secret_is_recorded(tmp_path, make):
    key = "s3cr3t\"k'ey"

    @tool(read_only=True)
    def tell() -> str:
        "Knows it."
        return f"the key is {key}"

    turns = [make(("tell", {})), make(("look", {"place": f"at {key}"})), ScriptedTurn(f"It is {key}.", chunk=2)]
    options = {"secrets": {"KEY": key}, "tools": [tell, look]}
    path = tmp_path / "run.jsonl"
    first, _ = run(Cassette.record(path), ScriptedProvider(turns), **options)
    text = path.read_text("utf-8")
    assert key not in text
    assert json.dumps(key)[1:-1] not in text
    assert "{{secret:KEY}}" in text
    again, _ = run(Cassette.replay(path), "any", **options)
    assert (again.answer, list(again.messages)) == (first.answer, list(first.messages))


# --- files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1: is not JSON"),
        ("{}", "is no recording"),
        ('{"toolspeak-cassette": 9}', "is of version 9"),
        ('{"toolspeak-cassette": 1}', "line 1: names no provider"),
        ('{"toolspeak-cassette": 1, "provider": "p", "capabilities": {}}\n{"turn": 1}', "line 2: is no line"),
        ('{"toolspeak-cassette": 1, "provider": "p", "capabilities": {}}\n[]', "line 2: is no line"),
    ],
)
def test_a_file_that_is_no_recording_says_where(tmp_path, text, problem):
    (tmp_path / "x").write_text(text)
    with pytest.raises(ConfigurationError, match=problem):
        Cassette.replay(tmp_path / "x")


def test_another_file_is_not_written_over(tmp_path):
    (tmp_path / "x").write_text("my notes")
    with pytest.raises(ConfigurationError, match="holds something else than a recording"):
        Cassette.record(tmp_path / "x")
    path, _, _ = record_run(tmp_path, TURNS)
    again, _, _ = record_run(tmp_path, TURNS)
    assert path == again
    assert run(Cassette.replay(path), "any")[0].answer == "Done."


def test_one_cassette_records_one_agent(tmp_path):
    cassette = Cassette.record(tmp_path / "x")
    Agent(ScriptedProvider([]), cassette=cassette)
    with pytest.raises(ConfigurationError, match="a cassette of its own"):
        Agent(ScriptedProvider([]), cassette=cassette)


def test_a_turn_that_was_cut_off_cannot_be_played_to_its_end(tmp_path):
    path, _, _ = record_run(tmp_path, ["Done."])
    text = path.read_text("utf-8")
    turn = json.loads(text.splitlines()[1])
    path.write_text(text.splitlines()[0] + "\n" + json.dumps(turn | {"answer": turn["answer"][:-1]}), "utf-8")
    with pytest.raises(ReplayDiverged, match="breaks off in the answer to model request 1"):
        run(Cassette.replay(path), "any")
