"""An ASGI application that serves an agent to web clients that speak AG-UI (the Agent User Interaction Protocol)."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, TypeAlias, cast

from ag_ui import core
from pydantic import ValidationError

from toolspeak.adapters.ag_ui_events import AgUiEvents, encode_event
from toolspeak.agent import Agent, Run, Session
from toolspeak.agent.storage.runs import load_state
from toolspeak.data.messages import (
    ContentPart,
    FilePart,
    ImagePart,
    Message,
    Part,
    TextPart,
    ToolCall,
    ToolResult,
)
from toolspeak.data.run_values import PAUSED_STATUSES
from toolspeak.data.values import JSON
from toolspeak.errors import ConfigurationError, ProviderError, ToolspeakError
from toolspeak.execute import Decision
from toolspeak.journal.base import Journal, RunInput, SessionInfo
from toolspeak.tools import Tool
from toolspeak.tools.context import RunContext

_LOG = logging.getLogger("toolspeak.adapters")

SESSION_PREFIX = "ag-ui-"
"""What the ids of the sessions of web clients begin with: a client cannot name any other session of the journal."""

_HEAD = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

AsgiScope: TypeAlias = MutableMapping[str, Any]
AsgiReceive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiSend: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AgentOf: TypeAlias = Callable[[Sequence[Tool]], Agent[Any, Any]]
"""Makes the agent of one request, with the client's tools among its own."""


class _Refusal(Exception):
    """A request that is answered with an HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class AgUiApp:
    """Serves an agent over AG-UI: `POST` with a `RunAgentInput`, answered by a stream of events.

        app = AgUiApp(Agent("openai:qwen3", tools=[read, write], journal=SqliteJournal("chats.db")))

    A thread of the client is a session of the journal. The last user message is its next task; earlier messages count
    only for a thread that the journal does not have. An open approval ends the client's run with an interrupt, and the
    client's next run, with `resume`, decides it. Calls of the client's own tools end its run too; its next run brings
    their results.

    - `agent`: an agent with a journal; or a function of the client's tools that returns it, without which the model
      does not see these.
    - `principal`: on whose behalf a request acts, from its ASGI scope. Without it every client that knows a thread's
      id can continue it. It may raise PermissionError: the answer is 403.
    - `deps`: the run's `deps`, from the client's input.
    - `max_body`: the most bytes of a request.
    """

    def __init__(
        self,
        agent: Agent[Any, Any] | AgentOf,
        *,
        principal: Callable[[AsgiScope], str | None] = lambda _: None,
        deps: Callable[[core.RunAgentInput], Any] | None = None,
        max_body: int = 32 * 1024 * 1024,
    ) -> None:
        self._agent = agent
        if isinstance(agent, Agent) and agent.journal is None:
            raise ConfigurationError("AgUiApp needs an agent with a journal: Agent(journal=SqliteJournal(…))")
        self._principal = principal
        self._deps = deps
        self._max_body = max_body

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Answers one request."""
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                await send({"type": f"{message['type']}.complete"})
                if message["type"] == "lifespan.shutdown":
                    return
        if scope["type"] != "http":
            return
        try:
            if scope["method"] != "POST":
                raise _Refusal(405, "send a POST with a RunAgentInput")
            try:
                principal = self._principal(scope)
            except PermissionError as error:
                raise _Refusal(403, str(error) or "you may not use this agent") from None
            request = _input_of(await self._body(receive))
        except _Refusal as refusal:
            body = json.dumps({"error": str(refusal)}).encode()
            head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": refusal.status, "headers": head})
            await send({"type": "http.response.body", "body": body})
            return
        await send({"type": "http.response.start", "status": 200, "headers": _HEAD})
        answer = asyncio.create_task(self._answer(request, principal, send))
        leaving = asyncio.create_task(_client_gone(receive))
        try:
            await asyncio.wait({answer, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (answer, leaving):
                task.cancel()
            await asyncio.wait({answer, leaving})
        if not answer.cancelled() and (failure := answer.exception()) is not None:
            raise failure

    async def _body(self, receive: AsgiReceive) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Refusal(400, "the request was not complete")
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > self._max_body:
                raise _Refusal(413, f"the request has more than {self._max_body} bytes")
            if not message.get("more_body"):
                return b"".join(pieces)

    async def _answer(self, request: core.RunAgentInput, principal: str | None, send: AsgiSend) -> None:
        agent: Agent[Any, Any] | AgentOf = self._agent
        tools = {} if isinstance(agent, Agent) else {each.name: each for each in request.tools or ()}
        events = AgUiEvents(request.thread_id, request.run_id, request.messages, tools)

        async def emit(event: core.BaseEvent) -> None:
            await send({"type": "http.response.body", "body": encode_event(event), "more_body": True})

        await emit(events.begin())
        try:
            if not isinstance(agent, Agent):
                agent = agent([front_end_tool(each) for each in tools.values()])
            deps = None if self._deps is None else self._deps(request)
            run = await _run_of(cast("Agent[Any, Any]", agent), request, principal, deps)
            if await run.journal.run(run.run_id) is not None:
                for event in events.restore((await load_state(run.journal, run.run_id)).metadata):
                    await emit(event)
            async with aclosing(run.stream(sub_runs=True)) as items:
                async for item in items:
                    for event in events.of(item):
                        await emit(event)
            last_events = events.end(run.state)
        except ProviderError as error:
            last_events = events.error(str(error), "provider_error")
        except ToolspeakError as error:
            last_events = events.error(str(error), type(error).__name__)
        except Exception:  # noqa: BLE001 - the client gets an end of the stream, whatever the program raises
            _LOG.exception("a run of an AG-UI client broke off")
            last_events = events.error("The agent failed; its log says why.", "internal_error")
        for event in last_events:
            await emit(event)
        await send({"type": "http.response.body", "body": b""})


def _input_of(body: bytes) -> core.RunAgentInput:
    try:
        return core.RunAgentInput.model_validate_json(body)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5])
        raise _Refusal(422, f"no RunAgentInput: {problems}") from None


async def _client_gone(receive: AsgiReceive) -> None:
    """Returns once the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def front_end_tool(tool: core.Tool) -> Tool:
    """A tool of the client. A call of it waits until the client brings the result, in this process or another.

    Raises ToolDefinitionError for a schema that cannot be used.
    """

    async def call_in_client(ctx: RunContext[Any], **_arguments: Any) -> Any:
        result = ctx.wait_for(_event_of(ctx.call.id))
        return cast("Mapping[str, Any]", result)["content"]

    no_parameters: Mapping[str, JSON] = {"type": "object", "properties": {}}
    given_schema: JSON = tool.parameters
    return Tool.from_schema(
        call_in_client,
        name=tool.name,
        description=tool.description,
        parameters=cast("Mapping[str, JSON]", given_schema) if isinstance(given_schema, dict) else no_parameters,
        # The client's user sees what it does there, and can refuse it there.
        read_only=True,
        timeout=None,
    )


def _event_of(call_id: str) -> str:
    return f"ag-ui-result {call_id}"[:200]


async def _run_of(agent: Agent[Any, Any], request: core.RunAgentInput, principal: str | None, deps: Any) -> Run[Any]:
    """The run that a request begins or continues. Raises ConfigurationError for a request without a task."""
    journal = agent.journal
    if journal is None:
        raise ConfigurationError("AgUiApp needs an agent with a journal: Agent(journal=SqliteJournal(…))")
    session_id = SESSION_PREFIX + request.thread_id
    session = Session(agent, session_id, principal=principal)
    info = await journal.session(session_id)
    last = None if info is None or info.last_run is None else await journal.run(info.last_run)
    if info is not None and info.principal != principal:
        raise ConfigurationError("this thread belongs to another user")
    if last is not None and last.status in PAUSED_STATUSES:
        run = await _paused_run(agent, journal, last.run_id, request, deps)
        if run is not None:
            return run
    if request.resume:
        raise ConfigurationError("nothing waits for these answers any more: send a message")
    task, before = _task_and_history(request)
    if info is None and before:
        now = time.time()
        await journal.add_session(
            SessionInfo(session_id, task.text[:80], now, now, principal=principal, history=tuple(before))
        )
    # A person who writes instead of answering has refused: none of the calls that wait runs.
    return await session.start(task, when_open="close", deps=deps)


async def _paused_run(
    agent: Agent[Any, Any], journal: Journal, run_id: str, request: core.RunAgentInput, deps: Any
) -> Run[Any] | None:
    """The paused run, with the answers of the request; None if the request has none for it."""
    state = await load_state(journal, run_id)
    answers = {entry.interrupt_id: entry for entry in request.resume or ()}
    decisions = {
        call_id: _decision(answers[call_id]) for call_id in state.approvals.open_requests if call_id in answers
    }
    results = [each for each in request.messages if isinstance(each, core.ToolMessage)]
    deliveries = [each for each in results if each.tool_call_id in state.pending.waits]
    for each in deliveries:
        payload = {"content": _text_of(each.content) if each.error is None else f"ERROR: {each.error}"}
        event = _event_of(each.tool_call_id)
        await journal.add_input(RunInput(run_id, "event", event, f"{event} {each.id}", payload, None, time.time()))
    if not decisions and not deliveries and not ({run_id, *state.pending.waits} & answers.keys()):
        return None
    return agent.reopen(run_id, decisions, deps=deps)


def _decision(entry: core.ResumeEntry) -> Decision:
    """The decision in an answer to an interrupt. Raises ConfigurationError for an answer that does not decide."""
    if entry.status == "cancelled":
        return Decision(False, "cancelled", by="client")
    payload = entry.payload
    if isinstance(payload, bool):
        return Decision(payload, by="client")
    fields = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    answer: JSON = fields.get("approved")
    arguments: JSON = fields.get("arguments")
    if not isinstance(answer, bool) or not (arguments is None or isinstance(arguments, dict)):
        raise ConfigurationError(
            f'the answer to {entry.interrupt_id!r} has no decision: write {{"approved": true}} or {{"approved": false}}'
        )
    reason = fields.get("reason")
    return Decision(answer, reason if isinstance(reason, str) else "", by="client", arguments=cast("Any", arguments))


def _task_and_history(request: core.RunAgentInput) -> tuple[Message, list[Message]]:
    """The last message of the user with what the client adds to it, and the conversation before."""
    places = [place for place, each in enumerate(request.messages) if isinstance(each, core.UserMessage)]
    if not places:
        raise ConfigurationError("there is no message of the user to answer")
    last = places[-1]
    task = _user_message(cast("core.UserMessage", request.messages[last]))
    if request.context:
        notes = "\n".join(f"- {each.description}: {each.value}" for each in request.context)
        task = Message("user", (TextPart(f"What the application says:\n{notes}\n\n"), *task.parts))
    return task, _history(request.messages[:last])


def _history(messages: Sequence[core.Message]) -> list[Message]:
    """The messages as ours. A call without a result, and a result without a call, is left out."""
    results = {each.tool_call_id: each for each in messages if isinstance(each, core.ToolMessage)}
    history: list[Message] = []
    for each in messages:
        if isinstance(each, core.UserMessage):
            history.append(_user_message(each))
        elif isinstance(each, core.SystemMessage | core.DeveloperMessage):
            history.append(Message.system(each.content))
        elif isinstance(each, core.AssistantMessage):
            calls = [call for call in each.tool_calls or () if call.id in results]
            parts: list[Part] = [TextPart(each.content)] if each.content else []
            parts += [ToolCall(call.id, call.function.name, _arguments(call.function.arguments)) for call in calls]
            if parts:
                history.append(Message("assistant", tuple(parts)))
            if calls:
                history.append(Message("tool", tuple([_tool_result(call, results[call.id]) for call in calls])))
    return history


def _tool_result(call: core.ToolCall, message: core.ToolMessage) -> ToolResult:
    text = _text_of(message.content) if message.error is None else message.error
    return ToolResult(call.id, call.function.name, "success" if message.error is None else "failure", (TextPart(text),))


def _arguments(text: str) -> dict[str, JSON]:
    with suppress(ValueError, RecursionError):
        value = json.loads(text or "{}")
        if isinstance(value, dict):
            return cast("dict[str, JSON]", value)
    return {}


def _user_message(message: core.UserMessage) -> Message:
    if isinstance(message.content, str):
        return Message.user(message.content)
    return Message("user", tuple([part for each in message.content if (part := _part(each)) is not None]))


def _part(part: object) -> ContentPart | None:
    """A part of a message of the user. None for one that no model could get, such as a file at a provider."""
    match part:
        case core.TextPart(text=text):
            return TextPart(text)
        case core.ImagePart(source=core.UrlSource(value=url, mime_type=kind)):
            return ImagePart(kind or "image/*", url=url)
        case core.ImagePart(source=core.DataSource(value=data, mime_type=kind)):
            return ImagePart(kind, data=_bytes_of(data))
        case (
            core.DocumentPart(source=core.DataSource(value=data, mime_type=kind))
            | core.AudioPart(source=core.DataSource(value=data, mime_type=kind))
            | core.VideoPart(source=core.DataSource(value=data, mime_type=kind))
        ):
            return FilePart("attachment", kind, _bytes_of(data))
        case _:
            return None


def _bytes_of(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        raise ConfigurationError("a part of the message is not Base64") from None


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = cast("Sequence[object]", content)
    return "".join(part.text for part in parts if isinstance(part, core.TextPart))
