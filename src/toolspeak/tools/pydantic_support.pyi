# What `pydantic_support.py` gives, for type checkers: a test holds the two together.

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import from_json, to_jsonable_python

from toolspeak.tools.docstring import read_docstring
from toolspeak.tools.model_tool import tool_from_model
from toolspeak.tools.parameter_schema import describe_parameters
from toolspeak.tools.schema_tools import tool_from_openai, tool_from_schema

__all__ = [
    "BaseModel",
    "PydanticUserError",
    "TypeAdapter",
    "ValidationError",
    "describe_parameters",
    "from_json",
    "read_docstring",
    "to_jsonable_python",
    "tool_from_model",
    "tool_from_openai",
    "tool_from_schema",
]
