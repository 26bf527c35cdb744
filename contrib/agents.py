"""An example of the agents that the worker of the systemd unit and of the compose file drives: put your own here.

Environment: TOOLSPEAK_JOURNAL names the journal, TOOLSPEAK_MODEL the model.
"""

import os

from toolspeak import Agent, RunContext, tool
from toolspeak.journal import open_journal


@tool(read_only=True)
def wait_for_payment(ctx: RunContext, order: str) -> str:
    "Waits until an order is paid."
    payment = ctx.wait_for(f"payment:{order}", timeout=86_400)
    return f"paid: {payment}"


support = Agent(
    os.environ.get("TOOLSPEAK_MODEL", "openai:qwen3"),
    [wait_for_payment],
    name="support",
    journal=open_journal(os.environ["TOOLSPEAK_JOURNAL"]),
)
