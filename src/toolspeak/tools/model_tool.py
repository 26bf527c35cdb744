"""Tools whose parameters are the fields of a pydantic model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from toolspeak.errors import ToolDefinitionError
from toolspeak.tools.decorator import build_tool, check_function, check_options
from toolspeak.tools.parameter_schema import describe_model
from toolspeak.tools.signature import read_signature
from toolspeak.tools.tool import Tool
from toolspeak.tools.tool_options import ToolOptions


def tool_from_model(
    function: Callable[..., Any],
    name: str | None,
    description: str | None,
    options: ToolOptions,
) -> Tool:
    """See `Tool.from_model`."""
    tool_name = check_function(function, name, "Tool.from_model")
    where = f"tool {tool_name!r}"
    check_options(options, where)
    signature = read_signature(function, where)
    model = signature.parameters[0].annotation if len(signature.parameters) == 1 else None
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise ToolDefinitionError(
            f"{where}: Tool.from_model needs a function with one argument that is annotated with a pydantic model, "
            "such as `def book(booking: Booking)`; it may also have a parameter for the run's context"
        )
    parameter = signature.parameters[0].name
    schema, reader = describe_model(parameter, model, where)
    if description is None:
        description = signature.description or (model.__doc__ or "").strip()
    return build_tool(function, tool_name, description, signature, schema, reader, reader.names, options)
