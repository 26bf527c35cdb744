"""What each API can do. What its models cannot do is in families.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from toolspeak.data.values import quick


@quick()
class Capabilities:
    """What a model can do over an API."""

    tools: bool = False
    """Native tool calls."""
    parallel: bool = True
    """Several calls in one turn."""
    output: bool = False
    """Answers that match a JSON Schema."""
    output_with_tools: bool = False
    """Such answers in a request with tools: the model can still call them."""
    output_closed: bool = False
    """Such answers only for a schema that names all keys of its objects and is not recursive."""
    grammar: Literal["gbnf", "xgrammar"] | None = None
    """The grammar language that a request may constrain the text with (`wire.base.Constraint`)."""
    reasoning: bool = False
    """The API separates reasoning from the text."""
    tool_choice: bool = False
    """The API enforces the tool choice `required`, and that of a named tool."""
    tool_role: bool = False
    """The API accepts messages of role `tool` without a call id."""
    context: int | None = None
    """The model's window in tokens; None if unknown."""
    resume: bool = False
    """The server stores the conversation, so that a request holds only its new messages."""
    cache_markers: bool = False
    """The API caches only the parts of a prompt that the request marks."""
    tool_references: bool = False
    """The result of a search for tools may refer to their definitions, which the API then shows there. They do not
    change the beginning of the prompt."""
    server_prompt: bool = False
    """With the tool choice `none` the server writes tools, calls and results into the prompt with the model's own chat
    template, and does not parse the reply. The agent checks whether this server does."""


APIS: Mapping[str, Capabilities] = {
    "anthropic": Capabilities(
        tools=True,
        output=True,
        output_with_tools=True,
        output_closed=True,
        reasoning=True,
        tool_choice=True,
        cache_markers=True,
        tool_references=True,
    ),
    "gemini": Capabilities(
        tools=True, output=True, output_with_tools=True, output_closed=True, reasoning=True, tool_choice=True
    ),
    "ollama": Capabilities(tools=True, output=True, reasoning=True, tool_role=True),
    "openai": Capabilities(tools=True, output=True, output_with_tools=True, tool_choice=True),
    "openai-responses": Capabilities(
        tools=True, output=True, output_with_tools=True, tool_choice=True, reasoning=True, resume=True
    ),
    "openrouter": Capabilities(tools=True, reasoning=True),
    "groq": Capabilities(tools=True, tool_choice=True),
    "mistral": Capabilities(tools=True, output=True, reasoning=True, tool_choice=True),
    "deepseek": Capabilities(tools=True, reasoning=True),
    "together": Capabilities(tools=True, output=True, tool_choice=True),
    "vllm": Capabilities(
        tools=True,
        output=True,
        grammar="xgrammar",
        reasoning=True,
        tool_choice=True,
        tool_role=True,
        server_prompt=True,
    ),
    "sglang": Capabilities(
        tools=True, output=True, grammar="xgrammar", reasoning=True, tool_choice=True, tool_role=True
    ),
    # A named tool choice is ignored with a warning.
    "llamacpp": Capabilities(
        tools=True, output=True, grammar="gbnf", reasoning=True, tool_role=True, server_prompt=True
    ),
    "lmstudio": Capabilities(tools=True, output=True),
}
"""What each provider's API can do, by the provider's name.

`output_with_tools`: self-hosted engines constrain the whole turn to the schema, so that the model never makes a call
(GitHub, ollama/ollama#13750, vllm-project/vllm#39929). For the services without it nothing is known.
`output_closed`: Anthropic refuses other schemas ("Structured outputs", JSON Schema limitations). Gemini returns an
object without named keys empty, or refuses it (GitHub, pydantic/pydantic-ai#2588, browser-use/browser-use#3786).
`tool_role`: engines pass such a message unchanged to the model's chat template. OpenAI and its imitators accept one
only after an assistant's `tool_calls`, LM Studio only with an id (GitHub, nugget/thane-ai-agent#1396). OpenRouter's
and Together's hosts differ.
`tool_references`: Anthropic, "Tool search tool" (custom tool search), for models from Claude 4 on.
`server_prompt`: vLLM omits the tools if it runs with `--exclude-tools-when-tool-choice-none`. SGLang always omits them
(`serving_chat.py`). Ollama and LM Studio parse calls in every reply to a request with tools.
"""
