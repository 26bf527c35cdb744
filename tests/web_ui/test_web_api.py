"""The API of the web view: what it says of runs, and what it does with them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from importlib.resources import files
from typing import get_args

import jsonschema_rs
import pytest
from shop import agent, new_id, script, ship, task, until, working
from starlette.routing import Route
from web_view import DESCRIPTION, SECRET, events_of, viewing

from toolspeak import Agent, MemoryJournal, SqliteJournal, tool
from toolspeak.data.approvals import Rule
from toolspeak.data.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    RunFinished,
    ToolFinished,
    UserMessageQueued,
)
from toolspeak.data.messages import ImagePart, Message, TextPart, ToolResult
from toolspeak.data.values import evolve
from toolspeak.dialects import DIALECTS
from toolspeak.engines import RunClient
from toolspeak.execute.approval.approvers import definition_digest
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.testing.journal import a_run, every_kind, write
from toolspeak.web_ui.access import Access
from toolspeak.web_ui.api_operations import OPERATIONS, ROOT
from toolspeak.web_ui.web_app import web_app

SHIP = task([("ship", {"order": "1"})])
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000000000200015d0b2a"
)


def in_view(main, journal=None, **options):
    """Runs a test with a view of a journal."""

    async def whole():
        store = MemoryJournal() if journal is None else journal
        try:
            async with viewing(store, **options) as view:
                await main(view, store)
        finally:
            await store.aclose()

    asyncio.run(whole())


def test_the_description_names_every_route_and_no_other():
    app = web_app(MemoryJournal(), Access(keys=None, user="ann", secret=SECRET))
    routes = {
        (method, route.path)
        for route in app.routes
        if isinstance(route, Route) and route.path.startswith(ROOT)
        for method in (route.methods or set()) - {"HEAD"}
    }
    operations = {(method.upper(), path) for path, each in DESCRIPTION["paths"].items() for method in each}
    assert routes == operations
    assert len(operations) == len(OPERATIONS)
    names = [operation["operationId"] for each in DESCRIPTION["paths"].values() for operation in each.values()]
    assert len(set(names)) == len(names)
    for name in DESCRIPTION["components"]["schemas"]:
        schema = {"$ref": f"#/components/schemas/{name}", "components": DESCRIPTION["components"]}
        jsonschema_rs.validator_for(schema)  # every reference in it leads somewhere


def test_runs_come_in_pages_with_filters():
    async def main(view, journal):
        setup = {"workspace": "/srv/shop", "dialect": "hermes", "model": "m"}
        for number in range(5):
            records = a_run(f"run-{number}", *every_kind()[-1:], time=1000.0 + number, setup=setup, principal="bob")
            await write(journal, [replace(record, agent="shop") for record in records])
        await write(journal, a_run("other", time=2000.0))
        first = await view.get("/runs", limit=2)
        assert [run["run_id"] for run in first["runs"]] == ["other", "run-4"]
        assert first["runs"][0]["status"] == "interrupted", "no process drives it"
        rest = await view.get("/runs", limit=100, after=first["next"])
        assert [run["run_id"] for run in rest["runs"]] == ["run-3", "run-2", "run-1", "run-0"]
        assert rest["next"] is None
        for query, names in (
            ({"from_time": 1003}, ["run-2", "run-1", "run-0"]),
            ({"from_time": 1003.5}, ["run-3", "run-2", "run-1", "run-0"]),
            ({"from_time": 1003, "oldest_first": "true"}, ["run-3", "run-4", "other"]),
            ({"oldest_first": "true"}, ["run-0", "run-1", "run-2", "run-3", "run-4", "other"]),
            ({"from_time": 500}, []),
            ({"from_time": 1e9, "agent": "shop"}, ["run-4", "run-3", "run-2", "run-1", "run-0"]),
        ):
            listed_names, after = [], {}
            while after is not None:
                page = await view.get("/runs", limit=2, **query, **after)
                listed_names += [run["run_id"] for run in page["runs"]]
                after = {"after": page["next"]} if page["next"] else None
            assert listed_names == names, query
        for query in ({"agent": "shop"}, {"principal": "bob"}, {"folder": "/srv/shop"}, {"dialect": "hermes"}):
            assert len((await view.get("/runs", **query))["runs"]) == 5
        assert len((await view.get("/runs", status="answered"))["runs"]) == 5
        assert len((await view.get("/runs", prefix="run-4"))["runs"]) == 1
        for query in (
            {"status": "odd"},
            {"limit": 0},
            {"limit": 501},
            {"after": "odd"},
            {"from_time": "odd"},
            {"folders": "x"},
        ):
            error = await view.get("/runs", 400, **query)
            assert error["error"]["code"] == "bad_request"

    in_view(main)


def test_sessions_and_search():
    async def main(view, journal):
        await write(journal, a_run("one", *every_kind(), task="Find the <b>needle</b>", session_id="s1", time=1000.0))
        await write(journal, a_run("two", task="Something else", session_id="s2", time=2000.0))
        page = await view.get("/sessions", limit=1)
        assert [each["session_id"] for each in page["sessions"]] == ["s2"]
        page = await view.get("/sessions", after=page["next"])
        assert [each["session_id"] for each in page["sessions"]] == ["s1"]
        assert (await view.get("/sessions/s1"))["runs"] == 1
        await view.get("/sessions/s3", 404)
        assert [run["run_id"] for run in (await view.get("/runs", session="s1"))["runs"]] == ["one"]
        (match,) = (await view.get("/search", q="need"))["matches"]
        assert (match["run_id"], match["seq"], match["snippet"]) == ("one", 0, "Find the <b>needle</b>")

    in_view(main)


def test_large_records_are_cut_and_their_texts_come_in_parts():
    large, rows = "é\ud800\0x" * 1_000_000, {"rows": [{"n": number} for number in range(3_000)]}
    result = ToolResult(
        "call_1_0", "read", "success", (TextPart(large), ImagePart("image/png", PIXEL)), structured=rows
    )
    page_of_html = ImagePart("image/svg+xml", b"<svg onload='alert(1)'/>")

    async def main(view, journal):
        html = ToolResult("call_1_0", "read", "success", (page_of_html,))
        await write(
            journal, a_run("big", ToolFinished(result), ToolFinished(html), RunFinished("answered", "", "answer"))
        )
        page = await view.get("/runs/big/records")
        assert (page["next"], page["is_last"]) == (4, True)
        assert len(json.dumps(page)) < 100_000
        record = page["records"][1]
        cut = {json.dumps(each["place"]): each["length"] for each in record["cut"]}
        assert cut == {'["result", "content", 0, "text"]': 4_000_000, '["result", "structured", "rows"]': 3_000}
        text, place = "", '["result","content",0,"text"]'
        while len(text) < 4_000_000:
            piece = await view.get("/runs/big/records/1/text", place=place, start=len(text), length=500_000)
            assert piece["total"] == 4_000_000
            text += piece["text"]
        assert text == large
        whole = await view.get("/runs/big/records/1/text", place='["result","structured"]')
        assert json.loads(whole["text"]) == rows
        for path, place in (("1/text", '["nothing"]'), ("9/text", "[]"), ("1/image", '["result","content",0]')):
            await view.get(f"/runs/big/records/{path}", 404, place=place)
        await view.get("/runs/big/records/1/text", 400, place="{}")
        image = await view.client.get(f"{ROOT}/runs/big/records/1/image", params={"place": '["result","content",1]'})
        assert (image.content, image.headers["content-type"]) == (PIXEL, "image/png")
        await view.get("/runs/big/records/2/image", 415, place='["result","content",0]')
        await view.get("/runs/nothing/records", 404)

    in_view(main)


def test_a_run_says_what_it_waits_for_and_a_decision_holds_for_that():
    async def main(view, journal):
        run_id, shop = new_id(), agent(journal, [ship])
        await shop.run(SHIP, run_id=run_id, principal="bob")
        detail = await view.get(f"/runs/{run_id}")
        (question,) = detail["questions"]
        assert (detail["run"]["status"], question["tool"], question["decided_by"]) == ("awaiting_approval", "ship", "")
        records = (await view.get(f"/runs/{run_id}/records"))["records"]
        request = records[question["seq"]]
        assert request["kind"] == "ApprovalRequested"
        assert (request["event"]["digest"], request["event"]["call"]["arguments"]) == (
            question["digest"],
            {"order": "1"},
        )
        answer = {"call_id": question["call_id"], "digest": question["digest"], "action": "edit"}
        await view.post(f"/runs/{run_id}/decisions", 400, **answer)
        refusal = await view.post(
            f"/runs/{run_id}/decisions", 409, **{**answer, "digest": "0" * 64, "action": "approve"}
        )
        assert refusal["error"]["code"] == "changed"
        decision = await view.post(f"/runs/{run_id}/decisions", **answer, arguments={"order": "2"})
        assert decision == {"call_id": question["call_id"], "approved": True, "by": "ann"}
        (question,) = (await view.get(f"/runs/{run_id}"))["questions"]
        assert (question["decision"], question["decided_by"]) == ("approved", "ann")
        assert (await shop.resume(run_id)).answer.endswith("2 shipped")
        facts = [each.event for each in await journal.read(run_id) if isinstance(each.event, ApprovalDecided)]
        assert [(each.approved, each.by) for each in facts] == [(True, "ann")]
        late = await view.post(f"/runs/{run_id}/decisions", 409, **{**answer, "action": "refuse"})
        assert (late["error"]["code"], late["error"]["by"]) == ("decided", "ann")

    in_view(main)


@pytest.mark.parametrize("rival", ["approve", "refuse"])
def test_of_two_decisions_one_wins_and_the_other_learns_who_made_it(tmp_path, rival):
    async def main(view, journal):
        run_id = new_id()
        await agent(journal, [ship]).run(SHIP, run_id=run_id)
        (question,) = (await view.get(f"/runs/{run_id}"))["questions"]
        body = {"call_id": question["call_id"], "digest": question["digest"]}
        answers = await asyncio.gather(
            *(
                view.client.post(f"{ROOT}/runs/{run_id}/decisions", json={**body, "action": action})
                for action in ("approve", rival)
            )
        )
        assert sorted(each.status_code for each in answers) == [200, 409]
        (error,) = [each.json()["error"] for each in answers if each.status_code == 409]
        assert (error["code"], error["by"]) == ("decided", "ann")

    in_view(main, SqliteJournal(tmp_path / "runs.db"))


def test_always_adds_a_rule_that_holds_for_what_was_shown():
    """As in a conversation at the terminal: the rule names the definition that the question was about, and of a command
    how it begins."""

    @tool(command_line="command")
    def run_line(command: str) -> str:
        "Runs a line."
        return f"ran {command}"

    lines = ["git status -s", "git status --long", "git push"]
    calls = [ScriptedTurn("", calls=(ScriptedCall("run_line", {"command": line}),)) for line in lines]

    async def main(view, journal):
        for scope, fits, fields in (
            ("call", 0, {"arguments": {"command": lines[0]}, "exact": True}),
            ("commands", 1, {"begins": ("git status",)}),
            ("tool", 2, {}),
        ):
            run_id = new_id()
            runner = Agent(ScriptedProvider([*calls, "done"]), [run_line], dialect="native", journal=journal)
            await runner.run("go", run_id=run_id)
            (question,) = (await view.get(f"/runs/{run_id}"))["questions"]
            assert [offer["scope"] for offer in question["always"]] == ["call", "commands", "tool"]
            assert "commands that begin with 'git status'" in question["always"][1]["text"]
            body = {"call_id": question["call_id"], "digest": question["digest"], "action": "always", "scope": scope}
            other = await view.post(f"/runs/{run_id}/decisions", 409, **{**body, "digest": "0" * 64})
            assert other["error"]["code"] == "changed"
            await view.post(f"/runs/{run_id}/decisions", 400, **{**body, "scope": "host"})
            await view.post(f"/runs/{run_id}/decisions", **body)
            result = await runner.resume(run_id)
            events = [each.event for each in await journal.read(run_id)]
            asked_lines = [each.call.arguments["command"] for each in events if isinstance(each, ApprovalRequested)]
            assert asked_lines == [lines[0], *lines[fits + 1 : fits + 2]]
            assert (result.status == "answered") == (scope == "tool")
            first = next(each for each in events if isinstance(each, ApprovalDecided))
            assert first.always == Rule("approve", "run_line", definition=definition_digest(run_line.spec), **fields)

    in_view(main)


def test_a_question_of_an_earlier_version_offers_no_rule():
    """It does not say for which definition of the tool a rule would hold."""

    async def main(view, journal):
        run_id, shop = new_id(), agent(MemoryJournal(), [ship])
        await shop.run(SHIP, run_id=run_id)
        records = [
            replace(each, event=evolve(each.event, definition="", begins=()))
            if isinstance(each.event, ApprovalRequested)
            else each
            for each in await shop.journal.read(run_id)
        ]
        await write(journal, records)
        (question,) = (await view.get(f"/runs/{run_id}"))["questions"]
        assert question["always"] == []
        body = {"call_id": question["call_id"], "digest": question["digest"], "action": "always"}
        refusal = await view.post(f"/runs/{run_id}/decisions", 400, **body)
        assert "an earlier toolspeak recorded it" in refusal["error"]["message"]
        await view.post(f"/runs/{run_id}/decisions", **{**body, "action": "approve"})

    in_view(main)


def test_runs_are_started_steered_and_forked(tmp_path):
    async def main(view, journal):
        shop = Agent(ScriptedProvider([script, "Thanks."] * 9), [ship], dialect="native", name="shop", journal=journal)
        acceptance = await view.post("/runs", agent="shop", task=SHIP, run_id="mine")
        assert acceptance == {"run_id": "mine", "status": "queued"}
        assert await view.post("/runs", agent="shop", task=SHIP, run_id="mine") == acceptance
        await view.post("/runs", 409, agent="shop", task="another", run_id="mine")
        await view.post("/runs", 400, agent="shop", task=SHIP, run_id="no id")
        assert await view.post("/runs/mine/suspension") == {"status": "suspended"}
        assert (await view.post("/runs/mine/resumption"))["run_id"] == "mine"
        await view.post("/runs/nothing/suspension", 404)
        async with working(shop):
            await until(journal, "mine", "awaiting_approval")
            assert (await view.post("/runs/mine/messages", text="For Bob", key="k")) == {"is_new": True}
            assert (await view.post("/runs/mine/messages", text="For Bob", key="k")) == {"is_new": False}
            (question,) = (await view.get("/runs/mine"))["questions"]
            body = {"call_id": question["call_id"], "digest": question["digest"], "action": "refuse", "reason": "no"}
            await view.post("/runs/mine/decisions", **body)
            await until(journal, "mine", "answered")
        events = [each.event for each in await journal.read("mine")]
        assert [each.by for each in events if isinstance(each, UserMessageQueued)] == ["ann"]
        late = await view.post("/runs/mine/messages", 409, text="too late")
        assert "has ended" in late["error"]["message"]
        request_seq = next(at for at, each in enumerate(events) if type(each).__name__ == "ModelAsked")
        read_then = await view.get(f"/runs/mine/records/{request_seq}/messages")
        assert (read_then["total"], read_then["messages"][0]["role"]) == (1, "user")
        await view.get("/runs/mine/records/0/messages", 404)
        fork = await view.post("/runs/mine/forks", seq=request_seq)
        other = await view.post("/runs/mine/forks", seq=len(events), task="And now?")
        await view.post("/runs/mine/forks", 400, seq=request_seq, model="another")
        await view.post("/runs/mine/forks", 400, seq=99)
        (first,) = await journal.read(fork["run_id"], 0, 1)
        assert [each.text for each in first.event.messages] == [SHIP]
        (first,) = await journal.read(other["run_id"], 0, 1)
        assert [each.role for each in first.event.messages] == [
            "user",
            "assistant",
            "tool",
            "user",
            "assistant",
            "user",
        ]

    in_view(main, SqliteJournal(tmp_path / "runs.db"))


def test_a_fork_of_a_run_of_the_command_may_have_another_model():
    async def main(view, journal):
        setup = {"workspace": "/srv", "approve": "ask", "dialect": "auto", "model": "openai:a", "record": "tape"}
        await write(journal, a_run("cli", *every_kind(), setup=setup))
        fork = await view.post("/runs/cli/forks", seq=2, model="ollama:b", dialect="hermes")
        (first,) = await journal.read(fork["run_id"], 0, 1)
        assert first.event.setup == {**setup, "model": "ollama:b", "dialect": "hermes", "record": ""}
        assert (await view.get("/runs/cli"))["can_fork_model"]

    in_view(main)


def test_the_timeline_has_the_turns_and_the_calls():
    async def main(view, journal):
        run_id, shop = new_id(), agent(journal, [ship])
        await shop.run(SHIP, run_id=run_id)
        chart_at_pause = await view.get(f"/runs/{run_id}/timeline")
        assert [(bar["kind"], bar["lane"], bar["state"]) for bar in chart_at_pause["bars"]][-1] == (
            "question",
            1,
            "open",
        )
        (question,) = (await view.get(f"/runs/{run_id}"))["questions"]
        await RunClient(journal).decide(run_id, question["call_id"], True)
        await shop.resume(run_id)
        chart = await view.get(f"/runs/{run_id}/timeline")
        kinds = [bar["kind"] for bar in chart["bars"] if bar["kind"] != "wait"]
        assert kinds == ["turn", "question", "writes", "turn"]
        assert [mark["kind"] for mark in chart["marks"]] == ["paused", "resumed", "end"]
        assert chart["records"] == len(await journal.read(run_id))

    in_view(main)


def test_a_reply_is_read_as_every_dialect_reads_it():
    reply = 'I look.\n<tool_call>\n{"name": "read", "arguments": {"path": "é😀"}}\n</tool_call>'

    async def main(view, _):
        answer = await view.post("/readings", text=reply, dialect="hermes")
        kinds = [step["delta"]["type"] for step in answer["steps"]]
        assert kinds[0] == "TextDelta"
        (start,) = [step for step in answer["steps"] if step["delta"]["type"] == "CallStarted"]
        assert reply[: start["offset"]].endswith('"name": "read"')
        (whole,) = [step for step in answer["steps"] if step["delta"]["type"] == "CallCompleted"]
        assert whole["delta"]["arguments"] == {"path": "é😀"}
        assert [step["offset"] for step in answer["steps"]] == sorted(step["offset"] for step in answer["steps"])
        by_name = {each["dialect"]: each for each in answer["dialects"]}
        assert by_name["hermes"]["calls"] == ["read"]
        assert len(by_name) == len(DIALECTS)
        assert sum(each["completed"] for each in answer["dialects"]) < len(DIALECTS)
        await view.post("/readings", 400, text=reply, dialect="hermez")
        await view.post("/readings", 400, text="x" * 20_001)
        assert (await view.post("/readings", text=""))["steps"] is not None

    in_view(main)


def test_two_runs_are_compared_until_they_part():
    async def main(view, journal):
        await write(journal, a_run("one", *every_kind(), time=1.0))
        await write(journal, a_run("two", *every_kind(), time=9_999.0))
        assert await view.get("/runs/one/comparison", other="two") == {"common": 7, "seq": None, "other_seq": None}
        await write(journal, a_run("three", *every_kind()[:2], RunFinished("failed", "", "model_error")))
        assert await view.get("/runs/one/comparison", other="three") == {"common": 3, "seq": 3, "other_seq": 3}
        await write(journal, a_run("four", *every_kind()[:2]))
        assert await view.get("/runs/four/comparison", other="one") == {"common": 3, "seq": None, "other_seq": 3}
        await view.get("/runs/one/comparison", 404, other="nothing")
        await view.get("/runs/one/comparison", 400)

    in_view(main)


def test_the_conversation_has_a_case_for_every_event():
    program = (files("toolspeak.web_ui") / "static" / "conversation.js").read_text("utf-8")
    names = {each.__name__ for each in get_args(Event)} - {"UnknownEvent"}
    assert {name for name in names if f'case "{name}":' not in program} == set()


# --- live -----------------------------------------------------------------------------------------------------------


@tool(read_only=True)
def count(upto: int) -> str:
    "Counts."
    return " ".join(map(str, range(upto)))


def counting(journal, turns):
    calls = [ScriptedTurn(f"Turn {n}.", calls=(ScriptedCall("count", {"upto": n}),)) for n in range(turns)]
    return Agent(ScriptedProvider([*calls, "done"]), [count], dialect="native", name="counting", journal=journal)


def test_a_stream_has_every_record_once_while_servers_come_and_go(tmp_path):
    """The reader names the last record that it has, whenever its server ends."""

    async def main():
        journal, run_id = SqliteJournal(tmp_path / "runs.db"), "live"
        await RunClient(journal).submit("counting", "count", run_id=run_id)
        numbers, kinds, last, cookie, port = [], [], "", None, 0
        work = None
        for cut in (1, 4, 9, 1_000):
            async with viewing(journal, port=port, login=None if cookie is None else "") as view:
                port = view.port
                if cookie is None:
                    cookie = dict(view.client.cookies)
                view.client.cookies.update(cookie)  # the cookie holds although the server is another one
                headers = {"last-event-id": last} if last else {}
                async with view.client.stream("GET", f"{ROOT}/runs/{run_id}/events", headers=headers) as response:
                    assert response.status_code == 200, await response.aread()
                    if work is None:
                        work = asyncio.ensure_future(counting(journal, 12).run("count", run_id=run_id))
                    async for name, number, data in events_of(response.aiter_lines()):
                        if name == "record":
                            last = number
                            numbers.append(data["seq"])
                            kinds.append(data["kind"])
                            assert number == str(data["seq"])
                            if len(numbers) >= cut:
                                break
                        if name == "end":
                            break
        await work
        assert numbers == list(range(len(await journal.read(run_id))))
        assert kinds[-1] == "RunFinished"
        await journal.aclose()

    asyncio.run(asyncio.wait_for(main(), 120))


def test_a_stream_of_a_run_that_is_over_ends_and_says_so():
    async def main(view, journal):
        await write(journal, a_run("done", *every_kind()))
        response = await view.client.get(f"{ROOT}/runs/done/events", params={"start": 5})
        lines = response.text.split("\n")
        assert [line for line in lines if line.startswith(("id", "event"))] == [
            "id: 5", "event: record", "id: 6", "event: record", "event: end",
        ]  # fmt: skip
        again = await view.client.get(f"{ROOT}/runs/done/events", headers={"last-event-id": "6"})
        assert again.status_code == 204, "browsers do not ask again"
        await view.get("/runs/done/events", 400, start=-1)

    in_view(main)


def test_all_who_look_at_a_run_get_its_records_and_deltas(tmp_path):
    async def main(view, journal):
        await RunClient(journal).submit("counting", "count", run_id="shared")
        readers = [asyncio.ensure_future(read_all(view, "shared")) for _ in range(10)]
        news = journal.follow("shared")
        await anext(news)
        async with working(counting(journal, 3)):
            outcomes = await asyncio.gather(*readers)
        await news.aclose()
        total = len(await journal.read("shared"))
        assert [numbers for numbers, _ in outcomes] == [list(range(total))] * 10
        texts = ["".join(piece["text"] for piece in pieces if piece["type"] == "TextDelta") for _, pieces in outcomes]
        assert len(set(texts)) == 1, "one reader of the journal serves all"

    in_view(main, SqliteJournal(tmp_path / "runs.db"))


async def read_all(view, run_id):
    numbers, pieces = [], []
    async with view.client.stream("GET", f"{ROOT}/runs/{run_id}/events") as response:
        async for name, _, data in events_of(response.aiter_lines()):
            if name == "end":
                return numbers, pieces
            if name == "record":
                numbers.append(data["seq"])
            elif name == "deltas":
                pieces += data["pieces"]
    raise AssertionError


def test_a_long_list_of_runs_and_a_long_run_are_read_in_parts(tmp_path):
    """The database is asked for one page only: each answer is as large as its page, whatever there is."""

    async def main(view, journal):
        await write(journal, a_run("long", *[UserMessageQueued(Message.user("x" * 100))] * 2_500))
        await write(journal, a_run("large", *[UserMessageQueued(Message.user("x" * 10_000))] * 300))
        for run_id, limit, count in (("long", 500, 2_501), ("long", 2_000, 2_501), ("large", 2_000, 301)):
            start, total = 0, []
            while True:
                page = await view.get(f"/runs/{run_id}/records", start=start, limit=limit)
                total += [each["seq"] for each in page["records"]]
                assert len(page["records"]) <= limit
                assert len(json.dumps(page)) < 1_100_000
                start = page["next"]
                if page["is_last"]:
                    break
            assert total == list(range(count))
        await view.get("/runs/long/records", 400, limit=2_001)

    in_view(main, SqliteJournal(tmp_path / "runs.db", sync="never"))
