"""What pydantic and the reading of docstrings are needed for: loaded with the first function that is made a tool, or
the first value that only pydantic can write."""

# pyright: reportUnsupportedDunderAll=false

from toolspeak.lazy import lazy_names

_PLACES = {
    "BaseModel": "pydantic",
    "TypeAdapter": "pydantic",
    "ValidationError": "pydantic",
    "describe_parameters": "toolspeak.tools.parameter_schema",
    "read_docstring": "toolspeak.tools.docstring",
    "to_jsonable_python": "pydantic_core",
}
"""Each name and where it is. Type checkers read `typed.pyi`."""

__all__ = list(_PLACES)

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
