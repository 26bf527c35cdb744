"""What servers ask a person, what they have besides tools, and tasks: real servers, in both kinds of revisions."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from mcp import types
from mcp.server.lowlevel import Server
from mcp_helpers import call, mcp_servers, traces
from terminal_harness import TerminalProcess, environment

from patience import in_time
from toolspeak.data.messages import ImagePart, ToolResult
from toolspeak.errors import ConfigurationError, McpError
from toolspeak.execute import ApprovalRequest, Decision, approve_all
from toolspeak.mcp import HttpServer, ServerPrompt, StdioServer
from uvicorn_here import serving

READS = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "size": {"type": "string", "enum": ["S", "L"], "default": "S"},
        "count": {"type": "integer", "minimum": 1},
    },
    "required": ["name", "count"],
}


class Person:
    """Fills in forms at the approver. Each entry is what they do with one question: fields, yes or no."""

    def __init__(self, *entries: dict[str, Any] | bool) -> None:
        self.entries = list(entries)
        self.requests: list[ApprovalRequest] = []
        self.problems: list[str] = []

    async def __call__(self, request: ApprovalRequest, /) -> Decision:
        self.requests.append(request)
        entry = self.entries.pop(0)
        if isinstance(entry, bool):
            return Decision(entry)
        try:
            revision = await request.revise(entry)
        except ConfigurationError as error:
            self.problems.append(str(error))
            return await self(request)
        return Decision(True, arguments=revision.call.arguments, digest=revision.digest)


def program(folder: Path, **offer: Any) -> StdioServer:
    """A server of an older revision, which asks during the call."""
    ok = {
        "name": "ok",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }
    (folder / "offer.json").write_text(json.dumps({"tools/list": {"tools": [ok]}, **offer}), "utf-8")
    return StdioServer("s", sys.executable, (str(Path(__file__).with_name("offering_server.py")), str(folder)))


@asynccontextmanager
async def modern_server(
    folder: Path, message: str, schema: dict[str, Any], again: int = 1
) -> AsyncGenerator[HttpServer]:
    """A server of the revision 2026-07-28, which answers a call with its question, `again` times."""

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        tool = types.Tool(name="ok", input_schema={"type": "object"}, annotations=READS)
        return types.ListToolsResult(tools=[tool])

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> Any:
        round_number = int(params.request_state or 0)
        if round_number:
            answer = (params.input_responses or {})["q"].model_dump(exclude_none=True, include={"action", "content"})
            with (folder / "answers").open("a") as file:
                file.write(json.dumps(answer) + "\n")
            if round_number == again:
                return types.CallToolResult(content=[types.TextContent(text=json.dumps(answer))])
        form = types.ElicitRequestFormParams(message=message, requested_schema=schema)
        question = {"q": types.ElicitRequest(params=form)}
        return types.InputRequiredResult(input_requests=question, request_state=str(round_number + 1))

    app = Server("asks", on_list_tools=list_tools, on_call_tool=call_tool).streamable_http_app()
    config = uvicorn.Config(app, log_level="critical", ws="none", timeout_graceful_shutdown=0)
    async with serving(config) as (_, port):
        yield HttpServer("s", f"http://127.0.0.1:{port}/mcp")


@asynccontextmanager
async def asking_server(way: str, folder: Path, message: str = "Who?", schema: Any = FORM) -> AsyncGenerator[Any]:
    if way == "legacy":
        yield program(folder, asks={"message": message, "requestedSchema": schema})
    else:
        async with modern_server(folder, message, schema) as server:
            yield server


WAYS = pytest.mark.parametrize("way", ["legacy", "modern"])


def outcome(way: str, folder: Path, person: Any, **form: Any) -> ToolResult:
    async def main() -> ToolResult:
        async with asking_server(way, folder, **form) as server, mcp_servers(server, questions=person) as servers:
            return await call(servers.tools, "s__ok")

    return asyncio.run(main())


@WAYS
def test_a_person_fills_in_the_fields_that_a_server_asks_for(way, tmp_path):
    person = Person({"name": "x", "count": 0}, {"name": "Ann", "count": 2, "size": "L"})
    result = outcome(way, tmp_path, person, message="Who?\x1b[2J")
    content = {"action": "accept", "content": {"name": "Ann", "count": 2, "size": "L"}}
    assert json.loads(result.text) == content
    first = person.requests[0]
    assert first.call.arguments == {"name": None, "size": "S", "count": None}  # null: to be filled in
    assert first.preview == "Who?\\x1b[2J"
    assert "'s' asks you" in first.reason
    assert "shorter than 2" in person.problems[0]
    assert "less than the minimum of 1" in person.problems[0]


@WAYS
def test_a_yes_to_fields_that_are_missing_asks_again_and_a_no_declines(way, tmp_path):
    person = Person(True, False)
    assert json.loads(outcome(way, tmp_path, person).text)["action"] == "decline"
    assert "edit the fields first" in person.requests[1].reason
    tired_person = Person(True, True, True)
    (tmp_path / "answers").unlink()
    assert json.loads(outcome(way, tmp_path, tired_person).text)["action"] == "cancel"


@WAYS
def test_a_yes_or_no_question_needs_no_editing(way, tmp_path):
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
    answer = outcome(way, tmp_path, Person(True), schema=schema)
    assert json.loads(answer.text) == {"action": "accept", "content": {"sure": True}}


@WAYS
def test_nobody_answers_for_a_person(way, tmp_path):
    assert json.loads(outcome(way, tmp_path, approve_all).text)["action"] == "cancel"
    assert outcome(way, tmp_path, None).status == ("failure" if way == "modern" else "success")
    if way == "legacy":
        assert "elicitation" not in json.loads(traces(tmp_path, "client")[-1])


def test_a_server_that_asks_without_end_is_given_up(tmp_path):
    schema = {"type": "object", "properties": {}}

    async def main() -> ToolResult:
        async with (
            modern_server(tmp_path, "Again?", schema, again=10**6) as server,
            mcp_servers(server, questions=Person(*[True] * 50)) as servers,
        ):
            return await call(servers.tools, "s__ok")

    result = asyncio.run(main())
    assert result.status == "failure"
    assert "again and again" in result.text


@pytest.mark.over_a_second
@WAYS
def test_the_time_that_a_person_takes_is_not_the_calls(way, tmp_path):
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}

    async def main(seconds: float) -> ToolResult:
        class Slow(Person):
            async def __call__(self, request: ApprovalRequest, /) -> Decision:
                await asyncio.sleep(1.5 * seconds)  # what the test is about: longer than the call's time limit
                return Decision(True)

        async with (
            asking_server(way, tmp_path, schema=schema) as server,
            mcp_servers(server, questions=Slow(), call_timeout=seconds) as servers,
        ):
            return await call(servers.tools, "s__ok")

    def attempt(seconds: float) -> None:
        assert asyncio.run(main(seconds)).status == "success"

    in_time(attempt, 1, 10, 30)


def test_resources_and_prompts_are_tools_and_prompts_are_for_the_person_too(tmp_path):
    pixel = {"uri": "file:///p.png", "mimeType": "image/png", "blob": "iVBORw0KGgo="}
    review = {"name": "review", "description": "Reviews\x1b code.", "arguments": [{"name": "file", "required": True}]}
    server = program(
        tmp_path,
        capabilities={"resources": {}, "prompts": {}},
        **{
            "resources/list": {
                "resources": [{"uri": "file:///a.txt", "name": "a", "description": "The notes.\x1b[2J"}]
            },
            "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "file:///{path}", "name": "any"}]},
            "resources/read": {"contents": [{"uri": "file:///a.txt", "text": "a note"}, pixel]},
            "prompts/list": {"prompts": [review, {"name": "review ", "description": "Another."}]},
            "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "Review a.txt."}}]},
        },
    )

    async def main() -> None:
        async with mcp_servers(server) as servers:
            names = [tool.name for tool in servers.tools]
            assert names == ["s__ok", "s__list_resources", "s__read_resource", "s__get_prompt"]
            listing = (await call(servers.tools, "s__list_resources")).text
            assert listing == "- file:///a.txt: a The notes.\\x1b[2J\n- file:///{path}: any"
            read = await call(servers.tools, "s__read_resource", uri="file:///a.txt")
            assert read.content[0].text == "a note"
            assert isinstance(read.content[1], ImagePart)
            tool = servers.tools.get("s__get_prompt")
            assert "- review(file): Reviews\\x1b code." in tool.spec.description
            assert tool.spec.effects.needs_approval  # the server may be anywhere
            prompt_text = (await call(servers.tools, "s__get_prompt", name="review", arguments={"file": "a"})).text
            assert prompt_text == "[user]\nReview a.txt."
            first, second = servers.prompts
            assert (first.server, first.name, first.command) == ("s", "review", "s__review")
            assert [(field.name, field.required) for field in first.fields] == [("file", True)]
            assert second.command != first.command
            (message,) = await servers.prompt_messages(first, {"file": "a"})
            assert (message.role, message.text) == ("user", "Review a.txt.")

    asyncio.run(main())


def test_a_server_whose_prompts_and_resources_cannot_be_read_still_has_tools(tmp_path):
    server = program(tmp_path, capabilities={"resources": {}, "prompts": {}}, **{"prompts/list": {"prompts": 7}})

    async def main() -> None:
        async with mcp_servers(server) as servers:
            assert (await call(servers.tools, "s__ok")).text == "fine"
            assert servers.prompts == ()
            failure = await call(servers.tools, "s__read_resource", uri="x")
            assert failure.status == "failure"
            assert "did not answer as it should" in failure.text
        with pytest.raises(McpError, match="no longer connected"):
            await servers.prompt_messages(ServerPrompt("s", "gone", "s__gone"), {})

    asyncio.run(main())


class Tasks:
    """A server whose tool goes on as a task, as the extension says."""

    def __init__(self, *states: dict[str, Any]) -> None:
        self.states = list(states)
        self.log: list[Any] = []

    def server(self) -> Server:
        async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
            tool = types.Tool(name="ok", input_schema={"type": "object"}, annotations=READS)
            return types.ListToolsResult(tools=[tool])

        async def call_tool(context: Any, _params: Any) -> Any:
            capabilities = context.session.client_capabilities
            assert "io.modelcontextprotocol/tasks" in capabilities.extensions
            return {"resultType": "task", "status": "working", **TASK}

        async def get(_context: Any, params: Any) -> Any:
            self.log.append(("get", params.taskId))
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            return {"resultType": "complete", **TASK, **state}

        async def update(_context: Any, params: Any) -> Any:
            self.log.append(("update", params.inputResponses))
            return {"resultType": "complete"}

        async def cancel(_context: Any, params: Any) -> Any:
            self.log.append(("cancel", params.taskId))
            return {"resultType": "complete"}

        server: Server = Server("tasks", on_list_tools=list_tools, on_call_tool=call_tool)
        for name, handler in (("get", get), ("update", update), ("cancel", cancel)):
            server.add_request_handler(f"tasks/{name}", TaskParams, handler)
        return server


class TaskParams(types.RequestParams):
    taskId: str = ""  # noqa: N815 - as on the wire
    inputResponses: Any = None  # noqa: N815


TASK = {"taskId": "t1", "createdAt": "2026-07-28T00:00:00Z", "lastUpdatedAt": "2026-07-28T00:00:00Z", "ttlMs": None}
TASK |= {"pollIntervalMs": 1}


@asynccontextmanager
async def task_server(tasks: Tasks) -> AsyncGenerator[HttpServer]:
    app = tasks.server().streamable_http_app()
    config = uvicorn.Config(app, log_level="critical", ws="none", timeout_graceful_shutdown=0)
    async with serving(config) as (_, port):
        yield HttpServer("s", f"http://127.0.0.1:{port}/mcp")


FINAL_STATUS = {"status": "completed", "result": {"content": [{"type": "text", "text": "the task is done"}]}}


@pytest.mark.parametrize(
    ("states", "text"),
    [
        ([{"status": "working", "statusMessage": "half"}, FINAL_STATUS], "the task is done"),
        ([{"status": "failed", "error": {"code": -32603, "message": "no disk\x1b"}}], "no disk\\x1b"),
        ([{"status": "cancelled", "statusMessage": "by its operator"}], "by its operator"),
        ([{"status": "odd"}], "not an MCP result"),
        ([{"status": "completed", "result": {"content": 7}}], "not an MCP result"),
    ],
)
def test_a_task_is_followed_to_its_result(states, text):
    tasks = Tasks(*states)

    async def main() -> ToolResult:
        async with task_server(tasks) as server, mcp_servers(server) as servers:
            return await call(servers.tools, "s__ok")

    result = asyncio.run(main())
    assert text in result.text
    assert (result.status == "success") == (text == "the task is done")
    assert ("get", "t1") in tasks.log


def test_a_task_asks_the_person_and_is_cancelled_with_its_call():
    form = {"mode": "form", "message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
    question = {"status": "input_required", "inputRequests": {"q": {"method": "elicitation/create", "params": form}}}
    tasks = Tasks(question, FINAL_STATUS)

    async def main() -> None:
        async with task_server(tasks) as server, mcp_servers(server, questions=Person(True)) as servers:
            assert (await call(servers.tools, "s__ok")).text == "the task is done"
            assert tasks.log[1] == ("update", {"q": {"action": "accept", "content": {}}})
            tasks.states = [{"status": "working"}]
            waiting = asyncio.create_task(call(servers.tools, "s__ok"))
            async with asyncio.timeout(60):
                count = len(tasks.log)
                while len(tasks.log) == count:  # noqa: ASYNC110 - the server is asked
                    await asyncio.sleep(0.005)
                waiting.cancel()
                await asyncio.wait([waiting])
                while tasks.log[-1][0] != "cancel":  # noqa: ASYNC110
                    await asyncio.sleep(0.005)

    asyncio.run(main())


def test_at_a_terminal_a_person_fills_in_what_a_server_asks(tmp_path):
    server = program(tmp_path, asks={"message": "Who are you?\x1b[2J", "requestedSchema": FORM})
    entry = {"mcpServers": {"s": {"command": server.command, "args": list(server.args)}}}
    (tmp_path / "mcp.json").write_text(json.dumps(entry), "utf-8")
    turns = [{"text": "", "calls": [{"name": "s__ok", "arguments": {}}]}, "It was {{last}}."]
    (tmp_path / "turns.json").write_text(json.dumps({"turns": turns}), "utf-8")
    arguments = ("run", "ask", "--model", "scripted:turns.json", "--mcp", "mcp.json", "--journal", "none")
    # Without an editor, the fields are edited on the line.
    with TerminalProcess(*arguments, cwd=tmp_path, env=environment(PATH=str(tmp_path))) as process:
        question = process.read_until("(q)uit the run: ")
        assert "Who are you?\\x1b[2J" in question
        process.type("y\n")  # two fields are missing
        assert "edit the fields first" in process.read_until("(q)uit the run: ")
        process.type("e\n")
        process.read_until("keep the old ones): ")
        process.type('{"name": "Ann", "count": 2}\n')
        process.read_until("(q)uit the run: ")
        process.type("y\n")
        code, _ = process.finish()
    assert code == 0
    assert json.loads(traces(tmp_path, "answers")[0]) == {"action": "accept", "content": {"name": "Ann", "count": 2}}
