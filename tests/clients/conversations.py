"""Which clients there are, and how they are had to talk."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from upstream import CALLS, DIALECTS

HERE = Path(__file__).parent
SECONDS = 300
# litellm would fetch a table of prices from the internet, pydantic-ai and openai-agents might send traces.
QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_AGENTS_DISABLE_TRACING": "1", "NO_PROXY": "127.0.0.1"}


@dataclass(frozen=True)
class Client:
    """A program of this folder. `finishes`: how it calls the end of a turn with calls, and of the answer; None if it
    does not tell. `usage`: whether it tells the tokens."""

    program: str
    argument: str | None = None
    finishes: tuple[str, str] | None = ("tool_calls", "stop")
    usage: bool = True

    @property
    def command(self) -> list[str]:
        variable = "CLIENTS_PYTHON"
        if self.program.startswith("npm/"):
            variable = "CLIENTS_NODE"
        elif "litellm" in self.program:
            variable = "CLIENTS_LITELLM_PYTHON"
        runner = os.environ.get(variable)
        if not runner:
            pytest.fail(f"{variable} is not set: run `make test-clients`, which installs the clients", pytrace=False)
        return [runner, str(HERE / self.program), *([self.argument] if self.argument else [])]


CLIENTS = {
    "openai": Client("python/openai_chat.py"),
    "openai-responses": Client("python/openai_responses.py", finishes=("completed", "completed")),
    "anthropic": Client("python/anthropic_messages.py", finishes=("tool_use", "end_turn")),
    "anthropic-runner": Client("python/anthropic_runner.py", finishes=("tool_use", "end_turn")),
    "pydantic-ai": Client("python/pydantic_agent.py", finishes=("tool_call", "stop")),
    "langchain-openai": Client("python/langchain_chat.py"),
    "openai-agents-chat": Client("python/agents_sdk.py", "chat", finishes=None),
    "openai-agents-responses": Client("python/agents_sdk.py", "responses", finishes=None),
    "litellm": Client("python/litellm_completion.py", "openai"),
    "litellm-anthropic": Client("python/litellm_completion.py", "anthropic"),
    "npm-openai": Client("npm/openai_chat.mjs"),
    "npm-openai-run-tools": Client("npm/openai_run_tools.mjs", usage=False),
    "npm-ai-sdk": Client("npm/ai_sdk.mjs", finishes=("tool-calls", "stop")),
}


KEY = "a-key-of-the-client"
"""What the programs send."""
SPECIAL = {
    "holding": ("hermes", "--hold-calls"),
    "repairing": ("hermes", "--repair", "1"),
    "sure": ("hermes", "--hold-calls", "--repair", "1"),
}
"""Gateways besides those that have the name of their dialect: the dialect, and what else they are told."""
LOCKED_GATEWAY = "locked"
"""One that has another key."""


@dataclass(frozen=True)
class Talk:
    """A conversation: whose, through which gateway, about what (see `upstream.py`)."""

    client: str
    gateway: str
    topic: str
    stream: bool

    @property
    def task(self) -> str:
        """What the user says: the topic picks the conversation, the rest tells the requests apart."""
        return f"{self.topic} {self.client}_{self.gateway}_{'streamed' if self.stream else 'plain'}"

    def case(self, url: str) -> dict[str, Any]:
        """As the programs read it."""
        return {"url": url, "task": self.task, "stream": self.stream}

    def __str__(self) -> str:
        return self.task


def talks(gateways: Iterable[str], topics: Iterable[str]) -> list[Talk]:
    return [Talk(*each) for each in itertools.product(CLIENTS, gateways, topics, (False, True))]


REGULAR = talks(DIALECTS, CALLS)
MALFORMED_TALKS = talks(["hermes", *SPECIAL], ["#malformed"])
FAILING = [*talks(["hermes"], ["#broken"]), *talks([LOCKED_GATEWAY], ["#one"])]
TALKS = [*REGULAR, *MALFORMED_TALKS, *FAILING]


def have(client: Client, cases: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Has a client hold these conversations, one after the other; what it saw, by the task."""
    result = subprocess.run(
        client.command,
        input="".join(json.dumps(case) + "\n" for case in cases),
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=SECONDS,
    )
    assert result.returncode == 0, f"{client.program} ended with {result.returncode}\n{result.stderr[-3000:]}"
    return {outcome["task"]: outcome for outcome in map(json.loads, result.stdout.splitlines())}
