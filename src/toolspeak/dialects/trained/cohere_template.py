"""Cohere's Command: a list of JSON objects, by hand, in the system turn; Command R+ as heads of Python functions."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.data.messages import JSON, as_list, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.trained.hermes_template import python_type
from toolspeak.dialects.trained.template import Template, dump, fill_tools, in_system


def _tool(spec: ToolSpec) -> str:
    # The templates do not escape the description.
    return (
        f'    {{"name": "{spec.name}", "description": "{spec.description}", "parameters": {dump(spec.parameters)}, '
        '"responses": null}'
    )


_STEPS = """\
You have been trained to have advanced reasoning and tool-use capabilities and you should make best use of these skills \
to serve user's requests.

## Tool Use
Think about how you can make best use of the provided tools to help with the task and come up with a high level plan \
that you will execute first.

0. Start by writing <|START_THINKING|> followed by a detailed step by step plan of how you will solve the problem. For \
each step explain your thinking fully and give details of required tool calls (if needed). Unless specified otherwise, \
you write your plan in natural language. When you finish, close it out with <|END_THINKING|>.
    You can optionally choose to skip this step when the user request is so straightforward to address that only a \
trivial plan would be needed.
    NOTE: You MUST skip this step when you are directly responding to the user's request without using any tools.

Then carry out your plan by repeatedly executing the following steps.
1. Action: write <|START_ACTION|> followed by a list of JSON-formatted tool calls, with each one containing "tool_name" \
and "parameters" fields.
    When there are multiple tool calls which are completely independent of each other (i.e. they can be executed in \
parallel), you should list them out all together in one step. When you finish, close it out with <|END_ACTION|>.
2. Observation: you will then receive results of those tool calls in JSON format in the very next turn, wrapped around \
by <|START_TOOL_RESULT|> and <|END_TOOL_RESULT|>. Carefully observe those results and think about what to do next. Note \
that these results will be provided to you in a separate turn. NEVER hallucinate results.
    Every tool call produces a list of results (when a tool call produces no result or a single result, it'll still get \
wrapped inside a list). Each result is clearly linked to its originating tool call via its "tool_call_id".
3. Reflection: start the next turn by writing <|START_THINKING|> followed by what you've figured out so far, any changes \
you need to make to your plan, and what you will do next. When you finish, close it out with <|END_THINKING|>.
    You can optionally choose to skip this step when everything is going according to plan and no special pieces of \
information or reasoning chains need to be recorded.
    NOTE: You MUST skip this step when you are done with tool-use actions and are ready to respond to the user.

You can repeat the above 3 steps multiple times (could be 0 times too if no suitable tool calls are available or \
needed), until you decide it's time to finally respond to the user.

4. Response: then break out of the loop and write <|START_RESPONSE|> followed by a piece of text which serves as a \
response to the user's last request. Use all previous tool calls and results to help you when formulating your response. \
When you finish, close it out with <|END_RESPONSE|>."""

_AVAILABLE = """\
## Available Tools
Here is the list of tools that you have available to you.
You can ONLY use the tools listed here. When a tool is not listed below, it is NOT available and you should NEVER \
attempt to use it.
Each tool is represented as a JSON object with fields like "name", "description", "parameters" (per JSON Schema), and \
optionally, "responses" (per JSON Schema)."""


def _tools(tools: Sequence[ToolSpec]) -> str:
    return ",\n".join(map(_tool, tools))


def _python_type(schema: JSON) -> str:
    # The template raises for an object without `additionalProperties`.
    return python_type(schema, "List", "Dict", "Dict[str, Any]")


def _python(spec: ToolSpec) -> str:
    required_names = as_list(spec.parameters.get("required"))
    types = {name: _python_type(each) for name, each in spec.properties.items()}
    types = {name: kind if name in required_names else f"Optional[{kind}]" for name, kind in types.items()}
    head = ", ".join(f"{name}: {kind}{'' if name in required_names else ' = None'}" for name, kind in types.items())
    descriptions = "\n        ".join(
        f"{name} ({types[name]}): {as_mapping(each).get('description') or ''}" for name, each in spec.properties.items()
    )
    arguments = f"\n\n    Args:\n        {descriptions}" if types else ""
    return f'```python\ndef {spec.name}({head}) -> List[Dict]:\n    """{spec.description}{arguments}\n    """\n    pass\n```'


_TASK = """\
## Task and Context
You help people answer their questions and other requests interactively. You will be asked a very wide array of requests \
on all kinds of topics. You will be equipped with a wide range of search engines or similar tools to help you, which you \
use to research your answer. You should focus on serving the user's needs as best you can, which will be wide-ranging.

## Style Guide
Unless the user asks for a different style of answer, you should answer in full sentences, using proper grammar and \
spelling."""


def _python_tools(tools: Sequence[ToolSpec]) -> str:
    tool_text = "\n\n".join(map(_python, tools))
    return f"## Available Tools\nHere is a list of tools that you have available to you:\n\n{tool_text}"


_JSON = "```json\n[\n{tools}\n]\n```"
COMMAND_R7B = Template(
    source="CohereLabs/c4ai-command-r7b-12-2024 (tool_use)",
    place=in_system(fill_tools(f"{_STEPS}\n\n{_AVAILABLE}\n\n{_JSON}", _tools)),
)
COMMAND_MOE = Template(
    source="Cohere2MoE, as llama.cpp has it",
    models=("command-a-moe", "cohere2moe", "north-mini"),
    place=in_system(fill_tools(f"# Available Tools\n{_JSON}", _tools)),
)
COMMAND_R_PLUS = Template(
    source="CohereLabs/c4ai-command-r-plus (tool_use)", place=in_system(_python_tools, default=_TASK)
)
