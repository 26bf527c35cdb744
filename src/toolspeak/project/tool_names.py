"""The names that other agents' files use for tools, and ours."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "Agent": "task",
        "Bash": "shell",
        "Edit": "edit",
        "Glob": "find",
        "Grep": "find",
        "LS": "list",
        "MultiEdit": "edit",
        "Read": "read",
        "Skill": "skill",
        "Task": "task",
        "TodoWrite": "todo",
        "Write": "write",
    }
)
"""Our name of a tool by the one in files for Claude Code."""
