"""The sandbox of every command of this process whose tool has none of its own, as a worker sets it."""

from __future__ import annotations

from toolspeak.sandbox.command_sandbox import CommandSandbox

_DEFAULTS: list[CommandSandbox] = []


def use_by_default(sandbox: CommandSandbox) -> None:
    """Lets commands of this process run in a sandbox if their tool has none of its own."""
    _DEFAULTS[:] = [sandbox]


def default_sandbox() -> CommandSandbox | None:
    """The sandbox of `use_by_default`; None if none was set."""
    return _DEFAULTS[0] if _DEFAULTS else None


def default_level() -> str:
    """What holds the commands of a tool without a sandbox of its own."""
    return _DEFAULTS[0].sandbox.level if _DEFAULTS else "none"
