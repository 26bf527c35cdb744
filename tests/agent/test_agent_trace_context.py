"""The trace that a caller names: its records have it, and what a run asks of others carries it."""

from __future__ import annotations

import asyncio

from loopback_server import event, says, serve, stream, whole
from mcp_helpers import mcp_servers, program

from toolspeak import Agent
from toolspeak.journal.memory_journal import MemoryJournal
from toolspeak.providers.openai import OpenAIProvider
from toolspeak.providers.scripted_provider import ScriptedProvider

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
BUSY = whole("503 Service Unavailable", b"{}", "application/json", "retry-after: 0")


def test_requests_to_the_model_carry_the_trace_of_their_run():
    async def run() -> list[str | None]:
        says_it = stream(event(says("Done.", "stop")), event("[DONE]"))
        async with serve(BUSY, says_it) as server, Agent(OpenAIProvider("m", base_url=server.base_url)) as agent:
            await agent.run("one", traceparent=PARENT)
            await agent.run("two")
            await agent.run("three", traceparent="no trace\r\nx: y")
            async for _ in agent.iterate("four", traceparent=PARENT):
                pass
            await agent.run("five")
            return [exchange.headers.get("traceparent") for exchange in server.exchanges]

    assert asyncio.run(run()) == [PARENT, PARENT, None, None, PARENT, None]  # the first request was sent twice


def test_a_resumed_run_goes_on_in_its_trace(tmp_path):
    """Calls of MCP servers carry it in `_meta` (MCP 2026-07-28, "Trace context")."""
    call = '<execute>[{"name": "s__traceparent", "args": {}}]</execute>'

    async def run() -> list[str]:
        journal, results = MemoryJournal(), list[str]()
        turns = ScriptedProvider([call, "First.", call, "Second."])
        async with mcp_servers(program(tmp_path)) as servers:
            agent = Agent(turns, servers.tools, dialect="cogency-json", approve="all", journal=journal)
            handle = agent.start("Ask.", traceparent=PARENT)
            handle.suspend()
            await handle.finish()
            for result in (await agent.resume(handle.run_id), await agent.run("Ask again.")):
                results += [step.executions[0].result.text for step in result.steps if step.executions]
        return results

    assert asyncio.run(run()) == [PARENT, "None"]
