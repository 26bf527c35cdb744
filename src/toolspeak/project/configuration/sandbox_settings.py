"""Opens the sandbox of a run's commands, as its settings have it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, get_args

from toolspeak.errors import ConfigurationError
from toolspeak.sandbox.base import SandboxMode
from toolspeak.sandbox.command_sandbox import CommandSandbox
from toolspeak.sandbox.host_rules import HostRule
from toolspeak.sandbox.opening import open_sandbox

EVERY_HOST = "all"


async def open_command_sandbox(
    workspace: str,
    *,
    is_attended: bool,
    sandbox: SandboxMode | Literal[""] = "",
    allow_net: Sequence[str] = (),
    sandbox_write: Sequence[str] = (),
    sandbox_read: Sequence[str] = (),
    unasked_reads: Literal["yes", "no"] = "no",
) -> tuple[CommandSandbox, str]:
    """The sandbox of commands in the workspace, and a line that says what it is. The caller closes it.

    `is_attended`: a person can be asked; then commands run without a sandbox where there is none. The others are those
    of `Setup`. Raises ConfigurationError for settings that it cannot use, and if a sandbox is required and there is
    none.
    """
    mode: SandboxMode = sandbox or mode_of_environment() or ("auto" if is_attended else "required")
    hosts = host_rules(allow_net)
    writable = _existing("--sandbox-write", sandbox_write)
    readable = _existing("--sandbox-read", sandbox_read)
    outcome = await open_sandbox(mode, near=workspace)
    commands = CommandSandbox(outcome.sandbox, hosts, writable, readable, unasked_reads=unasked_reads == "yes")
    if not commands.is_enforced:
        return commands, outcome.line
    reachable = "all hosts" if hosts is None else ", ".join(map(str, hosts)) or "none"
    if hosts and not outcome.sandbox.filters_hosts:
        reachable = f"none ({outcome.sandbox.level} cannot keep commands to a list of hosts)"
    return commands, f"{outcome.line}; network: {reachable}"


def mode_of_environment() -> SandboxMode | None:
    """The mode that TOOLSPEAK_SANDBOX sets; None without it. Raises ConfigurationError for another value."""
    text = os.environ.get("TOOLSPEAK_SANDBOX", "")
    mode = next((each for each in get_args(SandboxMode) if each == text), None)
    if text and mode is None:
        raise ConfigurationError(f"TOOLSPEAK_SANDBOX is {text!r}: set it to {', '.join(get_args(SandboxMode))}")
    return mode


def host_rules(texts: Sequence[str]) -> tuple[HostRule, ...] | None:
    """The rules of `--allow-net`; None for every host. Raises ConfigurationError."""
    try:
        return None if EVERY_HOST in texts else tuple(dict.fromkeys(map(HostRule.parse, texts)))
    except ConfigurationError as error:
        raise ConfigurationError(f"{error}; or `{EVERY_HOST}` for every host") from None


def _existing(option: str, paths: Sequence[str]) -> tuple[str, ...]:
    real = [os.path.realpath(os.path.expanduser(path)) for path in paths]
    for path in real:
        if not os.path.exists(path):
            raise ConfigurationError(f"{option} {path}: there is no such file or folder; make it first")
    return tuple(real)
