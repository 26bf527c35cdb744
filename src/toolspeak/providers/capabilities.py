"""What an API can do; what its models are known not to have is in families.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from toolspeak.data.values import quick


@quick()
class Capabilities:
    """`None` of a number is unknown.

    `tools`: native tool calls. `parallel`: several in one turn. `output`: an answer of a JSON Schema.
    `output_with_tools`: beside tools too, whose calls it lets through. `output_closed`: only of a schema that names all
    keys of its objects and does not hold itself. `grammar`: the language of the grammars that a request may hold the
    model to (`wire.base.Constraint`), if any. `reasoning`: the API keeps reasoning apart. `tool_choice`: `required` and
    a named tool are enforced. `tool_role`: messages of role `tool` that carry no call id are taken. `context`: the
    model's window in tokens. `resume`: the server keeps a conversation, so that only what is new is sent.
    `cache_markers`: a prompt is only cached where the request says so. `server_prompt`: with the tool choice `none` the
    server writes tools, calls and results into the prompt by the model's own chat template, and leaves the reply as it
    is (the agent asks whether it does).
    """

    tools: bool = False
    parallel: bool = True
    output: bool = False
    output_with_tools: bool = False
    output_closed: bool = False
    grammar: Literal["gbnf", "xgrammar"] | None = None
    reasoning: bool = False
    tool_choice: bool = False
    tool_role: bool = False
    context: int | None = None
    resume: bool = False
    cache_markers: bool = False
    server_prompt: bool = False


APIS: Mapping[str, Capabilities] = {
    "anthropic": Capabilities(
        tools=True,
        output=True,
        output_with_tools=True,
        output_closed=True,
        reasoning=True,
        tool_choice=True,
        cache_markers=True,
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

`output_with_tools`: engines that one runs oneself hold the whole turn to the schema, so that no call is ever made
(GitHub, ollama/ollama#13750, vllm-project/vllm#39929); of the services without it nobody here knows.
`output_closed`: Anthropic refuses other schemas ("Structured outputs", JSON Schema limitations); Gemini gives back an
object empty whose keys are not named, or refuses it (GitHub, pydantic/pydantic-ai#2588, browser-use/browser-use#3786).
`tool_role`: engines hand such a message to the model's chat template as it is. OpenAI and those that follow it take one
only behind an assistant's `tool_calls`, LM Studio only with an id (GitHub, nugget/thane-ai-agent#1396), and what
OpenRouter's and Together's hosts take differs.
`server_prompt`: vLLM leaves the tools out if it was started with `--exclude-tools-when-tool-choice-none`. SGLang always
does (`serving_chat.py`), and Ollama and LM Studio look for calls in every reply to a request with tools.
"""
