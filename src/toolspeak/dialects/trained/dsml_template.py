"""DeepSeek since 3.2 (DSML), and the template of llama.cpp for DeepSeek R1: the schemas as JSON, in the system text."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.trained.template import (
    Template,
    before_system,
    dump,
    fill_tools,
    function_lines,
    function_of,
    in_system,
)

_V32 = """\
## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<｜DSML｜function_calls>" block like the following as part of your reply to the \
user:
<｜DSML｜function_calls>
<｜DSML｜invoke name="$FUNCTION_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$FUNCTION_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜function_calls>

String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should \
use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types \
(numbers, booleans, arrays, objects).

If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. \
Here is an example:

<｜DSML｜function_calls>
...
</｜DSML｜function_calls>

<function_results>
...
</function_results>

<think>...thinking about results</think>

Here are the functions available in JSONSchema format:
<functions>
{tools}
</functions>
"""

_V4 = """\
## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a \
"<｜DSML｜tool_calls>" block like the following:

<｜DSML｜tool_calls>
<｜DSML｜invoke name="$TOOL_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$TOOL_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜tool_calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, \
objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> \
BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

{tools}

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""

_R1 = """\
You can call any of the following function tools to satisfy the user's requests: {tools}

Example function tool call syntax:

<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>example_function_name
```json
{
  "arg1": "some_value"
  ...
}
```
<｜tool▁call▁end｜><｜tool▁calls▁end｜>

"""


def _indented_functions(tools: Sequence[ToolSpec]) -> str:
    return dump([function_of(spec) for spec in tools], indent=2)


V32 = Template(source="deepseek-ai/DeepSeek-V3.2", place=in_system(fill_tools(_V32, function_lines)))
V4 = Template(source="deepseek-ai/DeepSeek-V4, of V4-Flash too", place=in_system(fill_tools(_V4, function_lines)))
R1 = Template(
    source="llama.cpp, models/templates/llama-cpp-deepseek-r1.jinja",
    place=before_system(fill_tools(_R1, _indented_functions), joint=""),
)
