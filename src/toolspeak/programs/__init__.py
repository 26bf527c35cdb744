"""Programs that call tools: their tools as Python functions, and the interpreter (needs the extra `code`)."""

import importlib
from types import ModuleType

from toolspeak.errors import ConfigurationError
from toolspeak.lazy import lazy_names

_INTERPRETER = "toolspeak.programs.interpreter"
_PLACES = {
    "CallFailure": _INTERPRETER,
    "CodeMode": "toolspeak.programs.code_mode",
    "ProgramEnd": _INTERPRETER,
    "Interpreter": _INTERPRETER,
    "ProgramCall": _INTERPRETER,
    "ProgramStop": _INTERPRETER,
    "ToolFunctions": "toolspeak.programs.tool_functions",
    "VERSION": _INTERPRETER,
    "size_of": "toolspeak.programs.program_limits",
    "type_returned_by": "toolspeak.programs.tool_functions",
    "ProgramWait": _INTERPRETER,
}
"""The module of each name, imported at its first use. Type checkers read `__init__.pyi`."""


def _load(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is None or not error.name.startswith("pydantic_monty"):
            raise
        raise ConfigurationError(f"code mode needs: pip install 'toolspeak[code]' ({error})") from error


__getattr__, __dir__ = lazy_names(__name__, _PLACES, _load)
