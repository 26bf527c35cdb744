"""Seed-OSS: each tool as the head of a Python function, after the system text."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.data.messages import JSON, as_list, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.trained.template import Template, apart, in_system

_TYPES = {"string": "str", "number": "int", "integer": "int", "boolean": "bool", "array": "list"}


def _type(schema: JSON) -> str:
    kind = as_mapping(schema).get("type")
    return _TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"


def _tool(spec: ToolSpec) -> str:
    required_names = as_list(spec.parameters.get("required"))
    head = ",".join(f"{name}: {_type(schema)}" for name, schema in spec.properties.items())
    parameter_lines = "".join(
        f"\n    - {name} ({_type(schema)}) [{'必填' if name in required_names else '选填'}]: "
        f"{as_mapping(schema).get('description') or ''}"
        for name, schema in spec.properties.items()
    )
    arguments = f"    Args:{parameter_lines}" if spec.properties else ""
    return f'\n\nFunction:\ndef {spec.name}({head}):\n    """\n    {spec.description.strip()}\n\n{arguments}\n\n    """'


_FORMAT = """\
工具调用请遵循如下格式:
<seed:tool_call>
<function=example_function_name>
<parameter=example_parameter_1>value_1</parameter>
<parameter=example_parameter_2>This is the value for the second parameter
that can span
multiple lines</parameter>
</function>
</seed:tool_call>
"""


def _tools(tools: Sequence[ToolSpec]) -> str:
    return "".join(map(_tool, tools)) + f"\n{_FORMAT}"


SEED_OSS = Template(
    turn=apart,
    tool_turns=True,
    source="ByteDance-Seed/Seed-OSS-36B-Instruct",
    place=in_system(
        _tools,
        joint="",
        default="You are Doubao, a helpful AI assistant. You may call one or more functions to assist with the user query.",
    ),
)
