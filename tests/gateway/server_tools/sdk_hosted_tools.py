"""Calls that the gateway runs for OpenAI Responses, as OpenAI's own package reads them (`make test-sdk`)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import openai
from openai.types.responses import ResponseFunctionWebSearch
from openai.types.responses.response_output_item import McpCall
from serving import texts
from test_gateway_hosted_tools import MCP, calling, prompt, run_tool_gateway


def test_its_client_streams_the_items_and_sends_them_back(tmp_path: Path):
    async def run() -> None:
        first_turn = calling(("s__echo", {"text": "né"}), ("s__huge", {}))
        turns = (first_turn, calling(("s__fails", {})), texts("Done."), texts("Yes."))
        async with (
            run_tool_gateway(tmp_path, *turns, approve=("*",), web_search="s__huge") as (gateway, upstream, url),
            openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key="none", max_retries=0) as client,
        ):
            tools: Any = [{**MCP, "server_url": url}, {"type": "web_search"}]
            async with client.responses.stream(model="m", input="Go.", tools=tools) as stream:
                kinds = [event.type async for event in stream]
                first = await stream.get_final_response()
            assert kinds.count("response.mcp_call.completed") == kinds.count("response.mcp_call.failed") == 1
            assert kinds.count("response.web_search_call.completed") == 1
            echo, search, fails, message = first.output
            assert isinstance(echo, McpCall)
            assert (echo.server_label, echo.name, echo.output, echo.error) == ("s", "echo", "né", None)
            assert isinstance(search, ResponseFunctionWebSearch)
            assert isinstance(fails, McpCall)
            assert fails.error is not None
            assert message.type == "message"
            history: Any = [{"role": "user", "content": "Go."}, *first.output, {"role": "user", "content": "Sure?"}]
            second = await client.responses.create(model="m", input=history, tools=tools)
            assert second.output_text == "Yes."
            assert prompt(upstream).count("<tool_response>") == 2

    asyncio.run(run())
