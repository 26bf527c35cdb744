"""The names that other agents' files use for tools, and ours."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolspeak.data.messages import JSON

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
        "WebFetch": "fetch",
        "WebSearch": "search",
        "Write": "write",
    }
)
"""Our name of a tool by the one in files for Claude Code."""

_OTHER_PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "edit": {"path": "file_path", "old": "old_string", "new": "new_string"},
    "read": {"path": "file_path"},
    "task": {"agent": "subagent_type", "task": "prompt"},
    "write": {"path": "file_path"},
}


def other_names_of(name: str) -> tuple[str, ...]:
    """The names of one of our tools in files for Claude Code; its own name if it has none there."""
    return tuple(other for other, own in OTHER_NAMES.items() if own == name) or (name,)


def with_other_parameters(name: str, arguments: Mapping[str, JSON]) -> dict[str, JSON]:
    """The arguments of one of our tools under the names that Claude Code's tool has for them."""
    names = _OTHER_PARAMETERS.get(name, {})
    return {names.get(each, each): value for each, value in arguments.items()}


def with_own_parameters(name: str, arguments: Mapping[str, JSON]) -> dict[str, JSON]:
    """The opposite of `with_other_parameters`."""
    names = {other: own for own, other in _OTHER_PARAMETERS.get(name, {}).items()}
    return {names.get(each, each): value for each, value in arguments.items()}
