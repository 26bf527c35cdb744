"""A model that makes up the results of its own calls is not read further, in any dialect that marks results."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest

from toolspeak import Agent, tool
from toolspeak.agent import TextDriver
from toolspeak.data.deltas import Delta, TextDelta, TurnEnded
from toolspeak.data.messages import Message, TextMessage, TextPart, ToolCall, ToolResult, Usage
from toolspeak.dialects import Dialect, get_dialect
from toolspeak.providers import Capabilities, ModelRequest
from toolspeak.testing import chunks


@tool(read_only=True)
def look(path: str) -> str:
    """Reads a file."""
    return f"what is in {path}"


@dataclass
class Impatient:
    """Writes a call, what it believes the result to be, and an answer made of that; then answers to the real one."""

    dialect: Dialect
    characters_sent: int = 0
    prompts: list[str] = field(default_factory=list[str])
    name: str = "impatient"
    capabilities: Capabilities = Capabilities()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        self.prompts.append("\n".join(message.text for message in request.messages if isinstance(message, TextMessage)))
        text = self.turn if len(self.prompts) == 1 else "Done."
        for piece in chunks(text, 7):
            self.characters_sent += len(piece)
            yield TextDelta(piece)
        yield TurnEnded("stop", Usage(1, 1))

    @property
    def turn(self) -> str:
        call = ToolCall("callid000", "look", {"path": "a.txt"})
        text = self.dialect.render([Message("assistant", (call,))])[-1].text
        made_up = self.dialect.render_results([ToolResult("callid000", "look", "success", (TextPart("lies " * 400),))])
        return f"{text}\n{made_up}\nIt says lies."

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize(
    "name", ["cogency-json", "hermes", "mistral-args", "glm45", "harmony", "gemma4", "deepseek-v32"]
)
def test_made_up_results_are_neither_waited_for_nor_believed(name: str):
    model = Impatient(get_dialect(name))
    result = Agent(TextDriver(model, model.dialect), tools=[look]).run_sync("What is in a.txt?")
    assert result.answer == "Done."
    assert model.characters_sent < 500  # of more than 2,000 characters
    assert "what is in a.txt" in model.prompts[1]
    assert "lies lies" not in model.prompts[1]
