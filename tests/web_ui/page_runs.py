"""Runs for the pages: one that was slow, one that failed, one that asks, a hostile one, and a long one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from toolspeak import Agent, ToolError, tool
from toolspeak.data.approvals import ApprovalDecided, ApprovalRequested
from toolspeak.data.deltas import TextDelta, TurnEnded
from toolspeak.data.events import (
    AnswerRejected,
    CallSuspended,
    Event,
    HandedOff,
    HistoryCompacted,
    InterceptorFailed,
    LimitReached,
    MetadataSet,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    ModelTextReceived,
    Record,
    RetryScheduled,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    StopRequested,
    SubRunUsed,
    ToolFinished,
    ToolStarted,
    UnknownEvent,
    UserMessageQueued,
    WaitEnded,
)
from toolspeak.data.messages import (
    FilePart,
    ImagePart,
    JsonPart,
    MalformedCall,
    Message,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolResult,
    Usage,
)
from toolspeak.data.tools import Effects
from toolspeak.providers import Capabilities
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn

NASTY = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'> \u202egnp.exe\u202c"
    " \x1b[31mred\x1b[0m \u200bzero &amp; javascript:alert(1)"
)
"""What must be seen as it is, wherever it stands."""

LINE = "x" * 1_000_000
WORDS = 120


@tool(read_only=True)
async def look_up(city: str, seconds: float = 0.0) -> dict:
    "Looks up the weather of a city."
    await asyncio.sleep(seconds)
    return {
        "city": city,
        "temperature": 17.5,
        "wind": {"speed": 12, "from": "north-west"},
        "days": ["sun", "rain", "sun"],
    }


@tool(read_only=True)
def read_notes(name: str) -> str:
    "Reads notes."
    raise ToolError(f"there are no notes named {name!r}: list_notes names all")


def refund_diff(order: str, amount: float) -> str:
    return (
        f"--- orders/{order}\n+++ orders/{order}\n@@ -1,2 +1,2 @@\n order: {order}\n-refunded: 0\n+refunded: {amount}"
    )


@tool(preview=refund_diff)
def refund(order: str, amount: float, note: str = "") -> str:
    "Refunds an order."
    return f"refunded {amount} for {order}"


SLOW = [
    ScriptedTurn(
        "I look up three cities at once, and the last one after them.",
        reasoning="Berlin, Oslo and Rome can run side by side.",
        calls=(
            ScriptedCall("look_up", {"city": "Berlin", "seconds": 0.3}),
            ScriptedCall("look_up", {"city": "Oslo", "seconds": 1.2}),
            ScriptedCall("look_up", {"city": "Rome", "seconds": 0.1}),
        ),
    ),
    ScriptedTurn("Now the notes.", calls=(ScriptedCall("read_notes", {"name": "trips"}),)),
    "It is 17.5 °C in all three cities. The notes could not be read.",
]
ASKS = [
    ScriptedTurn(
        "The order is damaged, so I refund it.",
        calls=(ScriptedCall("refund", {"order": "4711", "amount": 20.0, "note": "damaged in transit"}),),
    ),
    "Done: the order is refunded.",
]
HOSTILE = [
    ScriptedTurn(
        NASTY, reasoning=NASTY, calls=(ScriptedCall("refund", {"order": NASTY, "amount": 1.0, "note": LINE}),)
    ),
    "ok",
]


def odd_run() -> list[Record]:
    """A run with every event, and with hostile text in every field that can have one."""
    call = ToolCall("call_1_0", NASTY, {NASTY: [NASTY, {NASTY: NASTY}]}, notes=(NASTY,), repaired_from=NASTY)
    bad_call = MalformedCall("call_1_1", NASTY, NASTY, NASTY, name=NASTY)
    parts = (TextPart(NASTY), ReasoningPart(NASTY), call, bad_call)
    image = ImagePart("image/svg+xml", NASTY.encode())
    content = (TextPart(NASTY), JsonPart({NASTY: NASTY}), image, ImagePart("image/png", None, "javascript:alert(1)"))
    events: list[Event] = [
        ModelAsked(NASTY, NASTY, NASTY),
        ModelTextReceived(NASTY, NASTY),
        RetryScheduled(NASTY, 0.5, 1, NASTY),
        ModelAnswered(
            Message("assistant", parts), "stop", ignored=(call,), forged=(NASTY,), notes=(NASTY,), raw_text=NASTY
        ),
        ApprovalRequested("call_1_0", NASTY, call, Effects(writes=frozenset({NASTY})), NASTY, NASTY),
        ApprovalDecided("call_1_0", True, NASTY, NASTY, NASTY),
        ToolStarted("call_1_0", NASTY, NASTY, (NASTY,), sandbox=NASTY),
        CallSuspended("call_1_0", event=NASTY),
        WaitEnded("call_1_0", NASTY, NASTY, by=NASTY),
        RetryScheduled(NASTY, 0.5, 1, NASTY, "call_1_0"),
        ToolFinished(ToolResult("call_1_0", NASTY, "failure", (*content, FilePart(NASTY, NASTY, b"x")))),
        ToolStarted("call of nobody", NASTY, NASTY),
        UserMessageQueued(Message.user(NASTY), NASTY, NASTY),
        MetadataSet({NASTY: NASTY}, NASTY),
        InterceptorFailed(NASTY, "call", "before", NASTY),
        AnswerRejected(NASTY),
        HistoryCompacted(summary=NASTY),
        SubRunUsed("a/../b?c#d", NASTY, Usage(1, 1)),
        HandedOff("call_1_0", NASTY, NASTY),
        UnknownEvent("<b>Later</b>", {NASTY: NASTY}),
        RunPaused("suspended"),
        RunResumed(),
        StopRequested("stopped", NASTY, answer=NASTY, by=NASTY),
        LimitReached("steps", 1, 1),
        ModelFailed(NASTY),
        RunFinished("failed", NASTY, NASTY),
    ]
    start = RunStarted(
        (Message.user(NASTY), Message("user", content)), NASTY, setup={"workspace": NASTY, "dialect": NASTY}
    )
    return [
        Record(event, "odd", seq, 1, 2000.0 + seq, HOSTILE_AGENT, principal=NASTY)
        for seq, event in enumerate((start, *events))
    ]


HOSTILE_AGENT = "<b>agent</b>"


class SlowProvider:
    """Writes words, one after the other. It waits in the middle until the file `gate` is there."""

    name, capabilities = "slow", Capabilities(tools=False)

    def __init__(self, gate: Path):
        self._gate = gate

    async def stream(self, request):
        for number in range(WORDS):
            await asyncio.sleep(0.02)
            while number == WORDS // 2 and not self._gate.exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.03)
            yield TextDelta(f"word{number} ")
        yield TurnEnded("stop")

    async def aclose(self):
        pass


def page_agent(journal, script, name="shop") -> Agent:
    tools = [look_up, read_notes, refund]
    return Agent(ScriptedProvider(script), tools, dialect="native", name=name, journal=journal)
