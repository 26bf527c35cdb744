"""The settings of hooks: commands that run on events. The table has the shape of Claude Code's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, suggest

EVENTS = (
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PermissionRequest",
    "UserPromptSubmit",
    "Stop",
    "SubagentStop",
    "PreCompact",
    "SessionStart",
    "SessionEnd",
)
"""The events on which hooks run."""

SECONDS = 60.0
"""The time limit of a hook that names none."""

_MOST_SECONDS = 3600.0
_MATCHER_KEYS = ("matcher", "hooks")
_HOOK_KEYS = ("type", "command", "timeout")


@quick()
class CommandHook:
    """A command that runs on an event.

    - `matcher`: a regular expression for the whole of the tool's name, or of what else the event names; "" fits all.
    - `timeout`: in seconds.
    """

    event: str
    command: str
    matcher: str = ""
    timeout: float = SECONDS

    def fits(self, name: str) -> bool:
        """Whether the hook runs for this name."""
        return not self.matcher or re.fullmatch(self.matcher, name) is not None


def read_hooks(table: Mapping[str, JSON]) -> tuple[CommandHook, ...]:
    """The hooks of a table of events: `{"PreToolUse": [{"matcher": "shell", "hooks": [{"type": "command", "command":
    "…"}]}]}`. Raises ConfigurationError with the key and the remedy."""
    hooks = list[CommandHook]()
    for event, entries in table.items():
        if event not in EVENTS:
            raise ConfigurationError(f"{event}: there is no event {suggest(event, EVENTS)}")
        for number, entry in enumerate(_list(entries, event)):
            place = f"{event}[{number}]"
            fields = _table(entry, place, _MATCHER_KEYS)
            matcher = _matcher(fields.get("matcher", ""), f"{place}.matcher")
            for index, hook in enumerate(_list(fields.get("hooks"), f"{place}.hooks")):
                hooks.append(_hook(event, matcher, hook, f"{place}.hooks[{index}]"))
    return tuple(hooks)


def _hook(event: str, matcher: str, value: JSON, place: str) -> CommandHook:
    fields = _table(value, place, _HOOK_KEYS)
    if fields.get("type", "command") != "command":
        raise ConfigurationError(f'{place}.type: hooks are commands; write "command", not {fields["type"]!r}')
    command, timeout = fields.get("command"), fields.get("timeout", SECONDS)
    if not isinstance(command, str) or not command.strip() or "\0" in command:
        raise ConfigurationError(f"{place}.command: write the command line that /bin/sh runs")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= _MOST_SECONDS:
        raise ConfigurationError(f"{place}.timeout: write a number of seconds above 0, at most {_MOST_SECONDS:,.0f}")
    return CommandHook(event, command, matcher, float(timeout))


def _matcher(value: JSON, place: str) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{place}: write a regular expression, such as 'shell|write'")
    if value in ("", "*"):
        return ""
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigurationError(f"{place}: {value!r} is not a regular expression: {error}") from None
    return value


def _list(value: JSON, place: str) -> Sequence[JSON]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigurationError(f"{place}: write a list")
    return cast("Sequence[JSON]", value)


def _table(value: JSON, place: str, keys: Sequence[str]) -> Mapping[str, JSON]:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{place}: write a table with the keys {', '.join(keys)}")
    fields = cast("Mapping[str, JSON]", value)
    for key in fields:
        if key not in keys:
            raise ConfigurationError(f"{place}: unknown key {suggest(key, keys)}")
    return fields
