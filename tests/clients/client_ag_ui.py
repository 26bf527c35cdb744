"""`@ag-ui/client`, the protocol's own client of npm, at work with an agent (`make test-clients`)."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import uvicorn

from toolspeak import Agent, Effects, tool
from toolspeak.adapters import AgUiApp
from toolspeak.journal import SqliteJournal
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn
from uvicorn_here import serving

PROGRAM = Path(__file__).parent / "npm/ag_ui.mjs"


@tool(effects=lambda item: Effects(writes={f"orders:{item}"}))
def order(item: str) -> str:
    "Orders an item."
    return f"ordered {item}"


def test_an_approval_and_a_tool_of_the_client(tmp_path: Path):
    model = ScriptedProvider(
        [
            ScriptedTurn("I order. ", reasoning="Let me see.", calls=(ScriptedCall("order", {"item": "pears"}),)),
            ScriptedTurn("", calls=(ScriptedCall("pick_colour", {"palette": "warm"}),)),
            "You picked {{last}}.",
        ],
        chunk=3,
    )
    journal = SqliteJournal(tmp_path / "chats.db")
    app = AgUiApp(lambda own: Agent(model, [order, *own], journal=journal))

    async def main() -> dict[str, object]:
        config = uvicorn.Config(app, log_level="warning", lifespan="off")
        async with serving(config) as (_, port):
            command = [os.environ["CLIENTS_NODE"], str(PROGRAM), f"http://127.0.0.1:{port}/"]
            process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            output, errors = await process.communicate()
        await journal.aclose()
        assert process.returncode == 0, errors.decode()
        return json.loads(output)

    report = asyncio.run(main())
    assert report == {
        "outcomes": [
            {"type": "interrupt", "interrupts": report["outcomes"][0]["interrupts"]},
            {"type": "success", "pendingToolCallIds": ["call_2_0"]},
            {"type": "success"},
        ],
        "calls": [["order", {"item": "pears"}], ["pick_colour", {"palette": "warm"}]],
        "messages": [
            ["user", "Order pears."],
            ["reasoning", "Let me see."],
            ["assistant", "I order. "],
            ["tool", "ordered pears"],
            ["assistant", None],
            ["tool", "green"],
            ["assistant", "You picked green."],
        ],
    }
