"""A key that sees one principal alone: nothing that it is answered depends on the runs of others."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from shop import agent, ship, task
from web_view import DESCRIPTION, viewing

from toolspeak import MemoryJournal
from toolspeak.data.events import ApprovalRequested, Record, RunStarted
from toolspeak.gateway.settings.api_keys import digest
from toolspeak.testing.journal import a_run, every_kind, write
from toolspeak.web_ui.access import UiKey

SECRET = "k" * 24
KEYS = (
    UiKey("helper", digest(SECRET), ("approve", "run"), principal="me"),
    UiKey("boss", digest("b" * 24), ("approve", "run")),
)
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DESCRIPTION["paths"].items()
    for method, operation in methods.items()
}
RUNS = ("mine", "mine-open", "mine-child", "theirs", "theirs-open", "nobodys", "absent")
MARKERS = ("theirs", "nobodys", "Quetzal", '"eve"')
"""Words that only the runs of others have."""

PATHS = {"run_id": RUNS, "session_id": ("s-mine", "s-theirs", "absent"), "seq": ("0", "2", "99")}
VALUES: dict[str, tuple[str, ...]] = {
    "status": ("answered", "awaiting_approval"),
    "principal": ("me", "eve", "absent"),
    "prefix": ("mine", "theirs"),
    "parent": RUNS,
    "session": PATHS["session_id"],
    "other": RUNS,
    "q": ("Quetzal", "report"),
    "place": ('["messages",0,"parts",0,"text"]',),
    "last-event-id": ("1",),
    **dict.fromkeys(("agent", "model", "folder", "dialect"), ("shop", "m")),
    "oldest_first": ("true",),
    "from_time": ("1150", "1e9"),
    **dict.fromkeys(("after",), (base64.urlsafe_b64encode(b'[1500.0, "zzz"]').decode(),)),
    **dict.fromkeys(("start",), ("1",)),
    **dict.fromkeys(("limit", "length"), ("1",)),
}
"""What each name of a query is tried with. A new name needs a line."""


Answer: TypeAlias = tuple[tuple[str, dict[str, str], dict[str, Any] | None], int, str]
"""The path, the query and the body that were sent, the status, and the text."""


def bodies(name: str, question: ApprovalRequested) -> list[dict[str, Any]]:
    """What each operation with a body is sent. A new operation needs a line."""
    decision = {"call_id": question.call_id, "digest": question.digest}
    return {
        "login": [{"secret": SECRET}],
        "submit": [{"agent": "shop", "task": "Report", "run_id": run_id} for run_id in RUNS],
        "readReply": [{"text": "Quetzal"[:3]}],
        "decide": [{**decision, "action": action} for action in ("refuse", "always")],
        "say": [{"text": "Hello", "key": "k"}, {"text": "Hello", "key": "k"}],
        "fork": [{"seq": 1}, {"seq": 3, "task": "And?"}],
    }[name]


async def fill(journal: MemoryJournal, *, others: bool) -> ApprovalRequested:
    """The principal's runs and, if wanted, those of others. Returns the question of the open ones."""
    owners = {"mine": "me", **({"theirs": "eve", "nobodys": None} if others else {})}
    source = MemoryJournal()
    await agent(source, [ship]).run(task([("ship", {"order": "1"})]), run_id="open")
    asking = await source.read("open")
    for owner, principal in owners.items():
        word = "Weekly" if owner == "mine" else "Quetzal"
        records = a_run(
            owner, *every_kind(), task=f"{word} report", session_id=f"s-{owner}", time=1000.0, principal=principal
        )
        await write(journal, records)
        await write(journal, child_run(f"{owner}-child", owner, principal))
        open_records = [
            replace(each, run_id=f"{owner}-open", principal=principal, time=1200.0 + each.seq) for each in asking
        ]
        await write(journal, open_records)
    if others:  # nothing makes such runs, but programs may
        await write(journal, child_run("theirs-of-mine", "mine", "eve"))
    await write(journal, child_run("mine-of-eve", "theirs" if others else None, "me"))
    (question,) = [each.event for each in asking if isinstance(each.event, ApprovalRequested)]
    return question


def requests_of(name: str, question: ApprovalRequested) -> list[tuple[str, str, dict[str, str], dict[str, Any] | None]]:
    """Every request of an operation: each path, with each single value of each name of its query, and each body."""
    method, path, operation = OPERATIONS[name]
    parameters = operation.get("parameters", ())
    names = [each["name"] for each in parameters if each["in"] == "path"]
    queries = [each for each in parameters if each["in"] == "query"]
    required_query = {each["name"]: VALUES[each["name"]][0] for each in queries if each["required"]}
    places = [dict(zip(names, each, strict=True)) for each in itertools.product(*(PATHS[each] for each in names))]
    tries = [
        required_query,
        *({**required_query, each["name"]: value} for each in queries for value in VALUES[each["name"]]),
    ]
    body_values = bodies(name, question) if "requestBody" in operation else [None]
    return [(method, path.format(**place), query, body) for place in places for query in tries for body in body_values]


def child_run(run_id: str, parent: str | None, principal: str | None) -> list[Record]:
    records = a_run(run_id, *every_kind(), time=1100.0, principal=principal)
    return [replace(each, parent_run_id=parent) for each in records]


async def answers(name: str, *, others: bool, key: str = SECRET) -> list[Answer]:
    journal = MemoryJournal()
    question = await fill(journal, others=others)
    outcomes: list[Answer] = []
    async with viewing(journal, keys=KEYS, login="") as view:
        for method, path, query, body in requests_of(name, question):
            headers = {"authorization": f"Bearer {key}"} if name != "login" else {}
            async with view.client.stream(method, path, params=query, json=body, headers=headers) as response:
                text = ""
                async for piece in response.aiter_text():
                    text += piece
                    if "event: live" in text or "event: gateway" in text:
                        break  # nothing more comes by itself
            outcomes.append(((path, query, body), response.status_code, without_chance(name, text)))
    for owner in ("theirs", "nobodys") if others else ():
        assert await journal.inputs(f"{owner}-open") == (), f"{name} reached a run of another principal"
        info = await journal.run(f"{owner}-open")
        assert info is not None
        assert info.status == "awaiting_approval"
    return outcomes


def without_chance(name: str, text: str) -> str:
    """The answer without what is made anew each time, and without the seconds since a time of the made-up records."""
    if name == "timeline":
        return re.sub(r"\b1\d{9}\.\d+", "until now", text)
    if name in ("fork", "login") and text.startswith("{"):
        return json.dumps({key: value for key, value in json.loads(text).items() if key not in ("run_id", "csrf")})
    return text


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_answer_depends_on_the_runs_of_others(name):
    async def main():
        with_others, alone = await answers(name, others=True), await answers(name, others=False)
        for (request, status, text), (_, status_alone, text_alone) in zip(with_others, alone, strict=True):
            assert (status, text) == (status_alone, text_alone), request
            unsent_text = text.replace(
                f"-{(request[2] or {}).get('run_id')}", ""
            )  # without the id that the request names
            assert not any(marker in unsent_text for marker in MARKERS), (request, text)

    asyncio.run(main())


@pytest.mark.over_a_second
def test_a_key_without_a_principal_sees_what_the_other_does_not():
    """Without it, the test above would hold for a server that shows nothing."""

    async def main():
        for name in ("listRuns", "listSessions", "search", "oneRun", "records", "events"):
            all_texts = "".join(text for _, _, text in await answers(name, others=True, key="b" * 24))
            own_texts = "".join(text for _, _, text in await answers(name, others=True))
            assert any(marker in all_texts for marker in MARKERS), name
            assert "mine" in own_texts, name
        (_, _, me) = (await answers("me", others=False))[0]
        assert json.loads(me)["sees"] == "me"

    asyncio.run(main())


def test_a_run_of_such_a_key_is_on_behalf_of_its_principal_and_has_an_id_of_its_own():
    async def main():
        journal = MemoryJournal()
        await fill(journal, others=True)
        async with viewing(journal, keys=KEYS, login="") as view:
            view.client.headers["authorization"] = f"Bearer {SECRET}"
            acceptance = await view.post("/runs", agent="shop", task="Report", run_id="theirs")
            assert acceptance == await view.post("/runs", agent="shop", task="Report", run_id="theirs")
            assert acceptance["run_id"].endswith("-theirs")
            info = await journal.run(acceptance["run_id"])
            assert info is not None
            assert (info.principal, info.status) == ("me", "queued")
            await view.post("/runs", 400, agent="shop", task="Report", run_id="no id")
            fork = await view.post("/runs/mine/forks", seq=1)
            (first,) = await journal.read(fork["run_id"], 0, 1)
            assert first.principal == "me"
            assert isinstance(first.event, RunStarted)

    asyncio.run(main())
