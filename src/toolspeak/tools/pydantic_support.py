"""The names that need pydantic or the parser of docstrings. They are imported when the first function becomes a tool,
or for the first value that only pydantic can write."""

# pyright: reportUnsupportedDunderAll=false

import importlib
from types import ModuleType

from toolspeak.errors import ConfigurationError
from toolspeak.lazy import lazy_names

_PLACES = {
    "BaseModel": "pydantic",
    "PydanticUserError": "pydantic",
    "TypeAdapter": "pydantic",
    "ValidationError": "pydantic",
    "describe_parameters": "toolspeak.tools.parameter_schema",
    "from_json": "pydantic_core",
    "read_docstring": "toolspeak.tools.docstring",
    "to_jsonable_python": "pydantic_core",
    "tool_from_model": "toolspeak.tools.model_tool",
    "tool_from_openai": "toolspeak.tools.schema_tools",
    "tool_from_schema": "toolspeak.tools.schema_tools",
}
"""The module of each name. Type checkers read `pydantic_support.pyi`."""

__all__ = list(_PLACES)


def _load(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name != "jsonschema_rs":
            raise
        raise ConfigurationError(f"tools of a JSON Schema need: pip install 'toolspeak[schemas]' ({error})") from error


__getattr__, __dir__ = lazy_names(__name__, _PLACES, _load)
