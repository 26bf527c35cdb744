"""The user's own Python tools, by a place in a module (`--tools`)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any, cast

from toolspeak.errors import ConfigurationError, ToolspeakError
from toolspeak.project.python_places import attribute_at, module_at
from toolspeak.tools import Tool, Toolset

_MAKES_TOOLS = re.compile(r"\bTool(set)?\b")


def load_tools(places: Sequence[str], folders: Sequence[str] = ()) -> Toolset:
    """The tools at these places: `module:name` or `file.py:name`. A name is that of a function, a Tool, a Toolset, a
    list of these, or a function without parameters whose annotation says that it returns one of them.

    - `folders`: where modules are looked for that are not installed. They come last, so that no file there takes the
      place of an installed module.

    Raises ConfigurationError, which names the place and the remedy.
    """
    if places:
        sys.path.extend(folder for folder in folders if folder not in sys.path)
    tools = list[Tool]()
    for place in places:
        tools += _tools_at(place)
    return Toolset(tools)


def absolute_place(place: str, folder: str) -> str:
    """The place, valid in any folder: a path of a file becomes absolute."""
    module, colon, name = place.rpartition(":")
    return f"{os.path.join(folder, module)}{colon}{name}" if module.endswith(".py") else place


def _tools_at(place: str) -> Toolset:
    module, _, name = place.rpartition(":")
    if not module or not name or module.endswith(":"):
        raise ConfigurationError(f"tools {place!r}: write MODULE:NAME or FILE.py:NAME")
    try:
        value: Any = attribute_at(module_at(module), name)
        if _is_factory(value):
            value = value()
        if isinstance(value, Tool) or (callable(value) and not isinstance(value, Iterable)):
            return Toolset([cast("Any", value)])
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise ConfigurationError(
                f"it is a {type(cast('object', value)).__name__}; name a function, a Tool, a Toolset or a list of them"
            )
        return Toolset(cast("Any", value))
    except ToolspeakError as error:
        raise ConfigurationError(f"tools {place!r}: {error}") from None
    except (Exception, SystemExit) as error:
        problem = f"{type(error).__name__}: {error}"
        raise ConfigurationError(
            f"tools {place!r}: the module {module} fails: {problem}; run it alone to see where"
        ) from error


def _is_factory(value: object) -> bool:
    """Whether the value is a function that makes tools, and not a tool itself."""
    if not callable(value) or isinstance(value, Tool | Toolset):
        return False
    function = signature(value)
    needs_arguments = any(each.default is Parameter.empty for each in function.parameters.values())
    return not needs_arguments and _MAKES_TOOLS.search(str(function.return_annotation)) is not None
