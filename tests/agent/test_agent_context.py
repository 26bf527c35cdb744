"""What reaches a tool besides its arguments, and what never leaves it: secrets."""

import asyncio
import contextvars

import pytest
from agent_helpers import DIALECTS, WatchedJournal, calling

from toolspeak import Agent, Effects, Execution, Message, RunContext, TextPart, ToolCall, ToolResult, tool
from toolspeak.data.messages import JsonPart
from toolspeak.execute import Decision
from toolspeak.providers.scripted_provider import ScriptedProvider

who = contextvars.ContextVar("who", default="nobody")
VALUE = 's3cr3t"\nvalue'


@pytest.mark.parametrize("way", ["run", "run_sync", "stream", "iterate"])
def test_context_variables_reach_every_tool(way):
    names = {}

    @tool(read_only=True)
    def beside() -> str:
        "In a thread."
        names["sync"] = who.get()
        who.set("changed in a thread")
        return "ok"

    @tool(read_only=True)
    async def within() -> str:
        "In the loop."
        names["async"] = who.get()
        who.set("changed in the loop")
        return "ok"

    turn = calling("cogency-json", ("beside", {}), ("within", {}))
    agent = Agent(ScriptedProvider([turn, "ok"]), [beside, within])

    async def main():
        who.set("Ann")
        if way == "run":
            await agent.run("go")
        else:
            async for _ in getattr(agent, way)("go"):
                pass
        assert who.get() == "Ann"

    def sync():
        who.set("Ann")
        agent.run_sync("go")

    contextvars.copy_context().run(sync) if way == "run_sync" else asyncio.run(main())
    assert names == {"sync": "Ann", "async": "Ann"}


def test_a_tool_sees_its_dependencies_its_call_and_the_run():
    contexts = []

    @tool(read_only=True)
    def look(word: str, ctx: RunContext[dict[str, int]]) -> str:
        "Looks."
        contexts.append(ctx)
        return word

    turns = [calling("cogency-json", ("look", {"word": "x"})), "ok"]
    agent = Agent(ScriptedProvider(turns), [look], execution=Execution(early_start=False))
    deps = {"answer": 42}
    result = asyncio.run(agent.run("go", deps=deps))
    (ctx,) = contexts
    assert ctx.deps is deps
    assert ctx.call == result.messages[1].calls[0]
    assert ctx.idempotency_key == f"{result.run_id}:call_1_0"
    assert (ctx.state.run_id, ctx.state.step) == (result.run_id, 1)
    assert [message.role for message in ctx.state.messages] == ["user", "assistant"]


def test_two_runs_of_one_agent_share_nothing():
    @tool(read_only=True)
    def count(ctx: RunContext) -> int:
        "Counts."
        ctx.memory["n"] = ctx.memory.get("n", 0) + 1
        return ctx.memory["n"]

    turn = calling("cogency-json", ("count", {}))

    def reply(messages):
        return turn if len(messages) == 2 else "ok"

    agent = Agent(ScriptedProvider([reply] * 40), [count])

    async def main():
        return await asyncio.gather(*(agent.run(f"go {n}") for n in range(20)))

    results = asyncio.run(main())
    assert len({result.run_id for result in results}) == 20
    assert {result.messages[2].results[0].structured for result in results} == {1}
    assert [result.messages[0].text for result in results] == [f"go {n}" for n in range(20)]


# --- secrets ---------------------------------------------------------------------------------------------------


class Spy:
    """A tool that gets a secret and gives it back in every way it can."""

    def __init__(self):
        self.got = []

        @tool(effects=lambda token: Effects(writes={f"vault:{token}"}), preview=lambda token: f"send {token}")
        def send(token: str, ctx: RunContext) -> dict[str, str]:
            "Sends a token."
            self.got.append(token)
            ctx.progress(f"sending {token}")
            return {"echo": token, token: "as a name"}

        @tool(read_only=True)
        def fail(token: str) -> str:
            "Fails."
            raise ValueError(token)

        self.tools = [send, fail]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_secret_reaches_the_tool_and_nothing_else(dialect):
    spy, journal = Spy(), WatchedJournal()
    token = {"token": "{{secret:TOKEN}}"}
    turns = [calling(dialect, ("send", token)), calling(dialect, ("fail", token)), "I used {{secret:TOKEN}}."]
    provider = ScriptedProvider(turns)

    async def approve(request):
        assert VALUE not in str(request)
        return Decision(True)

    history = [
        Message.user(f"Mine is {VALUE}."),
        Message("assistant", (ToolCall("call_1_0", "send", {"token": VALUE}),)),
        Message("tool", (ToolResult("call_1_0", "send", "success", (TextPart(VALUE),), structured={"x": [VALUE]}),)),
        Message("user", (JsonPart({"token": VALUE}), TextPart(f"As I said: {VALUE}"))),
    ]
    agent = Agent(
        provider,
        spy.tools,
        dialect=dialect,
        journal=journal,
        secrets={"TOKEN": VALUE},
        instructions=f"The token is {VALUE}.",
        approve=approve,
    )

    async def main():
        run = agent.start(f"Send {VALUE}", history=history)
        run.say(f"I repeat: {VALUE}")
        return [item async for item in run.stream()], run.state

    items, state = asyncio.run(main())
    assert spy.got == [VALUE]
    assert len(provider.requests) == 3
    for place in (items, state, journal.records, provider.requests):
        text = repr(place)
        assert "s3cr3t" not in text
        assert "{{secret:TOKEN}}" in text


def test_a_secret_in_a_decision_is_hidden():
    spy, journal = Spy(), WatchedJournal()
    turns = [calling("cogency-json", ("send", {"token": "{{secret:TOKEN}}"})), "ok"]
    provider = ScriptedProvider(turns)
    agent = Agent(provider, spy.tools, journal=journal, secrets={"TOKEN": VALUE})

    async def main():
        paused_run = await agent.run("go")
        return await agent.resume(paused_run, {"call_1_0": Decision(False, f"never send {VALUE}")})

    result = asyncio.run(main())
    assert spy.got == []
    assert "s3cr3t" not in repr((result, journal.records, provider.requests))


def test_a_secret_that_the_model_writes_itself_is_not_recorded():
    spy, journal = Spy(), WatchedJournal()
    turns = [f"It is {VALUE}.\n" + calling("cogency-json", ("send", {"token": VALUE})), f"I sent {VALUE}."]
    provider = ScriptedProvider(turns)
    agent = Agent(provider, spy.tools, journal=journal, secrets={"TOKEN": VALUE}, approve="all")
    result = asyncio.run(agent.run("go"))
    assert spy.got == [VALUE]
    assert result.answer == "I sent {{secret:TOKEN}}."
    assert "s3cr3t" not in repr((result, journal.records, provider.requests))
