"""Which calls a rule fits, a policy of rules, and the rules that are kept."""

import asyncio
from dataclasses import replace

import pytest
from executor_helpers import Recorder, a_call, result_of, results_of, run_batch
from hypothesis import given
from hypothesis import strategies as st

from toolspeak.data.messages import Message, ToolResult
from toolspeak.data.tools import UNDECLARED_EFFECTS, Effects, ToolSpec
from toolspeak.errors import AgentStop, ConfigurationError, FormatError
from toolspeak.execute import ApprovalRequest, BatchContext, Decision, Escalate, Rule, StandingRules
from toolspeak.execute.approval.policy_rules import fitting
from toolspeak.tools import tool

ran = []


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()


@tool(effects=lambda path: Effects(writes={f"file:{path}"}))
async def write(path: str, text: str = "") -> str:
    ran.append(("write", path, text))
    return "wrote"


@tool(effects=lambda path: Effects(reads={f"file:{path}"}))
async def read(path: str) -> str:
    ran.append(("read", path))
    return "read"


@tool
async def shell(command: str) -> str:
    ran.append(("shell", command))
    return "done"


def a_request(name="write", effects=None, earlier=(), **arguments):
    effects = Effects(writes={"file:/w/a.md"}) if effects is None else effects
    return ApprovalRequest(a_call(name, "c", **arguments), ToolSpec(name, "", {}), effects, "", "", "", earlier)


TOUCHES = {
    "one": Effects(writes={"file:/w/a.md"}),
    "two": Effects(writes={"file:/w/a.md"}, reads={"file:/x/.env"}),
    "folder": Effects(writes={"file:/w"}),
    "unsure": UNDECLARED_EFFECTS,
    "up": Effects(writes={"file:/w/../etc/a.md"}),
    "nothing": Effects(),
    "far": Effects(writes={"db:users"}, external=True),
}

PATHS = [
    # patterns, touched, what an approving rule makes of it, what a rejecting one
    (("/w/*",), "one", "approve", "reject"),
    (("file:/w/*",), "one", "approve", "reject"),
    (("*.md",), "one", "approve", "reject"),
    (("/w/*.txt",), "one", None, None),
    (("/w/*",), "two", None, "reject"),
    (("/w/*", ".env"), "two", "approve", "reject"),
    ((".env",), "two", None, "reject"),
    (("/w/secret/*",), "folder", None, "escalate"),
    (("/w/*",), "unsure", None, "escalate"),
    (("*",), "unsure", None, "reject"),
    (("/w/*",), "up", None, "reject"),
    (("*",), "nothing", None, None),
    (("db:*",), "far", "approve", "reject"),
]


@pytest.mark.parametrize(("paths", "place", "approving", "rejecting"), PATHS)
def test_paths(paths, place, approving, rejecting):
    request = a_request(effects=TOUCHES[place])
    assert fitting(Rule("approve", paths=paths), request) == approving
    assert fitting(Rule("reject", paths=paths), request) == rejecting


@given(
    st.sets(st.sampled_from(["file:/w/a", "file:/w/b/c", "file:/x", "db:t", "*", "file:"]), min_size=1), st.booleans()
)
def test_an_approving_rule_never_lets_pass_what_lies_outside_its_paths(keys, declared: bool):
    effects = Effects(writes=keys, declared=declared)
    inside = all(key.startswith("file:/w/") for key in keys)
    assert (fitting(Rule("approve", paths=("/w/*",)), a_request(effects=effects)) is not None) == (inside and declared)


KINDS = [
    ("reads", Effects(reads={"a"}), True),
    ("reads", Effects(reads={"a"}, external=True), False),
    ("reads", UNDECLARED_EFFECTS, False),
    ("writes", Effects(writes={"a"}), True),
    ("writes", Effects(reads={"a"}), False),
    ("external", Effects(external=True), True),
    ("undeclared", UNDECLARED_EFFECTS, True),
    ("undeclared", Effects(writes={"*"}), False),
    ("destructive", Effects(writes={"a"}), True),
    ("destructive", Effects(writes={"a"}, destructive=False), False),
]


@pytest.mark.parametrize(("kind", "effects", "fits"), KINDS)
def test_effects(kind, effects, fits):
    assert (fitting(Rule("reject", effects=kind), a_request(effects=effects)) is not None) == fits


def test_what_does_not_say_what_it_writes_is_not_approved_as_a_write():
    assert fitting(Rule("approve", effects="writes"), a_request(effects=UNDECLARED_EFFECTS)) is None
    assert fitting(Rule("reject", effects="writes"), a_request(effects=UNDECLARED_EFFECTS)) == "reject"


ARGUMENTS = [
    ({"command": "git *"}, {"command": "git status"}, True),
    ({"command": "git *"}, {"command": "rm -r git "}, False),
    ({"count": 1}, {"count": 1}, True),
    ({"count": 1}, {"count": True}, False),
    ({"count": "1"}, {"count": 1}, False),
    ({"gone": "*"}, {}, False),
]


@pytest.mark.parametrize(("rule_arguments", "arguments", "fits"), ARGUMENTS)
def test_arguments(rule_arguments, arguments, fits):
    assert (fitting(Rule("approve", arguments=rule_arguments), a_request(**arguments)) is not None) == fits


def test_what_came_before():
    rule = Rule("reject", tool="write", after="fetch*")
    assert fitting(rule, a_request()) is None
    assert fitting(rule, a_request(earlier=(a_call("fetch_page"),))) == "reject"

    class State:
        run_id, step, metadata, sources, given_urls = "r", 1, {}, frozenset(), None

        def __init__(self, code):
            result = ToolResult("c1", "fetch_page", "failure" if code else "success", (), code)
            self.messages = [Message("assistant", (a_call("fetch_page", "later"),)), Message("tool", (result,))]

    assert fitting(rule, replace(a_request(), state=State(None))) == "reject"
    assert fitting(rule, replace(a_request(), state=State("exception"))) == "reject"
    assert fitting(rule, replace(a_request(), state=State("blocked"))) is None


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (Rule("approve", paths=("src/*",)), "does not say where it starts"),
        (Rule("modify"), "go together"),
        (Rule("approve", change={"a": 1}), "go together"),
    ],
)
def test_rules_that_make_no_sense_are_refused(rule, problem):
    with pytest.raises(ConfigurationError, match=problem):
        results_of([read], [], options={"policy": [rule]})


def judge(policy, call, *, tools=(write, read, shell), approver=None, **arguments):
    recorder = Recorder()
    try:
        batch = asyncio.run(
            run_batch(tools, [call], approver=approver, emit=recorder, options={"policy": policy}, **arguments)
        )
    except AgentStop as stop:
        batch = stop.batch
    return batch, recorder


def test_the_first_rule_that_fits_decides():
    rules = [
        Rule("reject", paths=(".env",), reason="secrets"),
        Rule("approve", "write", ("/w/*",)),
        Rule("escalate", "read"),
    ]
    batch, recorder = judge(rules, a_call("write", path="/w/x"))
    assert (batch.results[0].status, recorder.kinds) == ("success", ["ApprovalDecided", "ToolStarted", "ToolFinished"])
    batch, _ = judge(rules, a_call("write", path="/w/.env"))
    assert (batch.results[0].code, batch.results[0].text) == ("rejected", "the call was rejected: secrets")
    batch, _ = judge(rules, a_call("read", path="/w/x"))
    assert batch.pending[0].reason == "a rule leaves it to a person"
    batch, _ = judge(rules, a_call("write", path="/other"))
    assert batch.pending[0].reason == "writes file:/other"
    assert ran == [("write", "/w/x", "")]


def test_a_rule_changes_the_arguments_and_the_model_is_told():
    batch, recorder = judge([Rule("modify", "write", change={"text": "safe"})], a_call("write", path="a", text="wild"))
    assert ran == [("write", "a", "safe")]
    assert 'it ran with the arguments {"path": "a", "text": "safe"}' in batch.results[0].text
    assert recorder.events[0].arguments == recorder.events[1].changed.arguments == {"path": "a", "text": "safe"}


def test_changed_arguments_are_validated():
    batch, _ = judge([Rule("modify", "write", change={"text": 5})], a_call("write", path="a"))
    assert batch.results[0].code == "invalid_arguments"
    assert ran == []


def test_a_decision_that_ends_the_run_lets_nothing_run():
    recorder = Recorder()
    calls = [a_call("read", "r", path="a"), a_call("shell", "s", command="rm"), a_call("read", "t", path="b")]
    options = {"policy": [Rule("terminate", "shell", reason="enough")]}
    with pytest.raises(AgentStop) as raised_stop:
        asyncio.run(run_batch([read, shell], calls, emit=recorder, options=options))
    assert [result.code for result in raised_stop.value.batch.results] == ["skipped", "rejected", "skipped"]
    assert recorder.kinds == ["StopRequested", *["ToolFinished"] * 3]
    assert (recorder.events[0].reason, recorder.events[0].message) == ("terminated", "enough")
    assert ran == []


@pytest.mark.parametrize("policy", [lambda request: 1 / 0, lambda request: True, lambda request: "approve"])
def test_a_policy_that_fails_lets_a_person_decide(policy):
    batch, _ = judge(policy, a_call("read", path="a"))
    assert "the policy" in batch.pending[0].reason
    assert ran == []


def test_a_policy_sees_what_is_to_run_before_and_the_run():
    requests = []

    def policy(request):
        requests.append(([call.id for call in request.earlier], request.reason, request.digest != ""))
        return Decision(False) if request.call.id == "b" else Decision(True)

    calls = [a_call("read", name, path=name) for name in "abc"]
    results = results_of([read], calls, options={"policy": policy}, context=BatchContext("r"))
    assert [result.code for result in results] == [None, "rejected", None]
    assert requests == [([], "", True), (["a"], "", True), (["a"], "", True)]


def test_always_is_kept_listed_and_revoked():
    rules, call_ids = StandingRules(), []

    async def person(request):
        call_ids.append(request.call.id)
        return Decision(True, by="ann", always=request.always())

    def once(call_id, tools=(write,)):
        call = a_call("write", call_id, path="a")
        return result_of(tools, call, approver=person, options={"rules": rules})

    once("1")
    once("2")
    (standing_rule,) = rules
    assert (call_ids, standing_rule.by, standing_rule.rule.tool) == (["1"], "ann", "write")
    once("3", [replace(write, spec=replace(write.spec, description="another tool by now"))])
    assert call_ids == ["1", "3"]
    assert rules.revoke(standing_rule.id) == standing_rule
    once("4")
    assert call_ids == ["1", "3", "4"]
    with pytest.raises(ConfigurationError, match="there is no rule '1'; the rules are"):
        rules.revoke("1")


def test_a_policy_that_refuses_goes_before_a_kept_rule():
    rules = StandingRules()
    rules.add(Rule("approve", "write"))
    policy = [Rule("reject", "write", (".env",))]
    assert (
        result_of([write], a_call("write", path="/.env"), options={"policy": policy, "rules": rules}).code == "rejected"
    )
    assert result_of([write], a_call("write", path="/a"), approver=None, options={"rules": rules}).status == "success"


def test_kept_rules_survive_as_text():
    texts = []
    rules = StandingRules(on_change=lambda rules: texts.append(rules.dumps()))
    rules.add(Rule("approve", "write", ("/w/*",), arguments={"a": 1}), "ann")
    rules.add(Rule("reject", "shell"))
    rules.add(Rule("reject", "shell"))
    again = StandingRules.loads(texts[-1])
    assert (list(again), len(texts)) == (list(rules), 2)
    assert again.add(Rule("approve", "x")).id == "3"
    with pytest.raises(FormatError):
        StandingRules.loads('{"format":1,"type":"Decision","approved":true}')


def test_an_approver_may_leave_it_to_somebody_else():
    async def unsure(request):
        return Escalate() if request.call.id == "b" else Decision(True)

    recorder = Recorder()
    calls = [a_call("write", "a", path="1"), a_call("write", "b", path="2")]
    batch = asyncio.run(run_batch([write], calls, approver=unsure, emit=recorder))
    assert [request.call.id for request in batch.pending] == ["b"]
    assert recorder.kinds == ["ApprovalRequested", "ApprovalDecided", "ApprovalRequested"]
    assert ran == []


class Panel:
    """Is shown a batch's requests together."""

    def __init__(self, *answers):
        self.answers, self.batches = answers, []

    async def together(self, requests):
        self.batches.append([request.call.id for request in requests])
        return self.answers


def test_the_approvals_of_a_batch_are_given_together():
    panel, recorder = Panel(Decision(True), Decision(False, "no")), Recorder()
    calls = [a_call("write", "a", path="1"), a_call("read", "r", path="3"), a_call("write", "b", path="2")]
    results = results_of([write, read], calls, approver=panel, emit=recorder)
    assert panel.batches == [["a", "b"]]
    assert [result.code for result in results] == [None, None, "rejected"]
    assert recorder.kinds[:4] == ["ApprovalRequested"] * 2 + ["ApprovalDecided"] * 2
    with pytest.raises(ConfigurationError, match="2 were asked, 1 answered"):
        results_of([write, read], calls, approver=Panel(Decision(True)))
