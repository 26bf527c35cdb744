"""What people decide in a recorded run, and how it is played: nobody is asked, and the run goes as it went."""

import asyncio
import json
from dataclasses import replace

import pytest
from agent_helpers import OpenProvider, WatchedJournal, note

from toolspeak import Agent, AgentStop, Approval, ConfigurationError, Decision, Effects, tool
from toolspeak.agent import Cassette
from toolspeak.data.approvals import Escalate, Rule
from toolspeak.data.events import ApprovalDecided, ApprovalRequested, ModelAnswered, RunPaused, ToolFinished
from toolspeak.errors import ReplayDiverged
from toolspeak.execute import StandingRules
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn

RAN, LOOKUPS = [], []


def look(path):
    LOOKUPS.append(path)
    return f"{path} would change"


@tool(effects=lambda path: Effects(writes={f"file:{path}"}), preview=look)
def write(path: str) -> str:
    "Writes."
    RAN.append(path)
    return f"wrote {path}"


def turn(*calls):
    return ScriptedTurn("", calls=[ScriptedCall(name, arguments) for name, arguments in calls])


def writing(*paths):
    return turn(*(("write", {"path": path}) for path in paths))


KINDS = ApprovalRequested | ApprovalDecided | ModelAnswered | ToolFinished | RunPaused


def facts(journal):
    """All that does not differ from run to run: of calls made together any may be the first to end."""
    events = [event for event in journal.events if isinstance(event, KINDS)]
    finishes = [replace(event, memory={}) for event in events if isinstance(event, ToolFinished)]
    return [event for event in events if not isinstance(event, ToolFinished)], sorted(finishes, key=str)


def run(cassette, turns, approve, tools=(write, note), **options):
    journal = WatchedJournal()
    agent = Agent(ScriptedProvider(turns), tools, approve=approve, journal=journal, cassette=cassette, **options)
    return agent, agent.run_sync("Go."), journal


@pytest.fixture(autouse=True)
def _nothing_yet():
    RAN.clear()
    LOOKUPS.clear()


async def unexpected_approver(request):
    raise AssertionError("somebody was asked")


class NobodyAtAll:
    async def together(self, requests):
        raise AssertionError("somebody was asked")


async def careful(request):
    match request.call.arguments["path"]:
        case "bad":
            return Decision(False, "not there", by="eve")
        case "moved":
            return Decision(True, "over here", by="eve", arguments={"path": "there"})
        case "shown":
            revision = await request.revise({"path": "seen"})
            return Decision(True, by="eve", arguments=revision.call.arguments, digest=revision.digest)
        case "end":
            return Decision(False, "enough", by="eve", ends_run=True)
        case "stop":
            raise AgentStop("I leave", answer="Stopped.")
    return Decision(True, by="eve")


class Together:
    async def together(self, requests):
        return [await careful(request) for request in requests]


@pytest.mark.parametrize(
    "approver", [(careful, unexpected_approver), (Together(), NobodyAtAll())], ids=["one by one", "together"]
)
@pytest.mark.parametrize("paths", [("a", "bad", "moved"), ("shown", "b"), ("a", "end"), ("stop",)], ids=str)
def test_what_was_decided_is_decided_again_and_nobody_is_asked(tmp_path, paths, approver):
    path, turns = tmp_path / "run.jsonl", [writing(*paths), writing("last"), "Done."]
    _, first, journal = run(Cassette.record(path), turns, approver[0])
    ran, lookups = list(RAN), list(LOOKUPS)
    cassette = Cassette.replay(path)
    _, again, replay_journal = run(cassette, [], approver[1])
    assert facts(replay_journal) == facts(journal)
    assert (again.status, again.answer, list(again.messages)) == (first.status, first.answer, list(first.messages))
    assert (RAN, LOOKUPS, cassette.requests_left) == (ran, lookups, 0)


def test_a_no_is_played_to_whoever_would_say_yes(tmp_path):
    path = tmp_path / "run.jsonl"
    run(Cassette.record(path), [writing("bad"), "Done."], careful)

    async def yes(request):
        return Decision(True)

    _, again, _ = run(Cassette.replay(path), [], yes)
    assert again.messages[2].results[0].code == "rejected"
    with pytest.raises(ReplayDiverged, match=r"it calls write .*of which no result was recorded"):
        run(Cassette.replay(path), [], "all")


def test_a_question_about_another_call_is_told(tmp_path):
    path = tmp_path / "run.jsonl"
    run(Cassette.record(path), [writing("a"), "Done."], careful)
    lines = path.read_text("utf-8").replace('"approval": "call_1_0", "name": "write", "arguments": {"path": "a"}', "X")
    assert "X" in lines
    path.write_text(lines.replace("X", '"approval": "call_1_0", "name": "write", "arguments": {"path": "b"}'), "utf-8")
    with pytest.raises(
        ReplayDiverged, match=r'at the question about the call call_1_0: it was write \{"path": "b"\} and'
    ):
        run(Cassette.replay(path), [], unexpected_approver)


def test_a_question_that_was_not_asked_is_told(tmp_path):
    path = tmp_path / "run.jsonl"

    def refuses(request):
        return Decision(False, "no") if request.call.name == "write" else None

    run(Cassette.record(path), [writing("a"), "Done."], Approval(unexpected_approver, policy=refuses))
    with pytest.raises(ReplayDiverged, match=r"asks whether write \(call_1_0\) may run, which was not asked"):
        run(Cassette.replay(path), [], unexpected_approver)


def test_a_standing_answer_is_in_the_recording_for_whoever_names_none(tmp_path):
    for approve, code in (("all", None), ("none", "rejected")):
        path = tmp_path / approve
        _, first, _ = run(Cassette.record(path), [writing("a"), "Done."], approve)
        assert first.messages[2].results[0].code == code
        _, again, _ = run(Cassette.replay(path), [], unexpected_approver)
        assert list(again.messages) == list(first.messages)


def test_always_holds_for_the_replay_and_not_longer(tmp_path):
    async def always(request):
        return Decision(True, by="eve", always=Rule("approve", tool="write"))

    path, turns, rules = tmp_path / "run.jsonl", [writing("a"), writing("b"), "Done."], StandingRules()
    _, first, journal = run(Cassette.record(path), turns, Approval(always, rules=rules))
    assert len(rules) == 1
    others = StandingRules()
    _, again, replay_journal = run(Cassette.replay(path), [], Approval(unexpected_approver, rules=others))
    assert (facts(replay_journal), list(again.messages)) == (facts(journal), list(first.messages))
    assert len(others) == 0


def test_a_rule_that_is_not_there_any_more_is_not_missed(tmp_path):
    path, rules = tmp_path / "run.jsonl", StandingRules()
    rules.add(Rule("approve", tool="write"))
    _, first, _ = run(Cassette.record(path), [writing("a"), "Done."], Approval(unexpected_approver, rules=rules))
    _, again, _ = run(Cassette.replay(path), [], unexpected_approver)
    assert list(again.messages) == list(first.messages)


def test_secrets_in_what_is_decided_are_placeholders(tmp_path):
    async def tells(request):
        return Decision(False, "the key is hunter-22", by="eve")

    path = tmp_path / "run.jsonl"
    options = {"secrets": {"KEY": "hunter-22"}}
    _, first, _ = run(Cassette.record(path), [writing("to hunter-22"), "Done."], tells, **options)
    assert "hunter-22" not in path.read_text("utf-8")
    _, again, _ = run(Cassette.replay(path), [], unexpected_approver, **options)
    assert list(again.messages) == list(first.messages)


# --- pauses -------------------------------------------------------------------------------------------------------


def paused_and_resumed(cassette, turns, decide, journal):
    """A program that is the same whether it records or plays."""

    async def both():
        agent = Agent(ScriptedProvider(turns), [write], journal=journal, cassette=cassette)
        waiting = await agent.run("Go.")
        assert waiting.status == "awaiting_approval"
        return await agent.resume(waiting, decide(waiting))

    return asyncio.run(both())


def accept_first(waiting):
    return {each.call.id: index == 0 for index, each in enumerate(waiting.requests)}


def test_a_run_that_paused_pauses_again_and_goes_on(tmp_path):
    path, journal, replay_journal = tmp_path / "run.jsonl", WatchedJournal(), WatchedJournal()
    first = paused_and_resumed(Cassette.record(path), [writing("a", "b"), "Done."], accept_first, journal)
    assert RAN == ["a"]
    again = paused_and_resumed(Cassette.replay(path), [], accept_first, replay_journal)
    assert (facts(replay_journal), list(again.messages)) == (facts(journal), list(first.messages))
    assert RAN == ["a"]


def test_another_decision_than_the_one_that_was_recorded_is_told(tmp_path):
    path = tmp_path / "run.jsonl"
    paused_and_resumed(Cassette.record(path), [writing("a", "b"), "Done."], accept_first, WatchedJournal())
    with pytest.raises(ReplayDiverged, match="about the call call_1_1: the answer was no and is yes"):
        paused_and_resumed(
            Cassette.replay(path), [], lambda waiting: dict.fromkeys(waiting.waiting, True), WatchedJournal()
        )


def test_without_pauses_what_was_decided_later_is_decided_at_once(tmp_path):
    path = tmp_path / "run.jsonl"
    first = paused_and_resumed(Cassette.record(path), [writing("a", "b"), "Done."], accept_first, WatchedJournal())
    _, again, _ = run(Cassette.replay(path, pauses=False), [], None, [write])
    assert (again.answer, list(again.messages)) == ("Done.", list(first.messages))


def test_an_approver_that_escalates_does_so_again(tmp_path):
    async def unsure(request):
        return Escalate("who am I to say")

    path = tmp_path / "run.jsonl"
    _, first, journal = run(Cassette.record(path), [writing("a")], unsure)
    assert first.status == "awaiting_approval"
    for pauses in (True, False):  # nothing was decided later
        _, again, replay_journal = run(Cassette.replay(path, pauses=pauses), [], unexpected_approver)
        assert (again.status, facts(replay_journal)) == ("awaiting_approval", facts(journal))


@pytest.mark.parametrize("approve", ["all", "none", careful], ids=["all", "none", "a person"])
def test_another_process_goes_on_recording(tmp_path, approve):
    path, journal = tmp_path / "run.jsonl", WatchedJournal()
    waiting = Agent(ScriptedProvider([writing("a", "bad")]), [write], journal=journal, cassette=Cassette.record(path))
    run_id = waiting.run_sync("Go.").run_id

    on = Cassette.record(path, go_on=True)
    provider = ScriptedProvider([writing("c"), "Done."])
    agent = Agent(provider, [write], journal=journal, approve=approve, cassette=on)
    first = asyncio.run(agent.resume(run_id))
    assert first.answer == "Done."
    assert on.id == Cassette.replay(path).id
    ran = list(RAN)
    _, again, _ = run(Cassette.replay(path, pauses=False), [], None, [write])
    assert (again.answer, list(again.messages), RAN) == ("Done.", list(first.messages), ran)


def test_going_on_needs_the_recording_of_the_same_model(tmp_path):
    with pytest.raises(ConfigurationError, match="the recording cannot be read"):
        Cassette.record(tmp_path / "none", go_on=True)
    path = tmp_path / "run.jsonl"
    run(Cassette.record(path), ["Done."], None)
    with pytest.raises(ConfigurationError, match="records scripted, not open"):
        Agent(OpenProvider(), cassette=Cassette.record(path, go_on=True))
    before = json.loads(path.read_text("utf-8").splitlines()[0])["id"]
    run(Cassette.record(path), ["Done."], None)
    assert Cassette.replay(path).id != before
