"""An agent for web clients that speak AG-UI, checked with the protocol's own models."""

from __future__ import annotations

import asyncio
import json

import pytest
from ag_ui import core
from pydantic import TypeAdapter

from toolspeak import Agent, Effects, Interceptor, RunContext, tool
from toolspeak.adapters import AgUiApp
from toolspeak.data.messages import Message, ToolCall
from toolspeak.dialects import get_dialect
from toolspeak.errors import AgentStop, ConfigurationError, ProviderError
from toolspeak.journal import SqliteJournal
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn

EVENTS = TypeAdapter(core.Event)


@tool(read_only=True)
def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b


@tool(effects=lambda path: Effects(writes={f"note:{path}"}))
def note(path: str) -> str:
    "Writes a note."
    return f"wrote {path}"


def calling(name, arguments, text=""):
    return ScriptedTurn(text, calls=(ScriptedCall(name, arguments),))


def user(text, message_id="u1"):
    return {"id": message_id, "role": "user", "content": text}


def an_input(*messages, thread="t1", run="r1", **more):
    return {"threadId": thread, "runId": run, "messages": list(messages), "tools": [], "context": [], **more}


async def post(app, body, *, leave_after=None, method="POST"):
    """The status and the events that a request gets. `leave_after`: the client leaves after an event of this type."""
    answers, leaves = [], asyncio.Event()
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    requests = [
        {"type": "http.request", "body": data[:10], "more_body": True},
        {"type": "http.request", "body": data[10:]},
    ]

    async def receive():
        if requests:
            return requests.pop(0)
        await leaves.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        answers.append(message)
        if leave_after is not None and leave_after in message.get("body", b""):
            leaves.set()

    await app({"type": "http", "method": method, "headers": []}, receive, send)
    status = answers[0]["status"]
    text = b"".join(each.get("body", b"") for each in answers)
    if status != 200:
        return status, json.loads(text)
    lines = [block.removeprefix("data: ") for block in text.decode().split("\n\n") if block]
    return status, [EVENTS.validate_json(line) for line in lines]


def check(events, *, ends=True):
    """The rules of the protocol: what opens is closed, in order, and the run's end is last."""
    assert events[0].type == "RUN_STARTED"
    open_things, steps = {}, []
    for event in events:
        kind = event.type.value
        if kind in ("TEXT_MESSAGE_START", "REASONING_MESSAGE_START", "REASONING_START"):
            assert (kind, event.message_id) not in open_things
            open_things[kind.removesuffix("_START"), event.message_id] = kind
        elif kind in ("TEXT_MESSAGE_END", "REASONING_MESSAGE_END", "REASONING_END"):
            open_things.pop((kind.removesuffix("_END"), event.message_id))
        elif kind.endswith("MESSAGE_CONTENT"):
            assert event.delta
            assert (kind.removesuffix("_CONTENT"), event.message_id) in open_things
        elif kind == "TOOL_CALL_START":
            open_things["call", event.tool_call_id] = kind
        elif kind == "TOOL_CALL_ARGS":
            assert ("call", event.tool_call_id) in open_things
        elif kind == "TOOL_CALL_END":
            open_things.pop(("call", event.tool_call_id))
        elif kind == "STEP_STARTED":
            steps.append(event.step_name)
        elif kind == "STEP_FINISHED":
            assert steps.pop() == event.step_name
        elif kind in ("RUN_FINISHED", "RUN_ERROR"):
            assert event is events[-1]
    if ends:
        assert events[-1].type in ("RUN_FINISHED", "RUN_ERROR")
        assert not open_things
        assert not steps
    return [event.type.value for event in events]


@pytest.fixture
def journal(tmp_path):
    return SqliteJournal(tmp_path / "chats.db")


def an_app(journal, *turns, tools=(add, note), provider=None, with_tools=False, **options):
    provider = provider or ScriptedProvider(turns, chunk=5)
    app_options = {name: options.pop(name) for name in ("principal", "deps", "max_body") if name in options}
    if with_tools:
        return AgUiApp(lambda own: Agent(provider, [*tools, *own], journal=journal, **options), **app_options)
    return AgUiApp(Agent(provider, [*tools], journal=journal, **options), **app_options)


def talk(app, journal, *bodies):
    """Sends one request after the other. Returns the events of each."""

    async def main():
        try:
            return [(await post(app, body))[1] for body in bodies]
        finally:
            await journal.aclose()

    return asyncio.run(main())


def text_of(events):
    return "".join(event.delta for event in events if event.type == "TEXT_MESSAGE_CONTENT")


def test_a_run_with_reasoning_calls_and_text(journal):
    turns = (
        ScriptedTurn("I add. ", reasoning="Let me think.", calls=(ScriptedCall("add", {"a": 1, "b": 2}),)),
        "It is {{last}}.",
    )
    (events,) = talk(an_app(journal, *turns), journal, an_input(user("1 + 2?")))
    kinds = check(events)
    for kind in ("REASONING_START", "TEXT_MESSAGE_START", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_RESULT"):
        assert kind in kinds
    assert kinds.count("STEP_STARTED") == 2
    (start,) = [event for event in events if event.type == "TOOL_CALL_START"]
    arguments = "".join(event.delta for event in events if event.type == "TOOL_CALL_ARGS")
    (result,) = [event for event in events if event.type == "TOOL_CALL_RESULT"]
    assert (start.tool_call_name, json.loads(arguments), result.content) == ("add", {"a": 1, "b": 2}, "3")
    assert start.tool_call_id == result.tool_call_id
    finish = events[-1]
    assert (finish.thread_id, finish.run_id, finish.result, finish.outcome.type) == ("t1", "r1", "It is 3.", "success")
    assert finish.metadata["toolspeak"]["status"] == "answered"


@pytest.mark.parametrize("dialect", ["hermes", "cogency-xml", "qwen3-coder"])
def test_calls_in_text_dialects_have_their_arguments(journal, dialect):
    rendered_turn = get_dialect(dialect).render(
        [Message("assistant", (ToolCall("", "add", {"a": 1, "b": 2}),))], [add.spec]
    )
    app = an_app(journal, "So: " + rendered_turn[0].text, "Three.", dialect=dialect)
    (events,) = talk(app, journal, an_input(user("1 + 2?")))
    check(events)
    arguments = "".join(event.delta for event in events if event.type == "TOOL_CALL_ARGS")
    assert json.loads(arguments) == {"a": 1, "b": 2}
    assert events[-1].result == "Three."


def test_a_thread_is_a_session_and_keeps_what_was_said(journal):
    provider = ScriptedProvider(["One.", "Two."])
    talk(
        an_app(journal, provider=provider),
        journal,
        an_input(user("first")),
        an_input(user("first"), {"id": "a", "role": "assistant", "content": "One."}, user("second", "u2"), run="r2"),
    )
    assert [each.text for each in provider.requests[-1].messages[-3:]] == ["first", "One.", "second"]


def test_a_thread_that_the_journal_does_not_have_begins_with_the_clients_messages(journal):
    provider = ScriptedProvider(["Yes."])
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 1}'}}
    lost_call = {"id": "c2", "type": "function", "function": {"name": "add", "arguments": "{"}}
    (events,) = talk(
        an_app(journal, provider=provider),
        journal,
        an_input(
            user("before"),
            {"id": "a1", "role": "assistant", "content": "Adding.", "toolCalls": [call, lost_call]},
            {"id": "t1", "role": "tool", "content": "2", "toolCallId": "c1"},
            user("Really?", "u2"),
            context=[{"description": "page", "value": "sums"}],
        ),
    )
    check(events)
    texts = [each.text for each in provider.requests[-1].messages]
    assert any("before" in text for text in texts)
    assert texts[-1].endswith("What the application says:\n- page: sums\n\nReally?")


APPROVAL = {"interruptId": "call_1_0", "status": "resolved", "payload": {"approved": True}}


def test_an_approval_is_an_interrupt_and_resume_decides_it(journal):
    app = an_app(journal, calling("note", {"path": "a"}), "{{last}}")
    first, second = talk(
        app,
        journal,
        an_input(user("write")),
        an_input(
            user("write"),
            run="r2",
            resume=[{"interruptId": "call_1_0", "status": "resolved", "payload": {"approved": True}}],
        ),
    )
    check(first)
    outcome = first[-1].outcome
    assert outcome.type == "interrupt"
    (interrupt,) = outcome.interrupts
    assert (interrupt.id, interrupt.reason, interrupt.tool_call_id) == ("call_1_0", "tool_approval", "call_1_0")
    assert interrupt.message.startswith("May note run?")
    assert interrupt.metadata["toolspeak"]["arguments"] == {"path": "a"}
    check(second)
    assert second[-1].result == "wrote a"
    assert second[-1].run_id == "r2"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"status": "cancelled"}, "cancelled"),
        ({"status": "resolved", "payload": {"approved": False, "reason": "not there"}}, "not there"),
        ({"status": "resolved", "payload": False}, ""),
        ({"status": "resolved", "payload": {"approved": True, "arguments": {"path": "b"}}}, "wrote b"),
    ],
)
def test_answers_to_an_interrupt(journal, answer, text):
    app = an_app(journal, calling("note", {"path": "a"}), "{{last}}")
    _, second = talk(
        app,
        journal,
        an_input(user("write")),
        an_input(user("write"), run="r2", resume=[{"interruptId": "call_1_0", **answer}]),
    )
    check(second)
    assert text in second[-1].result
    assert "wrote a" not in second[-1].result


def test_an_answer_without_a_decision_is_an_error_and_the_question_stays(journal):
    app = an_app(journal, calling("note", {"path": "a"}), "{{last}}")
    resume = {"interruptId": "call_1_0", "status": "resolved"}
    _, second, third = talk(
        app,
        journal,
        an_input(user("write")),
        an_input(user("write"), run="r2", resume=[{**resume, "payload": "sure"}]),
        an_input(user("write"), run="r3", resume=[{**resume, "payload": True}]),
    )
    assert "has no decision" in second[-1].message
    assert third[-1].result == "wrote a"


def test_a_message_in_place_of_an_answer_refuses(journal):
    app = an_app(journal, calling("note", {"path": "a"}), "As you like.")
    _, second = talk(app, journal, an_input(user("write")), an_input(user("stop that", "u2"), run="r2"))
    assert second[-1].result == "As you like."


FRONT_END = {
    "name": "pick_colour",
    "description": "Lets the user pick a colour.",
    "parameters": {"type": "object", "properties": {"palette": {"type": "string"}}},
}


def test_a_call_of_the_clients_tool_waits_for_its_result(journal):
    provider = ScriptedProvider([calling("pick_colour", {"palette": "warm"}), "You picked {{last}}."])
    app = an_app(journal, provider=provider, with_tools=True)
    first, second = talk(
        app,
        journal,
        an_input(user("pick"), tools=[FRONT_END]),
        an_input(
            user("pick"),
            {"id": "m2", "role": "tool", "content": "red", "toolCallId": "call_1_0"},
            run="r2",
            tools=[FRONT_END],
        ),
    )
    assert "TOOL_CALL_END" in check(first)
    assert first[-1].outcome.type == "success"
    assert first[-1].outcome.pending_tool_call_ids == ["call_1_0"]
    assert "TOOL_CALL_RESULT" not in check(second)
    assert second[-1].result == "You picked red."


def test_results_of_several_tools_of_the_client_come_one_by_one(journal):
    turn = ScriptedTurn(
        "", calls=(ScriptedCall("pick_colour", {"palette": "a"}), ScriptedCall("pick_colour", {"palette": "b"}))
    )
    app = an_app(journal, provider=ScriptedProvider([turn, "Both."]), with_tools=True)
    results = [{"id": f"m{n}", "role": "tool", "content": c, "toolCallId": f"call_1_{n}"} for n, c in enumerate("xy")]
    first, second, third = talk(
        app,
        journal,
        an_input(user("pick"), tools=[FRONT_END]),
        an_input(user("pick"), results[0], run="r2", tools=[FRONT_END]),
        an_input(user("pick"), *results, run="r3", tools=[FRONT_END]),
    )
    assert first[-1].outcome.pending_tool_call_ids == ["call_1_0", "call_1_1"]
    assert second[-1].outcome.pending_tool_call_ids == ["call_1_1"]
    assert third[-1].result == "Both."


def test_errors_end_the_run_and_say_why(journal):
    failing = ScriptedTurn("Well", error=ProviderError("the server is gone", status=500))
    (events,) = talk(an_app(journal, failing), journal, an_input(user("go")))
    check(events)
    assert (events[-1].type, events[-1].message) == ("RUN_ERROR", "the server is gone")


def test_a_stopped_run_without_an_answer_is_an_error(journal):
    @tool(read_only=True)
    def stop() -> str:
        "Stops the run."
        raise AgentStop("enough")

    (events,) = talk(an_app(journal, calling("stop", {}), tools=[stop]), journal, an_input(user("go")))
    check(events)
    assert events[-1].type == "RUN_ERROR"


def test_malformed_calls_are_shown_with_their_error(journal):
    turns = ('<tool_call>\n{"name": "add", "arguments": {"a": 1,}}\n</tool_call>', "Sorry.")
    (events,) = talk(an_app(journal, *turns, dialect="hermes"), journal, an_input(user("go")))
    check(events)
    assert events[-1].result == "Sorry."
    (result,) = [event for event in events if event.type == "TOOL_CALL_RESULT"]
    assert result.metadata == {"toolspeak": {"failed": True}}


def test_a_client_that_leaves_cancels_the_run_and_can_go_on(journal):
    @tool(read_only=True, timeout=None)
    async def wait_long() -> str:
        "Waits."
        await asyncio.Event().wait()

    async def leaving():
        app = an_app(journal, calling("wait_long", {}), "Back again.", tools=[wait_long])
        _, events = await post(app, an_input(user("go")), leave_after=b"TOOL_CALL_END")
        _, later = await post(app, an_input(user("again", "u2"), run="r2"))
        await journal.aclose()
        return events, later

    events, later = asyncio.run(leaving())
    check(events, ends=False)
    assert events[-1].type != "RUN_FINISHED"
    assert later[-1].result == "Back again."


def test_another_principal_cannot_continue_a_thread(journal):
    who = ["ann"]
    app = an_app(journal, "Hello.", "Never.", principal=lambda _scope: who[0])

    async def main():
        await post(app, an_input(user("hi")))
        who[0] = "bob"
        events = (await post(app, an_input(user("hi", "u2"), run="r2")))[1]
        await journal.aclose()
        return events

    events = asyncio.run(main())
    assert (events[-1].type, events[-1].message) == ("RUN_ERROR", "this thread belongs to another user")


BROKEN_PICTURE = {"type": "image", "source": {"type": "data", "value": "!", "mimeType": "image/png"}}


def refuse(_scope):
    raise PermissionError("log in first")


@pytest.mark.parametrize(
    ("options", "body", "method", "status", "text"),
    [
        ({}, b"{", "POST", 422, "no RunAgentInput"),
        ({}, {"threadId": "t"}, "POST", 422, "runId"),
        ({}, b"", "GET", 405, "send a POST"),
        ({"max_body": 20}, an_input(user("x")), "POST", 413, "more than 20 bytes"),
        ({"principal": refuse}, an_input(user("x")), "POST", 403, "log in first"),
    ],
)
def test_bad_requests_have_a_status(journal, options, body, method, status, text):
    got, answer = asyncio.run(post(an_app(journal, "x", **options), body, method=method))
    assert got == status
    assert text in answer["error"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (an_input(), "no message of the user"),
        (an_input(user("x"), resume=[{"interruptId": "i", "status": "cancelled"}]), "nothing waits for these answers"),
        (
            an_input({**user(""), "content": [BROKEN_PICTURE]}),
            "not Base64",
        ),
        (an_input(user("x"), tools=[{**FRONT_END, "parameters": {"type": "array"}}]), "pick_colour"),
    ],
)
def test_requests_that_cannot_run_end_with_an_error(journal, body, text):
    (events,) = talk(an_app(journal, "x", with_tools=True), journal, body)
    check(events)
    assert events[-1].type == "RUN_ERROR"
    assert text in events[-1].message


def test_pictures_and_lone_surrogates_pass(journal):
    provider = ScriptedProvider(["half \ud800 a pair"])
    content = [
        {"type": "text", "text": "What is it?"},
        {"type": "image", "source": {"type": "data", "value": "iVBORw==", "mimeType": "image/png"}},
        {"type": "image", "source": {"type": "url", "value": "https://example.com/a.png"}},
        {"type": "document", "source": {"type": "file", "value": "file-1"}},
    ]
    (events,) = talk(
        an_app(journal, provider=provider), journal, an_input({"id": "u", "role": "user", "content": content})
    )
    check(events)
    assert text_of(events).startswith("half ")
    parts = provider.requests[-1].messages[-1].parts
    assert [type(part).__name__ for part in parts] == ["TextPart", "ImagePart", "ImagePart"]


def test_the_run_has_the_programs_deps(journal):
    seen_states = []

    @tool(read_only=True)
    def look(ctx: RunContext) -> str:
        "Looks."
        seen_states.append(ctx.deps)
        return "ok"

    app = an_app(journal, calling("look", {}), "Done.", tools=[look], deps=lambda request: request.state)
    talk(app, journal, an_input(user("go"), state={"page": 3}))
    assert seen_states == [{"page": 3}]


def test_an_agent_needs_a_journal():
    with pytest.raises(ConfigurationError, match="needs an agent with a journal"):
        AgUiApp(Agent(ScriptedProvider(["x"])))


def test_text_that_proves_to_be_reasoning_is_taken_back_by_a_snapshot(journal):
    app = an_app(journal, "Two and two make</think>Four.", dialect="hermes")
    (events,) = talk(app, journal, an_input(user("2 + 2?")))
    kinds = check(events)
    (snapshot,) = [event for event in events if event.type == "MESSAGES_SNAPSHOT"]
    assert kinds.index("MESSAGES_SNAPSHOT") > kinds.index("TEXT_MESSAGE_START")
    assert [(each.role, each.content) for each in snapshot.messages] == [("user", "2 + 2?"), ("assistant", "Four.")]
    assert events[-1].result == "Four."


def test_another_agent_is_a_subagent_with_its_messages_calls_and_end(journal):
    helper_turns = [
        calling("add", {"a": 1, "b": 2}, "I add."),
        "It is 3.",
        ScriptedTurn("", error=ProviderError("down")),
    ]
    helper = Agent(ScriptedProvider(helper_turns), [add], name="clerk", description="Adds.")
    ask = [calling("clerk", {"task": task}) for task in ("1 + 2?", "And?")]
    agent = Agent(ScriptedProvider([*ask, "Three."]), [helper.as_tool()], journal=journal)
    _, events = asyncio.run(post(AgUiApp(agent), an_input(user("Add."))))
    check(events)
    own = [event for event in events if getattr(event, "subagent_run_id", None) is not None]
    first, second = dict.fromkeys(event.subagent_run_id for event in own)
    assert [event.type.value for event in own if event.subagent_run_id == first] == [
        *("SUBAGENT_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"),
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "SUBAGENT_FINISHED"),
    ]
    assert (own[0].name, [event for event in own if event.subagent_run_id == first][-1].result) == ("clerk", "It is 3.")
    assert [event.type.value for event in own if event.subagent_run_id == second] == [
        "SUBAGENT_STARTED",
        "SUBAGENT_ERROR",
    ]
    assert events[-1].result == "Three."


def test_the_state_comes_whole_once_and_then_in_pieces_also_after_a_pause(journal):
    class Counts(Interceptor):
        async def after(self, call, result, context):
            context.set("last/call", call.name)
            context.update("calls", lambda number: (number or 0) + 1)
            return result

    turns = [
        calling("add", {"a": 1, "b": 2}),
        calling("add", {"a": 3, "b": 4}),
        calling("note", {"path": "x"}),
        "Done.",
    ]
    agent = Agent(ScriptedProvider(turns), [add, note], journal=journal, interceptors=[Counts()])
    app = AgUiApp(agent)

    async def main():
        _, first = await post(app, an_input(user("Go.")))
        (interrupt,) = first[-1].outcome.interrupts
        answer = {"interruptId": interrupt.id, "status": "resolved", "payload": {"approved": True}}
        return first, (await post(app, an_input(user("Go."), run="r2", resume=[answer])))[1]

    first, second = asyncio.run(main())

    def states(events):
        for event in events:
            if event.type == "STATE_SNAPSHOT":
                yield event.snapshot
            elif event.type == "STATE_DELTA":
                yield [(each.op, each.path, each.value) for each in event.delta]

    assert list(states(first)) == [
        {"last/call": "add"},
        [("add", "/calls", 1)],
        [("replace", "/last~1call", "add")],
        [("replace", "/calls", 2)],
    ]
    whole, *pieces = states(second)
    assert whole == {"last/call": "add", "calls": 2}
    assert pieces == [[("replace", "/last~1call", "note")], [("replace", "/calls", 3)]]
