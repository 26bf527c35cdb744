"""A yes to other arguments than the model's: asked about again as what they are, and bound to that."""

import asyncio

import pytest
from executor_helpers import Recorder, a_call, run_batch

from toolspeak.data.approvals import Rule
from toolspeak.data.tools import Effects
from toolspeak.errors import ConfigurationError
from toolspeak.execute import BatchContext, Decision, Executor
from toolspeak.execute.calls.secrets import Secrets
from toolspeak.tools import Toolset, tool

CALL = a_call("write", "w", path="a", text="1")


def writer(description="Writes a file.", prefix="file:"):
    @tool(
        name="write",
        description=description,
        effects=lambda path: Effects(writes={f"{prefix}{path}"}),
        preview=lambda path, text: f"{path}: +{text}",
    )
    async def write(path: str, text: str) -> str:
        return f"wrote {text} to {path}"

    return write


class Editor:
    """Puts other arguments into each call, and says yes to what it is shown then."""

    def __init__(self, **arguments):
        self.arguments = arguments
        self.questions = []

    async def __call__(self, request):
        revision = await request.revise({**request.call.arguments, **self.arguments})
        self.questions.append(revision)
        return Decision(True, by="ann", arguments=revision.call.arguments, digest=revision.digest)


def run(*, tools=None, approver=None, recorder=None, calls=(CALL,), **arguments):
    return asyncio.run(
        run_batch(tools or [writer()], list(calls), emit=recorder or Recorder(), approver=approver, **arguments)
    )


def test_the_question_about_other_arguments_has_their_effects_preview_and_digest():
    editor, recorder = Editor(path="b"), Recorder()
    batch = run(approver=editor, recorder=recorder)
    (question,) = editor.questions
    assert (question.effects, question.preview, question.reason) == (
        Effects(writes={"file:b"}),
        "b: +1",
        "writes file:b",
    )
    assert "wrote 1 to b" in batch.results[0].text
    assert "[This call was changed before it ran" in batch.results[0].text
    assert recorder.kinds == [
        "ApprovalRequested",
        "ApprovalRequested",
        "ApprovalDecided",
        "ToolStarted",
        "ToolFinished",
    ]
    first, second, decision, start, _ = recorder.events
    assert (first.call, second.call) == (CALL, question.call)
    assert first.digest != second.digest == decision.digest == question.digest
    assert (decision.arguments, start.changed) == ({"path": "b", "text": "1"}, question.call)
    assert start.effects == question.effects


@pytest.mark.parametrize(
    ("again", "holds"),
    [({}, True), ({"description": "Writes a file, and sends it."}, False), ({"prefix": "disk:"}, False)],
)
def test_a_recorded_yes_holds_while_tool_arguments_and_effects_are_what_was_shown(again, holds):
    recorder = Recorder()
    run(approver=Editor(path="b"), recorder=recorder)
    decision = recorder.events[2]
    yes = Decision(True, arguments=decision.arguments, digest=decision.digest)
    batch = run(tools=[writer(**again)], decisions={"w": yes})
    assert (not batch.pending, [result.status for result in batch.results]) == (holds, ["success"] * holds)
    other = Decision(True, arguments={"path": "c", "text": "1"}, digest=decision.digest)
    assert run(decisions={"w": other}).pending


def test_what_has_other_effects_by_the_time_of_the_yes_is_not_let_run():
    keys = ["file:b"]

    @tool(effects=lambda path: Effects(writes={keys[0]} if path == "b" else set()))
    async def tricky(path: str) -> str:
        return path

    async def moves(request):
        revision = await request.revise({"path": "b"})
        keys[:] = ["file:/etc/passwd"]
        return Decision(True, arguments=revision.call.arguments, digest=revision.digest)

    batch = run(
        tools=[tricky], calls=[a_call("tricky", "w", path="a")], approver=moves, options={"policy": [Rule("escalate")]}
    )
    assert [request.call.id for request in batch.pending] == ["w"]


def test_one_and_true_are_other_arguments():
    arguments = []

    @tool
    async def note(value: bool | int) -> str:
        arguments.append(value)
        return "noted"

    run(tools=[note], calls=[a_call("note", "w", value=1)], approver=Editor(value=True))
    assert arguments[0] is True


def test_arguments_that_do_not_fit_are_told_and_the_question_stays():
    problems = []

    async def clumsy(request):
        for arguments in ({"path": "b"}, {"path": "b", "text": 1}, {**request.call.arguments, "mode": "x"}):
            with pytest.raises(ConfigurationError) as raised_error:
                await request.revise(arguments)
            problems.append(str(raised_error.value))
        return Decision(True)

    batch = run(approver=clumsy)
    assert batch.results[0].text == "wrote 1 to a"
    assert [text.splitlines()[0] for text in problems] == ["the arguments of 'write' do not fit:"] * 3
    assert "text" in problems[0]
    assert "mode" in problems[2]


def test_what_the_policy_refuses_nobody_can_edit_into_a_call():
    async def sly(request):
        with pytest.raises(ConfigurationError, match="the policy refuses this: secrets stay"):
            await request.revise({**request.call.arguments, "path": ".env"})
        return Decision(False)

    policy = [Rule("reject", paths=(".env",), reason="secrets stay")]
    assert run(approver=sly, options={"policy": policy}, tools=[writer(prefix="file:/")]).results[0].code == "rejected"


def test_a_secret_that_is_typed_is_a_placeholder_before_it_is_recorded():
    editor, recorder = Editor(text="key hunter2hunter2"), Recorder()
    executor = Executor(Toolset([writer()]), secrets=Secrets({"KEY": "hunter2hunter2"}))
    batch = asyncio.run(executor.run([CALL], emit=recorder, context=BatchContext("run"), approver=editor))
    assert editor.questions[0].preview == "a: +key {{secret:KEY}}"
    assert "hunter2" not in repr([*recorder.events, batch])
    assert recorder.events[2].arguments == {"path": "a", "text": "key {{secret:KEY}}"}


def test_a_revised_question_can_be_revised_again():
    async def twice(request):
        first = await request.revise({"path": "b", "text": "1"})
        second = await first.revise({"path": "c", "text": "1"})
        return Decision(True, arguments=second.call.arguments, digest=second.digest)

    assert "wrote 1 to c" in run(approver=twice).results[0].text
