"""Imports all dialects of the registry."""

from __future__ import annotations

from collections.abc import Mapping

from toolspeak.dialects import registry
from toolspeak.dialects.base import Dialect

FAMILIES: Mapping[str, tuple[Dialect, ...]] = {
    family: tuple(map(registry.load_dialect, names)) for family, names in registry.FAMILIES.items()
}
"""The dialects by family, as in the registry."""

PROTOCOLS: tuple[Dialect, ...] = FAMILIES["protocols"]
"""The published text protocols, for models without their own format."""

DIALECTS: tuple[Dialect, ...] = tuple(dialect for family in FAMILIES.values() for dialect in family)
"""Every dialect, family by family."""
