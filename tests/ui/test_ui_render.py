from __future__ import annotations

import asyncio
import io
import re
import time

import pytest

from toolspeak import Agent, tool
from toolspeak.agent.recording.recorder import StreamItem
from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallIgnored,
    CallMalformed,
    CallStarted,
    ForgedResults,
    ReasoningDelta,
    TextDelta,
    ToolProgress,
    TurnEnded,
)
from toolspeak.data.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    LimitReached,
    Limits,
    ModelAnswered,
    ModelAsked,
    Record,
    RetryScheduled,
    RunFinished,
    RunPaused,
    RunStarted,
    ToolFinished,
    ToolStarted,
    UnknownEvent,
)
from toolspeak.data.messages import JsonPart, MalformedCall, Message, TextPart, ToolCall, ToolResult, failure
from toolspeak.data.tools import UNDECLARED_EFFECTS
from toolspeak.execute import ApprovalRequest, Decision
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.ui import AfterDisplayApprover, AnnouncingApprover, Renderer, make_console, summary, watch

DIFF = "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n"
CALL = ToolCall("call_1_0", "read", {"path": "a"})


def record(event: Event) -> Record:
    return Record(event, "run", 0, 1, 0.0)


def model_answer(*calls: ToolCall | MalformedCall, finish="stop") -> Record:
    return record(ModelAnswered(Message("assistant", calls), finish))


def output_of(*items: StreamItem) -> str:
    stream = io.StringIO()
    renderer = Renderer(make_console(stream))
    for item in items:
        renderer.show(item)
    renderer.end_line()
    return stream.getvalue()


def test_text_is_written_through_as_it_comes():
    stream = io.StringIO()
    renderer = Renderer(make_console(stream))
    snapshots = []
    for piece in ("\n\nHel", "lo ", " wor", "ld\n", "\n  indented [bold]x[/bold] :smile: ", "x" * 300):
        renderer.show(TextDelta(piece))
        snapshots.append(stream.getvalue())
    assert snapshots[0] == "Hel"
    assert snapshots[1] == "Hello "
    assert snapshots[-1] == "Hello  world\n\n  indented [bold]x[/bold] :smile: " + "x" * 300


def test_calls_with_their_arguments():
    assert output_of(
        TextDelta("I look."),
        CallStarted(0, "read"),
        ArgumentsDelta(0, '{"path": "a"}'),
        CallCompleted(0, "read", {"path": "a"}, notes=("arguments_key:args",)),
        CallStarted(1, "write"),
        CallCompleted(1, "write", {"path": "b", "content": "x" * 150}),
        CallCompleted(2, "list", {}),
        BatchEnded((0, 1, 2), True, ("code_fence",)),
        TurnEnded("stop"),
    ) == (
        'I look.\n▸ read path: "a"\n    accepted leniently: arguments_key:args\n'
        f'▸ write\n    path: "b"\n    content: "{"x" * 150}"\n▸ list\n    accepted leniently: code_fence\n'
    )


def test_a_calls_name_is_there_before_its_arguments():
    stream = io.StringIO()
    renderer = Renderer(make_console(stream))
    renderer.show(CallStarted(0, "write"))
    renderer.show(ArgumentsDelta(0, "{"))
    assert stream.getvalue() == "▸ write"


@pytest.mark.parametrize(
    ("items", "text"),
    [
        (
            [CallStarted(0, "read"), CallMalformed(0, '{"na\x1bme', "invalid_json", "close it", 5, "read")],
            '▸ read\n✗ malformed call of read (invalid_json): close it\n    "{\\"na\\u001bme"\n',
        ),
        ([CallMalformed(0, "x", "no_name", "give a name", 5)], '✗ malformed call (no_name): give a name\n    "x"\n'),
        (
            [CallCompleted(0, "read", {}), CallIgnored(0, "only the last counts")],
            "▸ read\n! call read is ignored: only the last counts\n",
        ),
        ([CallIgnored(3, "why")], "! call number 4 is ignored: why\n"),
        ([ForgedResults("[...]")], '! ignored: results that the model wrote itself: "[...]"\n'),
        ([model_answer(CALL), ToolProgress("call_1_0", "half\x1b\n")], "  … read: half␛⏎\n"),
        ([TextDelta("cut"), model_answer(finish="length")], "cut\n! the model's turn ended early: length\n"),
        ([TextDelta("fine"), model_answer(finish="closed_by_us")], "fine\n"),
        (
            [
                record(RetryScheduled("reset \x1b[31m", 1.5, status=503)),
                model_answer(CALL),
                record(RetryScheduled("busy", 0.25, by="Retry", call_id=CALL.id)),
            ],
            (
                "! the model's API failed, tried again after 1.5 s: reset ␛[31m\n"
                "! read failed, tried again after 0.2 s: busy\n"
            ),
        ),
        (
            [record(LimitReached("steps", 50, 50))],
            "! the limit of 50 steps is reached: asking for a final answer\n",
        ),
        ([record(ApprovalDecided("c", True, "", "the demo"))], "  ✓ allowed by the demo\n"),
        ([record(ApprovalDecided("c", False, "no\x1b", "policy"))], "  ✗ refused by policy: no␛\n"),
        ([record(ApprovalDecided("c", True, "", "user"))], ""),
        ([TextDelta("The end"), record(RunFinished("answered", "The end", "answer"))], "The end\n"),
        ([record(RunStarted((), "m")), record(ToolStarted("c", "t", "k")), record(UnknownEvent("New", {}))], ""),
    ],
)
def test_what_is_reported(items: list[StreamItem], text: str):
    assert output_of(*items) == text


def tool_result(*content, status="success", name="read") -> Record:
    return record(ToolFinished(ToolResult("call_1_0", name, status, content)))


def test_results_are_folded():
    lines = "".join(f"line {i}\n" for i in range(100))
    text = output_of(model_answer(CALL), tool_result(TextPart(lines)))
    assert text == "  ✓ read\n" + "".join(f"    line {i}\n" for i in range(8)) + "    … 92 more lines\n"
    assert output_of(tool_result(JsonPart(["x" * 1000]))) == f"  ✓ read\n    {'x' * 199}…\n"


def test_failures_are_told_with_their_code():
    assert output_of(model_answer(CALL), record(ToolFinished(failure(CALL, "exception", "It broke.\x1b")))) == (
        "  ✗ read (exception)\n    It broke.␛\n"
    )
    bad_call = MalformedCall("m", "x", "invalid_json", "why")
    assert (
        output_of(record(ToolFinished(failure(bad_call, "malformed", "why")))) == "  ✗ (no name) (malformed)\n    why\n"
    )


def test_a_diff_that_was_previewed_is_not_shown_twice():
    question = record(ApprovalRequested("call_1_0", "writes a", CALL, UNDECLARED_EFFECTS, DIFF))
    assert output_of(model_answer(CALL), question, tool_result(TextPart(DIFF))) == "  ✓ read\n    done as shown above\n"
    assert "+y" in output_of(model_answer(CALL), tool_result(TextPart(DIFF)))
    assert "+y" in output_of(model_answer(CALL), question, model_answer(CALL), tool_result(TextPart(DIFF)))


def test_a_pause_shows_what_waits():
    questions = [
        record(ApprovalRequested(f"call_1_{i}", "writes a", CALL, UNDECLARED_EFFECTS, preview))
        for i, preview in enumerate((DIFF, "ls\n-l"))
    ]
    text = output_of(
        model_answer(CALL, ToolCall("call_1_1", "shell", {})),
        *questions,
        record(RunPaused("awaiting_approval", ("call_1_0", "call_1_1"))),
    )
    assert text == (
        "? read waits for approval\n    it writes a\n    --- a\n    +++ b\n    @@ -1 +1 @@\n    -x\n    +y\n"
        "? shell waits for approval\n    it writes a\n    ls\n    -l\n"
    )


# --- a terminal --------------------------------------------------------------------------------------------------


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch, *items: StreamItem, **environment: str) -> str:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "40", **environment}.items():
        monkeypatch.setenv(name, value)
    stream = FakeTerminal()
    renderer = Renderer(make_console(stream))
    for item in items:
        renderer.show(item)
    return stream.getvalue()


COLOURED_ITEMS = (
    ReasoningDelta("I think"),
    TextDelta("plain"),
    CallCompleted(0, "read", {}),
    model_answer(CALL),
    record(ToolFinished(failure(CALL, "exception", "It broke."))),
)


def test_diffs_are_coloured_and_their_repetition_is_not(monkeypatch: pytest.MonkeyPatch):
    question = record(ApprovalRequested("call_1_0", "writes a", CALL, UNDECLARED_EFFECTS, DIFF))
    assert "\x1b[32m    +y\x1b[0m" in on_terminal(monkeypatch, model_answer(CALL), tool_result(TextPart(DIFF)))
    again = on_terminal(monkeypatch, model_answer(CALL), question, tool_result(TextPart(DIFF)))
    assert "\x1b[2m    done as shown above\x1b[0m" in again


def test_styles_on_a_terminal(monkeypatch: pytest.MonkeyPatch):
    text = on_terminal(monkeypatch, *COLOURED_ITEMS)
    assert "\x1b[2;3mI think\x1b[0m\nplain\n" in text
    assert "\x1b[31m    It broke.\x1b[0m" in text


def test_no_color(monkeypatch: pytest.MonkeyPatch):
    text = on_terminal(monkeypatch, *COLOURED_ITEMS, NO_COLOR="1")
    codes = {code for sequence in re.findall(r"\x1b\[([0-9;]*)m", text) for code in sequence.split(";")}
    assert codes <= {"0", "1", "2", "3"}  # bold, dim and italic are no colours


def test_folded_lines_fit_the_terminal(monkeypatch: pytest.MonkeyPatch):
    text = on_terminal(monkeypatch, model_answer(CALL), tool_result(TextPart("日" * 100)))
    assert f"\n    {'日' * 17}…\n" in text


def test_escape_sequences_of_others_never_reach_the_terminal(monkeypatch: pytest.MonkeyPatch):
    evil = "\x1b[2J\x9b2J\x07\u202e\r\x00"
    call = ToolCall("call_1_0", evil, {evil: evil})
    items: list[StreamItem] = [
        TextDelta(evil),
        ReasoningDelta(evil),
        CallStarted(0, evil, evil),
        CallCompleted(0, evil, {evil: evil, "deep": [evil]}, evil, (evil,)),
        CallMalformed(1, evil, evil, evil, 0, evil),
        CallIgnored(1, evil),
        ForgedResults(evil),
        BatchEnded((0,), False, (evil,)),
        model_answer(call),
        ToolProgress("call_1_0", evil),
        record(ApprovalRequested("call_1_0", evil, CALL, UNDECLARED_EFFECTS, evil)),
        record(ApprovalDecided("call_1_0", False, evil, evil)),
        record(RunPaused("awaiting_approval", ("call_1_0", evil))),
        tool_result(TextPart(evil), JsonPart({evil: evil}), name=evil),
        record(ToolFinished(failure(call, "exception", evil))),
        record(ModelAsked("m", "", "")),
    ]
    text = re.sub(r"\x1b\[[0-9;]*m", "", on_terminal(monkeypatch, *items))
    assert "␛[2J\\x9b2J␇\\u202e␍␀" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)


# --- cost --------------------------------------------------------------------------------------------------------


def test_what_is_written_is_what_came_and_no_more():
    deltas = [TextDelta(f"word{i} ") for i in range(5000)]
    assert output_of(*deltas) == "".join(delta.text for delta in deltas) + "\n"


def test_a_delta_costs_the_same_however_much_came_before():
    def seconds(number: int) -> float:
        deltas = [TextDelta("word ")] * number + [ArgumentsDelta(0, "x")] * number
        start = time.process_time()
        output_of(*deltas)
        return time.process_time() - start

    assert min(seconds(8000) for _ in range(3)) < 8 * 3 * min(seconds(1000) for _ in range(3))


# --- with a run --------------------------------------------------------------------------------------------------


@tool
def touch(name: str) -> str:
    """Changes something."""
    return f"touched {name}"


TURNS = [
    'I touch.\n<execute>[{"name": "touch", "args": {"name": "a"}}, {"name": "touch", "args": {"name": "b"}}]</execute>',
    "Done.",
]


def test_questions_come_after_what_led_to_them():
    stream = io.StringIO()
    console = make_console(stream)
    at_the_time: list[str] = []

    class Looking(AnnouncingApprover):
        async def __call__(self, request: ApprovalRequest, /) -> Decision:
            at_the_time.append(stream.getvalue())
            return await super().__call__(request)

    approver = AfterDisplayApprover(Looking(console, "a test"))
    agent = Agent(ScriptedProvider(TURNS, chunk=1), [touch], dialect="cogency-json", approve=approver)
    state = asyncio.run(watch(agent.start("go"), Renderer(console).show, approver))
    assert state.answer == "Done."
    assert at_the_time[0] == 'I touch.\n▸ touch name: "a"\n▸ touch name: "b"\n'
    question = '? touch  does not declare what it touches\n    name: "{}"\n  ✓ allowed by a test\n'
    results = "  ✓ touch\n    touched a\n  ✓ touch\n    touched b\n"
    assert stream.getvalue() == at_the_time[0] + question.format("a") + question.format("b") + results + "Done.\n"


@pytest.mark.parametrize(
    ("turns", "limits", "line"),
    [
        (["Done."], Limits(), r"answered: 1 step, 0 calls, ~[\d,]+ tokens, 2\.0 s"),
        (["", ""], Limits(), r"no answer \(empty_answer\): 2 steps, .*"),
        ([TURNS[0]], Limits(), r"awaiting approval: 1 step, 2 calls, .*"),
    ],
)
def test_the_summary(turns: list[str], limits: Limits, line: str):
    ticks = iter(range(1000))
    agent = Agent(
        ScriptedProvider(turns), [touch], dialect="cogency-json", limits=limits, clock=lambda: next(ticks) / 1.5
    )
    state = agent.run_sync("go").state
    assert re.fullmatch(line, summary(state)), summary(state)
