"""The program in pydantic-ai. With the argument `yes`, it approves the pending calls."""

from __future__ import annotations

import sys
from pathlib import Path

from model_pydantic_ai import MODEL
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessagesTypeAdapter,
    ModelResponse,
    RunContext,
)
from shop import TASK, Report, Shop

STATE = Path("state.json")
agent = Agent(MODEL, deps_type=Shop, output_type=[Report, DeferredToolRequests])


@agent.tool
def stock(ctx: RunContext[Shop], item: str) -> int:
    """Says how many pieces of an item the shop has."""
    return ctx.deps.stock(item)


@agent.tool(requires_approval=True)
def order(ctx: RunContext[Shop], item: str, count: int) -> str:
    """Orders pieces of an item."""
    return ctx.deps.order(item, count)


def main() -> None:
    if not STATE.exists():
        result = agent.run_sync(TASK, deps=Shop())
    elif "yes" in sys.argv:
        messages = ModelMessagesTypeAdapter.validate_json(STATE.read_bytes())
        last = messages[-1]
        assert isinstance(last, ModelResponse)
        approvals = DeferredToolResults(approvals={call.tool_call_id: True for call in last.tool_calls})
        result = agent.run_sync(message_history=messages, deferred_tool_results=approvals, deps=Shop())
    else:
        print("waits for a yes")
        return
    if isinstance(result.output, DeferredToolRequests):
        STATE.write_bytes(result.all_messages_json())
        print("waits for a yes")
    else:
        STATE.unlink(missing_ok=True)
        print(result.output)


main()
