"""Compares what a run sends in each step: the whole conversation, or with `previous_response_id` only the new items.

    python benchmarks/resume.py

The conversation is that of `toolspeak demo`, repeated until it has enough turns. The requests are those of OpenAI's
Responses API. The figures are bytes of request bodies, summed over a run, with and without the tools and instructions,
which the API requires in every request. Cogency's documentation claims 9.3 and 17.4 times fewer tokens after 16 and 32
turns.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from toolspeak.agent import Agent
from toolspeak.cli.demo_project import FILES, TASK, playbook
from toolspeak.data.messages import Message, ToolCall, ToolResult
from toolspeak.dialects import get_dialect
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.tools import Toolset
from toolspeak.tools.builtin import workspace_tools
from toolspeak.wire.base import Earlier, ModelRequest
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

TURNS = (4, 8, 16, 32, 64)


def conversation(turns: int) -> tuple[list[Message], Toolset]:
    """Returns the demo's messages, repeated until the model has had `turns` turns, and its tools."""
    dialect = get_dialect("tool-call")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in FILES.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        tools = Toolset(workspace_tools(root))
        model = ScriptedProvider(playbook(dialect, tools.specs))
        round_messages = list(Agent(model, tools, dialect=dialect, approve="all").run_sync(TASK).messages)
    messages: list[Message] = []
    round_ = 0
    while sum(message.role == "assistant" for message in messages) < turns:
        round_ += 1
        messages += [_as_native(message, round_) for message in round_messages]
    return messages, tools


def _as_native(message: Message, round_: int) -> Message:
    """Returns the message with ids in the API's form, different for each repetition."""
    parts = [
        replace(part, id=f"{part.id}_{round_}", provider_id=f"call_{round_:04}{part.id}")
        if isinstance(part, ToolCall)
        else replace(part, call_id=f"{part.call_id}_{round_}")
        if isinstance(part, ToolResult)
        else part
        for part in message.parts
    ]
    return replace(message, parts=tuple(parts))


def request_bytes(messages: Sequence[Message], tools: Toolset, turns: int, *, resume: bool, fixed: bool) -> int:
    """Returns the bytes of all request bodies until the model has answered `turns` times."""
    total, answers, before = 0, 0, 0
    for i, message in enumerate(messages):
        if message.role != "assistant":
            continue
        earlier = Earlier("resp_0123456789", before) if resume and answers else None
        specs = tools.specs if fixed else ()
        body = OPENAI_RESPONSES.encode_request(
            ModelRequest(messages[:i], specs, earlier=earlier, keep=resume), model="gpt-5", stream=True
        )
        total += len(json.dumps(body, ensure_ascii=False).encode())
        answers, before = answers + 1, i
        if answers == turns:
            break
    return total


def main() -> None:
    messages, tools = conversation(max(TURNS))
    print(f"{'turns':>6}{'whole, KB':>12}{'new, KB':>10}{'times':>8}   without tools: times")
    for turns in TURNS:
        whole, new = (request_bytes(messages, tools, turns, resume=resume, fixed=True) for resume in (False, True))
        bare, bare_new = (request_bytes(messages, tools, turns, resume=resume, fixed=False) for resume in (False, True))
        print(f"{turns:>6}{whole / 1e3:>12.1f}{new / 1e3:>10.1f}{whole / new:>8.1f}{bare / bare_new:>17.1f}")


if __name__ == "__main__":
    main()
