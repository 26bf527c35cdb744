"""What a model behind an API can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Capabilities:
    """`None` of a number is unknown.

    `tools`: native tool calls. `parallel`: several in one turn. `output`: an answer of a JSON Schema. `grammar`: what
    constrains what the model writes, if anything. `reasoning`: the API keeps reasoning apart. `tool_choice`:
    `required` and a named tool are enforced. `tool_role`: messages of role `tool` that carry no call id are taken.
    `context`: the model's window in tokens. `resume`: the server keeps a conversation, so that only what is new is
    sent. `cache_markers`: a prompt is only cached where the request says so.
    """

    tools: bool = False
    parallel: bool = True
    output: bool = False
    grammar: Literal["gbnf", "lark", "xgrammar", "regex"] | None = None
    reasoning: bool = False
    tool_choice: bool = False
    tool_role: bool = False
    context: int | None = None
    resume: bool = False
    cache_markers: bool = False
