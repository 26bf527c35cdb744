"""Values in Python modules, by a place such as `shop.tools:find` or `tools.py:find`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from toolspeak.errors import ConfigurationError, suggest


def attribute_at(module: ModuleType, attribute: str) -> Any:
    """The value of this name in a module; dots lead into values. Raises ConfigurationError if there is none."""
    value: Any = module
    for name in attribute.split("."):
        if not hasattr(value, name):
            raise ConfigurationError(f"{module.__name__} has no {suggest(name, dir(value))}")
        value = getattr(value, name)
    return value


def module_at(name: str) -> ModuleType:
    """The module of this name, or in the file of this path, which ends in `.py`. Raises ConfigurationError if there is
    none, and what the module itself raises."""
    try:
        if not name.endswith(".py"):
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location(Path(name).stem, name)
        assert spec is not None, "it is a Python file"
        assert spec.loader is not None, "it is a Python file"
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ConfigurationError(f"there is no module {name} here: name one, or the path of a file") from error
    except FileNotFoundError:
        raise ConfigurationError(f"there is no file {name}") from None
    return module
