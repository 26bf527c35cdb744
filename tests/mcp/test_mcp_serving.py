"""Tools and agents that toolspeak serves, to the SDK's own client, in both kinds of revisions."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp import MCPError, types
from mcp_clients import MODES, NO, YES, Person, address_of, client_of, client_of_app, first_answer, text_of
from mcp_server import PIXEL

from toolspeak import Agent, Effects, RunContext, tool
from toolspeak.agent import Approval
from toolspeak.data.messages import FilePart, ImagePart, TextPart
from toolspeak.execute import Rule, StandingRules
from toolspeak.journal import MemoryJournal, SqliteJournal
from toolspeak.journal.base import RunInput
from toolspeak.mcp import McpApp
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn


class Shop:
    """Tools that remember what ran."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.stocks = {"apple": 3}
        self.gate = asyncio.Event()
        self.entry = asyncio.Event()

    def tools(self) -> list:
        @tool(read_only=True)
        def stock(item: str) -> dict:
            """How many of an item there are."""
            self.log.append(f"stock {item}")
            return {"item": item, "count": self.stocks.get(item, 0)}

        @tool(effects=lambda item, count: Effects(writes={f"shop:{item}"}, destructive=False))
        async def order(item: str, count: int) -> str:
            """Orders some of an item."""
            self.log.append(f"order {count} {item}")
            self.stocks[item] = self.stocks.get(item, 0) + count
            return f"ordered {count} {item}"

        @tool(effects=Effects(idempotent=True, destructive=False))
        async def waits(ctx: RunContext) -> str:
            """Waits until somebody lets it go."""
            ctx.progress("waiting for the gate")
            self.entry.set()
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.log.append("cancelled")
                raise
            return "the gate is open"

        @tool
        def undeclared_tool() -> int:
            """Says nothing about itself."""
            return 1

        @tool(read_only=True)
        def breaks() -> str:
            """Fails."""
            raise ValueError("the printer is out of paper")

        @tool(read_only=True)
        def shows() -> list:
            """Shows an image and a file."""
            return [TextPart("a pixel"), ImagePart("image/png", PIXEL), FilePart("a b.bin", "application/x-b", b"\0\1")]

        return [stock, order, waits, undeclared_tool, breaks, shows]


@pytest.mark.parametrize("mode", MODES)
def test_a_client_lists_the_tools_with_their_effects_and_calls_them(mode):
    shop = Shop()

    async def main():
        async with client_of_app(McpApp(shop.tools()), mode, elicitation_callback=Person(YES)) as client:
            listing = {each.name: each for each in (await client.list_tools()).tools}
            hints = {name: each.annotations for name, each in listing.items()}
            assert hints["undeclared_tool"] is None
            assert (hints["stock"].read_only_hint, hints["stock"].open_world_hint) == (True, False)
            assert (hints["order"].read_only_hint, hints["order"].destructive_hint) == (False, True)  # its upper bound
            assert (hints["waits"].idempotent_hint, hints["waits"].destructive_hint) == (True, False)
            assert listing["order"].input_schema["required"] == ["item", "count"]
            stock = await client.call_tool("stock", {"item": "apple"})
            assert (stock.structured_content, stock.is_error) == ({"item": "apple", "count": 3}, False)
            contents = (await client.call_tool("shows", {})).content
            assert [each.type for each in contents] == ["text", "image", "resource"]
            assert base64.b64decode(contents[1].data) == PIXEL
            assert (base64.b64decode(contents[2].resource.blob), contents[2].resource.uri) == (
                b"\0\1",
                "file:///a%20b.bin",
            )
            wrong = await client.call_tool("stock", {"itm": "apple"})
            assert wrong.is_error
            assert "Did you mean item?" in text_of(wrong)
            failed_result = await client.call_tool("breaks", {})
            assert failed_result.is_error
            assert "out of paper" in text_of(failed_result)
            assert "Traceback" not in text_of(failed_result)
            with pytest.raises(MCPError, match="there is no tool of this name"):
                await client.call_tool("nothing", {})

    asyncio.run(main())


def test_a_list_comes_in_pages_that_may_be_kept_and_a_foreign_cursor_is_refused():
    def numbered_tool(number: int):
        @tool(name=f"tool_{number:03}", read_only=True)
        def one() -> int:
            """One of many."""
            return number

        return one

    async def main():
        async with client_of_app(McpApp([numbered_tool(each) for each in range(250)])) as client:
            names: list[str] = []
            cursor, pages = None, 0
            while pages == 0 or cursor is not None:
                page = await client.list_tools(cursor=cursor)
                names += [each.name for each in page.tools]
                cursor, pages = page.next_cursor, pages + 1
                assert page.ttl_ms > 0
            assert (pages, names) == (3, [f"tool_{each:03}" for each in range(250)])
            for foreign in ("x", "é", "NTAgYWJj", base64.urlsafe_b64encode(b"-1 ").decode(), "9" * 10_000):
                with pytest.raises(MCPError, match="list them from the beginning"):
                    await client.list_tools(cursor=foreign)

    asyncio.run(main())


@pytest.mark.parametrize("mode", MODES)
def test_a_call_that_writes_asks_the_clients_user_and_runs_after_the_yes_alone(mode):
    shop, person = Shop(), Person(NO, "decline", "cancel", YES)

    async def main():
        async with client_of_app(McpApp(shop.tools()), mode, elicitation_callback=person) as client:
            refusal = await client.call_tool("order", {"item": "pear", "count": 1})
            assert refusal.is_error
            assert "not today" in text_of(refusal)
            assert (await client.call_tool("order", {"item": "pear", "count": 2})).is_error
            assert (await client.call_tool("order", {"item": "pear\x1b[2J", "count": 3})).is_error
            assert shop.log == []
            assert text_of(await client.call_tool("order", {"item": "pear", "count": 4})) == "ordered 4 pear"

    asyncio.run(main())
    assert shop.log == ["order 4 pear"]
    assert len(person.questions) == 4
    assert "order" in person.questions[0]
    assert "shop:pear" in person.questions[0]
    assert "\x1b" not in "".join(person.questions)


@pytest.mark.parametrize("mode", MODES)
def test_a_client_that_cannot_ask_is_told_what_to_do(mode):
    shop = Shop()

    async def main():
        async with client_of_app(McpApp(shop.tools()), mode) as client:
            refusal = await client.call_tool("order", {"item": "pear", "count": 1})
            assert refusal.is_error
            assert "--approve all" in text_of(refusal)
        async with client_of_app(McpApp(shop.tools(), approve="all"), mode) as client:
            assert not (await client.call_tool("order", {"item": "pear", "count": 1})).is_error

    asyncio.run(main())
    assert shop.log == ["order 1 pear"]


def test_an_answer_counts_in_any_process_once_and_for_its_own_question(tmp_path):
    shop, call = Shop(), {"item": "pear", "count": 1}

    def app() -> McpApp:  # another server of the same journal
        return McpApp(shop.tools(), journal=SqliteJournal(tmp_path / "calls.db"))

    async def main():
        async with client_of_app(app(), elicitation_callback=Person(YES)) as client:
            question = await first_answer(client, "order", call)
            assert isinstance(question, types.InputRequiredResult)
        ((key, _),) = question.input_requests.items()
        yes = {key: types.ElicitResult(action="accept", content=YES)}
        async with client_of_app(app(), elicitation_callback=Person(YES)) as client:
            for wrong in (
                {"arguments": {"item": "pear", "count": 100}},
                {"name": "stock", "arguments": {"item": "pear"}},
                {"request_state": "0" * 32},
                {"request_state": question.request_state + "x"},
                {"request_state": "\0/../.."},
                {"request_state": ""},
            ):
                more = {"name": "order", "arguments": call, "request_state": question.request_state, **wrong}
                with pytest.raises(MCPError):
                    await first_answer(client, input_responses=yes, **more)
            state = question.request_state
            for empty in (
                None,
                {"other": yes[key]},
                {key: types.ElicitResult(action="accept", content={"approve": "y"})},
            ):
                again = await first_answer(client, "order", call, input_responses=empty, request_state=state)
                assert isinstance(again, types.InputRequiredResult)
                assert again.input_requests.keys() == {key}
            assert shop.log == []
            answers = await asyncio.gather(
                *(first_answer(client, "order", call, input_responses=yes, request_state=state) for _ in range(5))
            )
            no = {key: types.ElicitResult(action="decline")}
            answers.append(await first_answer(client, "order", call, input_responses=no, request_state=state))
            assert [text_of(each) for each in answers] == ["ordered 1 pear"] * 6

    asyncio.run(main())
    assert shop.log == ["order 1 pear"]


def test_a_principal_cannot_answer_for_another_one(tmp_path):
    shop, call = Shop(), {"item": "pear", "count": 1}
    keys = {"Bearer key-of-ann": "ann", "Bearer key-of-bob": "bob"}

    def principal(scope):
        name = keys.get(dict(scope["headers"]).get(b"authorization", b"").decode())
        if name is None:
            raise PermissionError("no key")
        return name

    app = McpApp(shop.tools(), journal=SqliteJournal(tmp_path / "calls.db"), principal=principal)

    async def main():
        async with address_of(app) as url:
            async with client_of(url, key="key-of-ann", elicitation_callback=Person(YES)) as ann:
                question = await first_answer(ann, "order", call)
                yes = {each: types.ElicitResult(action="accept", content=YES) for each in question.input_requests}
                async with client_of(url, key="key-of-bob", elicitation_callback=Person(YES)) as bob:
                    with pytest.raises(MCPError, match="invalid request state"):
                        await first_answer(
                            bob, "order", call, input_responses=yes, request_state=question.request_state
                        )
                assert shop.log == []
                await first_answer(ann, "order", call, input_responses=yes, request_state=question.request_state)
            # A session of an older revision is its owner's too.
            async with client_of(url, "legacy", key="key-of-ann", elicitation_callback=Person(YES)) as ann:
                assert not (await ann.call_tool("stock", {"item": "apple"})).is_error
            with pytest.raises(BaseException, match=r"401|Unauthorized|unhandled"):
                async with client_of(url, key="wrong"):
                    pass

    asyncio.run(main())
    assert shop.log == ["order 1 pear", "stock apple"]


@pytest.mark.parametrize("mode", MODES)
def test_calls_at_the_same_time_keep_the_order_of_their_effects(mode):
    order: list[str] = []
    both = asyncio.Barrier(2)

    @tool(effects=lambda name: Effects(writes={f"thing:{name}"}))
    async def put(name: str) -> str:
        """Puts a thing."""
        order.append(f"put {name} begins")
        if name == "a":
            await both.wait()  # `get b` runs beside it, or this never ends
        order.append(f"put {name} ends")
        return "put"

    @tool(effects=lambda name: Effects(reads={f"thing:{name}"}))
    async def get(name: str) -> str:
        """Gets a thing."""
        order.append(f"get {name}")
        if name == "b":
            await both.wait()
        return "got"

    async def main():
        async with client_of_app(McpApp([put, get], approve="all"), mode) as client:
            put_a = asyncio.create_task(client.call_tool("put", {"name": "a"}))
            async with asyncio.timeout(60):
                while not order:  # noqa: ASYNC110 - the server has no event for it
                    await asyncio.sleep(0.005)
                get_a = asyncio.create_task(client.call_tool("get", {"name": "a"}))
                await client.call_tool("get", {"name": "b"})
                await asyncio.gather(put_a, get_a)

    asyncio.run(main())
    assert order == ["put a begins", "get b", "put a ends", "get a"]


@pytest.mark.parametrize("mode", MODES)
def test_a_cancelled_call_is_cancelled_in_the_tool_and_its_run_is_closed(mode):
    shop, journal = Shop(), MemoryJournal()

    async def main():
        lines: list[str] = []

        async def progress(_progress: float, _total: float | None, message: str | None) -> None:
            lines.append(message or "")

        async with client_of_app(McpApp(shop.tools(), journal=journal, approve="all"), mode) as client:
            call = asyncio.create_task(client.call_tool("waits", {}, progress_callback=progress))
            async with asyncio.timeout(60):
                await shop.entry.wait()
                while "waiting for the gate" not in lines:  # noqa: ASYNC110 - it comes from the server
                    await asyncio.sleep(0.005)
                call.cancel()
                await asyncio.wait([call])
                while not shop.log:  # noqa: ASYNC110 - the server is told of it
                    await asyncio.sleep(0.005)
                while any(run.status == "running" for run in await journal.runs()):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            # The next call does not wait for it.
            shop.gate.set()
            assert text_of(await client.call_tool("waits", {})) == "the gate is open"

    asyncio.run(main())
    assert shop.log == ["cancelled"]


def test_the_same_call_id_runs_once_and_a_secret_is_hidden(tmp_path):
    shop = Shop()

    @tool(read_only=True)
    def echo(text: str) -> str:
        """Says it again."""
        shop.log.append(text)
        return f"you echo_result {text}"

    def app() -> McpApp:
        journal = SqliteJournal(tmp_path / "calls.db")
        return McpApp([*shop.tools(), echo], journal=journal, approve="all", secrets={"TOKEN": "s3cret-value"})

    async def main():
        meta = {"toolspeak/call-id": "one"}
        for _ in range(2):
            async with client_of_app(app()) as client:
                first = await client.call_tool("order", {"item": "fig", "count": 1}, meta=meta)
                again = await client.call_tool("order", {"item": "fig", "count": 1}, meta=meta)
                assert text_of(first) == text_of(again) == "ordered 1 fig"
                with pytest.raises(MCPError, match="made before, with other content"):
                    await client.call_tool("order", {"item": "fig", "count": 2}, meta=meta)
        async with client_of_app(app()) as client:
            echo_result = await client.call_tool("echo", {"text": "my s3cret-value"})
            assert "s3cret-value" not in text_of(echo_result)

    asyncio.run(main())
    assert shop.log == ["order 1 fig", "my s3cret-value"]
    assert b"s3cret-value" not in (tmp_path / "calls.db").read_bytes()


@pytest.mark.parametrize("mode", MODES)
def test_an_agent_is_a_tool_whose_calls_ask_the_clients_user(mode, tmp_path):
    shop = Shop()

    def agent() -> Agent:
        turns = [
            ScriptedTurn("", calls=[ScriptedCall("order", {"item": "pear", "count": 2})]),
            "Two pears are ordered.",
        ]
        return Agent(
            ScriptedProvider(turns, follow=True),
            shop.tools(),
            name="buyer",
            description="Buys what is missing.",
            journal=SqliteJournal(tmp_path / "runs.db"),
        )

    async def main():
        person = Person(YES)
        lines: list[str] = []

        async def progress(_progress: float, _total: float | None, message: str | None) -> None:
            lines.append(message or "")

        async with client_of_app(McpApp(agent()), mode, elicitation_callback=person) as client:
            ((listing),) = (await client.list_tools()).tools
            assert (listing.name, listing.description) == ("buyer", "Buys what is missing.")
            result = await client.call_tool("buyer", {"task": "We need pears."}, progress_callback=progress)
            assert text_of(result) == "Two pears are ordered."
            assert "calls order" in lines
            empty = await client.call_tool("buyer", {"task": " "})
            assert empty.is_error
            assert "task" in text_of(empty)
        assert "shop:pear" in person.questions[0]

    asyncio.run(main())
    assert shop.log == ["order 2 pear"]


@pytest.mark.parametrize("mode", MODES)
def test_a_call_that_waits_for_an_event_answers_when_it_has_come(mode):
    journal = MemoryJournal()

    @tool(read_only=True)
    def awaits_delivery(ctx: RunContext) -> str:
        """Waits until a parcel comes, and a little longer."""
        parcel = ctx.wait_for("parcel")
        ctx.sleep(0.01)
        return f"it holds {parcel}"

    async def main():
        async with client_of_app(McpApp([awaits_delivery], journal=journal), mode) as client:
            call = asyncio.create_task(client.call_tool("awaits_delivery", {}))
            async with asyncio.timeout(60):
                while not (runs := await journal.runs(status="waiting")):  # noqa: ASYNC110 - the server's run
                    await asyncio.sleep(0.005)
            await journal.add_input(
                RunInput(runs[0].run_id, "event", "parcel", "parcel 1", "a pear", None, time.time())
            )
            assert text_of(await call) == "it holds a pear"

    asyncio.run(main())


def test_a_client_that_fails_to_ask_leaves_no_call_open():
    shop, journal = Shop(), MemoryJournal()

    async def fail(_context, _params):
        return types.ErrorData(code=-1, message="the user has gone home")

    async def main():
        async with client_of_app(McpApp(shop.tools(), journal=journal), "legacy", elicitation_callback=fail) as client:
            refusal = await client.call_tool("order", {"item": "pear", "count": 1})
            assert refusal.is_error
            assert "the user has gone home" in text_of(refusal)
        assert [run.status for run in await journal.runs()] == ["no_answer"]

    asyncio.run(main())
    assert shop.log == []


def test_standing_rules_and_traces_count():
    shop, journal = Shop(), MemoryJournal()
    rules = StandingRules()
    rules.add(Rule("approve", tool="order", arguments={"item": "fig"}), by="ann")
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    async def main():
        app = McpApp(shop.tools(), journal=journal, approve=Approval(rules=rules))
        async with client_of_app(app) as client:
            meta = {"traceparent": trace}
            assert not (await client.call_tool("order", {"item": "fig", "count": 1}, meta=meta)).is_error
            assert (await client.call_tool("order", {"item": "pear", "count": 1})).is_error
        first = [record for run in await journal.runs() for record in await journal.read(run.run_id)]
        assert trace in {record.traceparent for record in first}

    asyncio.run(main())
    assert shop.log == ["order 1 fig"]


def test_requests_that_are_too_large_or_from_a_web_page_or_without_a_key_are_refused():
    shop = Shop()
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "stock", "arguments": {"item": "a"}}}
    head = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28"}

    def principal(_scope):
        raise PermissionError("send a key")

    async def main():
        async with served_http(McpApp(shop.tools())) as http:
            body = json.dumps({**call, "params": {"name": "stock", "arguments": {"item": "a" * 50_000_000}}})
            assert (await http.post("/mcp", content=body, headers=head)).status_code == 413
            page = {**head, "host": "evil.example"}
            assert (await http.post("/mcp", json=call, headers=page)).status_code == 421
            page = {**head, "origin": "https://evil.example"}
            assert (await http.post("/mcp", json=call, headers=page)).status_code == 403
            for odd in (b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"jsonrpc": "2.0", "id": {}, "method": 7}'):
                answer = await http.post("/mcp", content=odd, headers=head)
                assert answer.status_code == 400
                assert "Traceback" not in answer.text
        async with served_http(McpApp(shop.tools(), principal=principal)) as http:
            refusal = await http.post("/mcp", json=call, headers=head)
            assert (refusal.status_code, refusal.text) == (401, "send a key")
            assert refusal.headers["www-authenticate"] == "Bearer"

    asyncio.run(main())
    assert shop.log == []


def test_a_client_that_does_not_read_holds_up_nobody_else():
    @tool(effects=Effects(writes={"chat:"}))
    def talks(ctx: RunContext) -> str:
        """Reports much progress."""
        for number in range(20_000):
            ctx.progress(f"{number} {'x' * 100}")
        return "told all"

    meta = {"progressToken": 1, "io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    meta |= {"io.modelcontextprotocol/clientCapabilities": {}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "talks", "_meta": meta}}
    body = json.dumps(call).encode()
    request = (
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nmcp-method: tools/call\r\n"
        b"mcp-name: talks\r\nmcp-protocol-version: 2026-07-28\r\naccept: application/json, text/event-stream\r\n"
        b"content-length: %d\r\n\r\n" % len(body)
    )

    async def main():
        async with address_of(McpApp([talks], approve="all")) as url:
            port = int(url.rpartition(":")[2].partition("/")[0])
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
            writer.write(request + body)
            await writer.drain()
            async with client_of(url) as client:
                assert text_of(await client.call_tool("talks", {})) == "told all"
            writer.close()

    asyncio.run(main())


@asynccontextmanager
async def served_http(app: McpApp):
    """A plain HTTP client of the application."""
    async with address_of(app) as url, httpx2.AsyncClient(base_url=url.removesuffix("/mcp"), timeout=60) as http:
        yield http
