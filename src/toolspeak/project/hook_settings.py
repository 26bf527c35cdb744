"""The settings of hooks: commands that run on events. The table has the shape of Claude Code's."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from toolspeak.data.messages import JSON
from toolspeak.data.values import evolve, quick
from toolspeak.errors import ConfigurationError, suggest
from toolspeak.project.tool_names import other_names_of

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
_MATCHER_KEYS = ("matcher", "hooks", "names")
_HOOK_KEYS = ("type", "command", "timeout")


@quick()
class CommandHook:
    """A command that runs on an event.

    - `matcher`: a regular expression for the whole of the tool's name, or of what else the event names; "" fits all.
    - `timeout`: in seconds.
    - `names`: "claude" if it knows the tools and their parameters by the names of Claude Code.
    """

    event: str
    command: str
    matcher: str = ""
    timeout: float = SECONDS
    names: Literal["", "claude"] = ""

    def name_of(self, name: str) -> str | None:
        """The name by which the hook knows what the event names; None if it does not run for it."""
        names = other_names_of(name) if self.names else (name,)
        return next((each for each in names if not self.matcher or re.fullmatch(self.matcher, each)), None)


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
                command = _hook(event, matcher, hook, f"{place}.hooks[{index}]")
                hooks.append(evolve(command, names="claude") if fields.get("names") == "claude" else command)
            if fields.get("names", "") not in ("", "claude"):
                raise ConfigurationError(f'{place}.names: write "claude", or leave it out')
    return tuple(hooks)


def hooks_of_claude(text: str) -> dict[str, list[JSON]]:
    """The hooks of a settings.json of Claude Code, as a table for `read_hooks`. What toolspeak has no event for, and
    hooks that are no commands, are left out. Raises ConfigurationError for a text that is no such file."""
    try:
        settings: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"it is not JSON: {error}") from None
    if not isinstance(settings, dict):
        raise ConfigurationError("it is not a JSON object")
    events: Mapping[str, Any] = cast("dict[str, Any]", settings).get("hooks") or {}
    table: dict[str, list[JSON]] = {}
    for event, entries in _table(events, "hooks", ()).items():
        for entry in _list(entries, event) if event in EVENTS else ():
            fields = _table(entry, event, ())
            commands: list[JSON] = []
            for hook in _list(fields.get("hooks"), event):
                values = _table(hook, event, ())
                if values.get("type", "command") == "command":
                    commands.append({name: values[name] for name in _HOOK_KEYS if name in values})
            table.setdefault(event, []).append(
                {"matcher": fields.get("matcher") or "", "hooks": commands, "names": "claude"}
            )
    return table


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
        if keys and key not in keys:
            raise ConfigurationError(f"{place}: unknown key {suggest(key, keys)}")
    return fields
