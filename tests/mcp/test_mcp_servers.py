"""MCP servers as tools: real servers made with the SDK, as programs and over HTTP on the loopback interface."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from loopback_server import serve
from mcp_helpers import PATIENT, call, calls, http_server, is_running, mcp_servers, program, traces, wait_for_trace
from mcp_server import HUGE, PIXEL

from patience import in_time
from sweeps import grid
from toolspeak import Agent, Decision, Effects
from toolspeak.data.messages import FilePart, ImagePart, JsonPart, Message, TextPart, ToolCall
from toolspeak.data.tools import EVERYTHING, NO_VERSION, UNDECLARED_EFFECTS
from toolspeak.dialects import get_dialect
from toolspeak.errors import ConfigurationError, McpError
from toolspeak.mcp import HttpServer, McpServers, StdioServer
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn


@asynccontextmanager
async def server(way: str, folder: Path, **options: float):
    """The test server, connected in the given way."""
    async with AsyncExitStack() as stack:
        match way:
            case "program":
                settings = program(folder)
            case "legacy program":
                settings = program(folder, "legacy")
            case _:
                settings = await stack.enter_async_context(http_server(folder, transport=way))
        yield await stack.enter_async_context(mcp_servers(settings, **options))


def run(coroutine):
    return asyncio.run(coroutine)


@pytest.mark.parametrize("way", ["program", "legacy program", "http", "sse"])
def test_what_a_server_answers_is_the_result(way, tmp_path):
    async def main():
        async with server(way, tmp_path) as servers:
            lines: list[str] = []
            return await calls(
                servers.tools,
                ("s__echo", {"text": "Grüße, 世界 \U0001f600 \u2028"}),
                ("s__fails", {}),
                ("s__shows", {}),
                ("s__weather", {}),
                ("s__lies", {}),
                ("s__named_oddly", {"self": "1", "context": "2", "arguments": "3", "from": "4", "a b": "5"}),
                ("s__wetter-f_r_heute_", {"text": "ü"}),
                ("s__reports", {}),
                progress=lines,
            ), lines

    (echo, failure, media, weather, lies, odd, unicode, reports), lines = run(main())
    assert (echo.status, echo.text) == ("success", "Grüße, 世界 \U0001f600 \u2028")
    assert (failure.status, failure.text) == ("failure", "there is no such ticket: 7; known: 1 to 6")
    assert [type(part) for part in media.content] == [TextPart, ImagePart, TextPart, FilePart, TextPart, TextPart]
    assert media.content[1] == ImagePart("image/png", PIXEL)
    assert "not valid base64" in media.content[2].text
    assert media.content[3] == FilePart("audio", "audio/wav", PIXEL)
    assert [media.content[4].text, media.content[5].text] == [
        "a note",
        "[the rest, at https://example.org/rest]",
    ]
    assert weather.content == (TextPart("It is 20 degrees."), JsonPart({"degrees": 20}))
    assert weather.structured == {"degrees": 20}
    assert (lies.status, lies.structured, lies.content[0].text) == ("success", None, "It is warm.")
    assert 'degrees: "warm" is not of type "integer"' in lies.content[1].text
    assert odd.text.startswith("named oddly {'self': '1', 'context': '2', 'arguments': '3'")
    assert unicode.text == "wetter-für/heute ☀ {'text': 'ü'}"
    assert (reports.text, lines) == ("all of it", ["half of it (1 of 2)"])


def test_arguments_are_checked_before_the_server_hears_of_the_call(tmp_path):
    async def main():
        async with server("program", tmp_path) as servers:
            return await calls(
                servers.tools,
                ("s__echo", {"text": 1}),
                ("s__echo", {}),
                ("s__echo", {"text": "half \ud800"}),
                ("s__referring", {"n": "one"}),
            )

    texts = [result.text for result in run(main())]
    assert 'text: 1 is not of type "string"' in texts[0]
    assert '"text" is a required property' in texts[1]
    assert "half of a character" in texts[2]
    assert 'n: "one" is not of type "integer"' in texts[3]
    assert traces(tmp_path, "calls") == []


def test_a_huge_result_is_capped_like_any_other(tmp_path):
    async def main():
        async with server("http", tmp_path) as servers:
            return await call(servers.tools, "s__huge")

    result = run(main())
    assert len(result.text) < 20_000 < HUGE - result.extra["truncated_bytes"] + 20_000
    assert "bytes left out here" in result.text


def test_a_servers_annotations_become_the_effects_of_its_tools(tmp_path):
    async def main():
        async with server("program", tmp_path) as servers:
            return {spec.name: spec for spec in servers.tools.specs}

    specs = run(main())
    reads = Effects(reads={EVERYTHING}, idempotent=True, destructive=False, version=NO_VERSION)
    assert specs["s__echo"].effects == reads
    assert specs["s__plain"].effects == UNDECLARED_EFFECTS
    writes = {"reads": {EVERYTHING}, "writes": {EVERYTHING}}
    assert specs["s__drops"].effects == Effects(**writes)
    assert specs["s__adds"].effects == Effects(**writes, idempotent=True, destructive=False)
    # The specification's default for what reaches the outside.
    assert specs["s__searches"].effects == Effects(
        reads={EVERYTHING}, external=True, idempotent=True, destructive=False, version=NO_VERSION
    )
    assert specs["s__echo"].description == "Says it again."
    assert specs["s__echo"].parameters["required"] == ["text"]


def test_a_schema_that_cannot_be_used_leaves_its_tool_out_and_fetches_nothing(tmp_path):
    async def main():
        async def answer(_exchange):
            raise AssertionError("somebody fetched the schema")

        async with serve(answer) as elsewhere:
            address = f"{elsewhere.base_url}/schema.json"
            async with mcp_servers(program(tmp_path, REMOTE=address)) as servers:
                return servers, address, len(elsewhere.exchanges)

    servers, address, fetch_count = run(main())
    assert fetch_count == 0
    assert [omission.tool for omission in servers.left_out] == ["fetching", "misspelt"]
    assert f"refers to {address}" in str(servers.left_out[0])
    assert "'integr'" in str(servers.left_out[1]).replace('"', "'")
    assert "s__fetching" not in servers.tools


@pytest.mark.over_a_second
def test_tools_of_one_name_in_two_servers_get_distinct_names(tmp_path):
    async def main():
        one, other = tmp_path / "one", tmp_path / "other"
        for folder in (one, other):
            folder.mkdir()
        async with mcp_servers(program(one, name="a"), program(other, name="b")) as servers:
            results = await calls(servers.tools, ("a__echo", {"text": "1"}), ("b__echo", {"text": "2"}))
            assert (servers.origin_of("a__echo"), servers.origin_of("b__echo")) == (("a", "echo"), ("b", "echo"))
            return results, traces(one, "calls"), traces(other, "calls")

    results, first, second = run(main())
    assert [result.text for result in results] == ["1", "2"]
    assert first == second == ["echo"]


def test_names_that_would_become_equal_stay_distinct(tmp_path):
    async def main():
        async with mcp_servers(program(tmp_path, name="a b"), program(tmp_path, name="a.b")) as servers:
            return list(servers.tools)

    tools = run(main())
    names = [tool.name for tool in tools]
    assert len(names) == len(set(names))
    assert "a_b__echo" in names
    assert sum(name.startswith("a_b__echo_") for name in names) == 1
    assert all(len(name) <= 64 for name in names)


@pytest.mark.parametrize("way", ["program", "legacy program", "http"])
def test_cancelling_a_call_cancels_it_in_the_server(way, tmp_path):
    async def main():
        async with server(way, tmp_path) as servers:
            waiting = asyncio.create_task(call(servers.tools, "s__waits"))
            await wait_for_trace(tmp_path, "waiting")
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await wait_for_trace(tmp_path, "cancelled")
            return (await call(servers.tools, "s__echo", text="still here")).text

    assert run(main()) == "still here"


def test_a_call_past_its_time_limit_is_cancelled_in_the_server(tmp_path):
    async def main():
        for seconds in (0.2, 5, 60):
            (tmp_path / f"{seconds}").mkdir()
            async with server("program", tmp_path / f"{seconds}", call_timeout=seconds) as servers:
                result = await call(servers.tools, "s__waits")
                # A machine that stands still may cancel what the server has not yet begun.
                if traces(tmp_path / f"{seconds}", "waiting"):
                    await wait_for_trace(tmp_path / f"{seconds}", "cancelled")
                    return result, seconds
        raise AssertionError("the server did not begin the call")

    result, seconds = run(main())
    assert (result.status, result.code) == ("failure", "timeout")
    assert f"did not finish within {seconds:g} seconds" in result.text
    assert len(traces(tmp_path / f"{seconds}", "starts")) == 1


@pytest.mark.over_a_second
def test_a_server_that_dies_fails_its_calls_and_is_started_again_for_the_next(tmp_path):
    async def main():
        async with server("program", tmp_path) as servers:
            waiting = asyncio.create_task(call(servers.tools, "s__waits"))
            await wait_for_trace(tmp_path, "waiting")
            dead_result = await call(servers.tools, "s__dies")
            also = await waiting
            after = await asyncio.gather(*(call(servers.tools, "s__echo", text=str(n)) for n in range(5)))
            return dead_result, also, after

    dead_result, also, after = run(main())
    assert dead_result.status == also.status == "failure"
    assert "gone before it answered" in dead_result.text
    assert "not known" in dead_result.text
    assert "out of memory, I fear" in dead_result.text
    assert "gone before it answered" in also.text
    assert [result.text for result in after] == ["0", "1", "2", "3", "4"]
    assert len(traces(tmp_path, "starts")) == 2
    assert traces(tmp_path, "calls").count("dies") == 1


def test_a_server_that_cannot_be_started_again_fails_the_call_with_the_reason(tmp_path):
    script = tmp_path / "once.sh"
    script.write_text(
        f'if [ -e "{tmp_path}/again" ]; then echo "no licence left" >&2; exit 1; fi\n'
        f'touch "{tmp_path}/again"\nexec "$@"\n'
    )
    whole = program(tmp_path)

    async def main():
        once = StdioServer("s", "sh", (str(script), whole.command, *whole.args))
        async with mcp_servers(once) as servers:
            await call(servers.tools, "s__dies")
            return await call(servers.tools, "s__echo", text="x")

    result = run(main())
    assert result.status == "failure"
    assert "cannot be used" in result.text
    assert "no licence left" in result.text


@pytest.mark.over_a_second
def test_a_server_that_hangs_is_started_again_for_the_next_call(tmp_path):
    async def main():
        async with server("program", tmp_path, probe_timeout=0.2) as servers:
            frozen_call = asyncio.create_task(call(servers.tools, "s__freezes"))
            await wait_for_trace(tmp_path, "waiting")
            frozen_call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await frozen_call
            result = await call(servers.tools, "s__echo", text="again")
            return result, [int(pid) for pid in traces(tmp_path, "starts")]

    result, pids = run(main())
    assert result.text == "again"
    assert len(pids) == 2
    assert not any(map(is_running, pids))


# Of a connection that is cut off, the SDK's server over HTTP+SSE does not close its streams.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("way", ["http", "sse"])
def test_a_server_over_http_is_reached_again_after_an_outage(way, tmp_path):
    async def main():
        async with AsyncExitStack() as stack:
            settings = await stack.enter_async_context(http_server(tmp_path, transport=way))
            port = int(settings.url.rpartition(":")[2].partition("/")[0])
            servers = await AsyncExitStack().enter_async_context(mcp_servers(settings))
            before = await call(servers.tools, "s__echo", text="before")
            await stack.aclose()
            away = await call(servers.tools, "s__echo", text="away")
            async with http_server(tmp_path, port, transport=way):
                after = await call(servers.tools, "s__echo", text="after")
                await servers.aclose()
            return before, away, after

    before, away, after = run(main())
    assert (before.text, after.text) == ("before", "after")
    assert away.status == "failure"
    assert "'s'" in away.text


@pytest.mark.parametrize("way", ["program", "legacy program", "http", "sse"])
def test_changed_tools_apply_to_the_next_run(way, tmp_path):
    async def main():
        async with server(way, tmp_path) as servers:
            assert not await servers.refresh()
            await call(servers.tools, "s__learns", name="sings")
            assert "s__sings" not in servers.tools  # a run continues with the tools that it has
            async with asyncio.timeout(PATIENT):
                while not await servers.refresh():  # noqa: ASYNC110 - over HTTP the news comes by a way of its own
                    await asyncio.sleep(0.005)
            return (await call(servers.tools, "s__sings")).text

    assert run(main()) == "sings {}"


def test_leaving_ends_every_server_that_was_started(tmp_path):
    async def main():
        async with mcp_servers(program(tmp_path, name="a"), program(tmp_path, name="b")) as servers:
            pids = [int((await call(servers.tools, f"{name}__pid")).text) for name in ("a", "b")]
            assert all(map(is_running, pids))
            waiting = asyncio.create_task(call(servers.tools, "a__waits"))
            await wait_for_trace(tmp_path, "waiting")
        result = await waiting
        late = await call(servers.tools, "a__echo", text="x")
        return pids, result, late

    pids, result, late = run(main())
    assert not any(map(is_running, pids))
    assert result.status == late.status == "failure"
    assert "no longer connected" in late.text


def test_one_server_that_fails_to_start_ends_the_others_and_is_named(tmp_path):
    async def main():
        broken_server = StdioServer("broken", sys.executable, ("-c", "raise SystemExit('no such database')"))
        missing = StdioServer("missing", str(tmp_path / "nowhere"), ("--key", "s3cret"))
        async with mcp_servers(program(tmp_path), broken_server, missing):
            raise AssertionError("entered")

    with pytest.raises(McpError) as raised_error:
        run(main())
    message = str(raised_error.value)
    assert "'broken' cannot be used" in message
    assert "no such database" in message
    assert "'missing' cannot be used: FileNotFoundError" in message
    assert f"Start '{tmp_path}/nowhere' by hand" in message
    assert "s3cret" not in message
    assert not any(is_running(int(pid)) for pid in traces(tmp_path, "starts"))


@pytest.mark.over_a_second
def test_a_server_that_never_answers_is_given_up(tmp_path):
    pid = tmp_path / "pid"

    async def main():
        code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(1000)"
        async with mcp_servers(StdioServer("mute", sys.executable, ("-c", code)), connect_timeout=1.0):
            raise AssertionError("entered")

    with pytest.raises(McpError, match="'mute' cannot be used: it was not ready within 1 seconds"):
        run(main())
    assert not pid.exists() or not is_running(int(pid.read_text()))


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_an_address_where_nothing_is_served_is_named(transport):
    async def main():
        async with mcp_servers(HttpServer("far", "http://127.0.0.1:9/mcp", transport=transport)):
            raise AssertionError("entered")

    with pytest.raises(McpError, match=r"'far' cannot be used: ConnectError: .*http://127\.0\.0\.1,"):
        run(main())


def test_a_session_that_the_server_has_forgotten_is_opened_again_and_the_call_made_once(tmp_path):
    """An older server over HTTP was restarted. It refuses the call, so it has not run the call."""
    request_methods: list[str] = []
    sessions: list[str] = []

    async def answer(exchange):
        request = exchange.json if exchange.body else {}
        method = request.get("method", exchange.request_line.split()[0])
        request_methods.append(method)
        match method:
            case "initialize":
                sessions.append(f"session-{len(sessions)}")
                result = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "old", "version": "1"},
                }
                await exchange.send(*_rpc(request, result, f"mcp-session-id: {sessions[-1]}\r\n"))
            case "tools/list":
                await exchange.send(*_rpc(request, {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}))
            case "tools/call" if exchange.headers["mcp-session-id"] == "session-1":
                await exchange.send(*_rpc(request, {"content": [{"type": "text", "text": "done"}]}))
            case "notifications/initialized" | "DELETE":
                await exchange.send(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
            case "GET":
                await exchange.send(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n")
            case _:
                await exchange.send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")

    async def main():
        async with serve(answer) as old, mcp_servers(HttpServer("s", old.base_url)) as servers:
            return await call(servers.tools, "s__echo")

    result = run(main())
    assert (result.status, result.text) == ("success", "done")
    assert len(sessions) == 2
    assert request_methods.count("tools/call") == 2


def _rpc(request: dict, result: dict, headers: str = "") -> list[bytes]:
    body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{headers}content-length: {len(body)}\r\n\r\n"
    return [head.encode(), body]


def test_headers_go_with_every_request(tmp_path):
    async def main():
        async def answer(exchange):
            await exchange.send(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")

        async with serve(answer) as closed_server:
            settings = HttpServer("far", closed_server.base_url, {"authorization": "Bearer abc"})
            with pytest.raises(McpError) as raised_error:
                await mcp_servers(settings).__aenter__()
            assert "abc" not in str(raised_error.value)
            return [exchange.headers.get("authorization") for exchange in closed_server.exchanges]

    authorizations = run(main())
    assert authorizations
    assert set(authorizations) == {"Bearer abc"}


def test_two_servers_of_one_name_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="two MCP servers have the name 's'"):
        McpServers([program(tmp_path), program(tmp_path)])


def test_an_agent_uses_the_tools_of_a_file(tmp_path):
    whole = program(tmp_path)
    config = {"mcpServers": {"s": {"command": whole.command, "args": list(whole.args)}}}
    (tmp_path / "mcp.json").write_text(json.dumps(config), encoding="utf-8")
    tool_calls = (ToolCall("", "s__echo", {"text": "hello"}), ToolCall("", "s__plain", {"text": "write"}))
    turn = get_dialect("hermes").render([Message("assistant", tool_calls)])[0].text

    async def main():
        async with McpServers.from_file(tmp_path / "mcp.json", connect_timeout=PATIENT) as servers:
            agent = Agent(ScriptedProvider([turn, "done"]), tools=[*servers.tools], dialect="hermes", approve="none")
            return await agent.run("say hello")

    result = run(main())
    assert result.answer == "done"
    results = [part for message in result.state.messages for part in message.results]
    assert (results[0].status, results[0].text) == ("success", "hello")
    assert results[1].code == "rejected"  # it does not say what it touches, so the call needs approval
    assert traces(tmp_path, "calls") == ["echo"]


def raw(folder: Path, script: str, *arguments: str) -> StdioServer:
    """A server that writes the protocol without the SDK, and also messages that are not allowed."""
    return StdioServer("s", sys.executable, (str(Path(__file__).with_name(script)), str(folder), *arguments))


MOMENTS = ["waiting", "told", "again", "over"]
"""Leaving while the server says nothing to a call, while it is being replaced, while the new one says nothing, and when
the call has failed for that."""


@pytest.mark.over_a_second
@pytest.mark.parametrize(("moment", "interrupts"), grid(MOMENTS, [1, 2], every=2))
def test_leaving_a_server_that_hangs_ends_it_at_every_moment(moment, interrupts, tmp_path):
    async def main(folder, connect_timeout):
        async def work():
            options = {"connect_timeout": connect_timeout, "call_timeout": 10 * PATIENT, "probe_timeout": 0.1}
            async with mcp_servers(raw(folder, "hung_server.py"), **options) as servers:
                first = asyncio.create_task(call(servers.tools, "s__ask"))
                await wait_for_trace(folder, "waiting")
                if moment == "waiting":
                    await first
                first.cancel()
                await asyncio.wait([first])
                return await call(servers.tools, "s__ask")

        working = asyncio.create_task(work())
        if moment == "over":
            result = await working
            return "was not ready" in result.text or "cannot be used" in result.text
        await wait_for_trace(folder, moment)
        for _ in range(interrupts):
            working.cancel()
            await asyncio.sleep(0)
        async with asyncio.timeout(PATIENT):
            await asyncio.wait([working])
        return working.cancelled()

    def attempt(seconds):
        folder = tmp_path / f"{seconds}"
        folder.mkdir()
        assert run(main(folder, seconds))
        pids = [int(pid) for pid in traces(folder, "starts")]
        assert len(pids) == (2 if moment in ("again", "over") else 1)
        assert not any(map(is_running, pids))

    in_time(attempt, *((1, 10, 60) if moment == "over" else (10 * PATIENT,)))


@pytest.mark.over_a_second
def test_a_server_whose_output_has_ended_is_replaced_before_a_call_is_sent_to_it(tmp_path):
    async def main():
        async with mcp_servers(raw(tmp_path, "odd_server.py", "falls silent")) as servers:
            first = await call(servers.tools, "s__ok")
            await wait_for_trace(tmp_path, "input ended")  # it is being ended, which takes its time
            return first, await call(servers.tools, "s__ok")

    first, second = run(main())
    assert (first.text, second.text) == ("fine", "fine")
    pids = [int(pid) for pid in traces(tmp_path, "starts")]
    assert len(pids) == 2
    assert not any(map(is_running, pids))


BAD = ["120 deep", "no type", "another type", "no schema", "no name", "a list"]


@pytest.mark.parametrize("how", BAD)
def test_one_tool_that_cannot_be_read_is_left_out_and_the_others_are_there(how, tmp_path):
    async def main():
        async with mcp_servers(raw(tmp_path, "odd_server.py", how)) as servers:
            return servers, await call(servers.tools, "s__ok")

    servers, result = run(main())
    assert ([tool.name for tool in servers.tools], result.text) == (["s__ok"], "fine")
    (omission,) = servers.left_out
    assert omission.tool == ("None" if how == "no name" else "?" if how == "a list" else "bad")
    assert {"120 deep": "more than 128 deep", "no type": "inputSchema.type: Field required"}.get(
        how, ""
    ) in omission.reason


def test_the_last_output_of_a_server_does_not_control_the_terminal(tmp_path):
    async def main():
        async with mcp_servers(raw(tmp_path, "odd_server.py", "dies")):
            raise AssertionError("entered")

    with pytest.raises(McpError) as raised_error:
        run(main())
    message = str(raised_error.value)
    assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for character in message)
    assert r"\x1b]52;c;cm0gLXJm\x07" in message


class Approvals:
    def __init__(self) -> None:
        self.questions: list[tuple[str, str]] = []

    async def __call__(self, request):
        self.questions.append((request.tool.name, request.reason))
        return Decision(True, by="ann", always=request.always())


@pytest.mark.parametrize("how", ["comes back otherwise", "changes its mind"])
def test_a_redefined_tool_needs_a_new_answer(how, tmp_path):
    """`ok` only reads, `write` writes; both get another definition when the server comes back, or while it serves."""

    async def main():
        person = Approvals()
        turns = [
            ScriptedTurn("", calls=[ScriptedCall("s__write")]),
            ScriptedTurn("", calls=[ScriptedCall("s__ok")]),
            *(ScriptedTurn("", calls=[ScriptedCall(name)]) for name in ("s__ok", "s__ok", "s__write", "s__write")),
            "Done.",
        ]
        async with mcp_servers(raw(tmp_path, "odd_server.py", how)) as servers:
            agent = Agent(ScriptedProvider(turns), servers.tools, approve=person)
            result = await agent.run("Go.")
        return person.questions, [each.text for message in result.messages for each in message.results]

    questions, texts = run(main())
    reads = [text for text in texts if "has changed the definition of 'ok'" in text]
    assert len(reads) == 1  # the call that ran without approval, as a read, was not made
    assert [name for name, _ in questions] == ["s__write", "s__ok", "s__write"]
    assert "writes" in questions[1][1]
    assert traces(tmp_path, "calls").count("ok") == texts.count("fine") - traces(tmp_path, "calls").count("write")
