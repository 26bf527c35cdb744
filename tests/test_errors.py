"""The tree of errors that `toolspeak.errors` draws is whole."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from toolspeak import errors

SOURCE = Path(errors.__file__).parent


def bases() -> dict[str, set[str]]:
    """Each class of the package with the classes that it is made of."""
    parents: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                parents.setdefault(node.name, set()).update(ast.unparse(base) for base in node.bases)
    return parents


def test_the_tree_has_every_error_below_its_parent():
    parents, tree = bases(), {"ToolspeakError"}
    while more := {name for name, above in parents.items() if above & tree} - tree:
        tree |= more
    parent_by_name: dict[str, str] = {"ToolspeakError": ""}
    above = ["ToolspeakError"]
    for line in str(errors.__doc__).splitlines():
        match = re.match(r" {4}((?:[│ ] {3})*)[├└]── (\w+)", line)
        if match:
            depth = len(match[1]) // 4 + 1
            parent_by_name[match[2]] = above[depth - 1]
            above[depth:] = [match[2]]
    assert set(parent_by_name) == tree
    assert {name: parent for name, parent in parent_by_name.items() if parent and parent not in parents[name]} == {}
