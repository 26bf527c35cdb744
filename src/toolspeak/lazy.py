"""Public names that a package imports at their first use, so that one name does not cost the import of all."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType


def lazy_names(
    package: str, places: Mapping[str, str], load: Callable[[str], ModuleType] = importlib.import_module
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` (PEP 562) for a package. `places` maps each public name to its module.

    `load` imports a module. Type checkers read the package's `__init__.pyi`.
    """

    def find(name: str) -> object:
        place = places.get(name)
        if place is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(load(place), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return find, names
