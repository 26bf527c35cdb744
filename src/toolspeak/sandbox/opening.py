"""Opens the best sandbox that this system has, and says in a line what it is."""

from __future__ import annotations

import os
import shutil
import sys

from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.sandbox.base import Sandbox, SandboxMode
from toolspeak.sandbox.bubblewrap import Bubblewrap
from toolspeak.sandbox.control_groups import ControlGroups
from toolspeak.sandbox.landlock import Landlock
from toolspeak.sandbox.no_sandbox import NoSandbox

BETTER = "install bubblewrap (apt-get install bubblewrap, dnf install bubblewrap) and allow user namespaces"
"""What gives a system the best boundary."""

_REMEDY = (
    f"{BETTER}, or use Linux 6.2 or later for Landlock; or let commands run with all your rights: --sandbox off, or"
    " TOOLSPEAK_SANDBOX=off, as in a container that is the boundary itself"
)

_PYTHON = "" if getattr(sys, "frozen", False) or not sys.executable else os.path.realpath(sys.executable)
"""A Python, "" without one: in a frozen application `sys.executable` is the application."""


@quick(eq=False)
class OpenedSandbox:
    """A sandbox, and what to say about it.

    - `line`: what is active, for the person.
    - `why_no_better`: why the boundaries are not there that hold more; "" for the best one, and if none is wanted.
    """

    sandbox: Sandbox
    line: str
    why_no_better: str = ""


async def open_sandbox(mode: SandboxMode, *, near: str = "") -> OpenedSandbox:
    """The best sandbox of this system: bubblewrap if a probe shows that it works, else Landlock, else none.

    `near`: the workspace. A `bwrap` in it is not the system's, and is not used. Raises ConfigurationError for
    "required" if there is none.
    """
    if mode == "off":
        return OpenedSandbox(NoSandbox(), "sandbox: off: commands have all your rights")
    if sys.platform != "linux":
        reasons = ["this system is not Linux"]
    else:
        program = _bubblewrap_program(near)
        reason = "bubblewrap is not installed" if program is None else await Bubblewrap.probe(program)
        if program is not None and not reason:
            return _with_line(Bubblewrap(program, _PYTHON, await ControlGroups.find()))
        reasons = [f"bubblewrap: {reason}"]
        reason = await Landlock.probe()
        if not reason:
            return _with_line(Landlock(await ControlGroups.find()), reasons[0])
        reasons.append(f"Landlock: {reason}")
    why = "; ".join(reasons)
    if mode == "auto":
        return OpenedSandbox(NoSandbox(), f"sandbox: none ({why}): commands have all your rights", why)
    raise ConfigurationError(f"commands need a sandbox here, and this system has none ({why}): {_REMEDY}")


def _with_line(sandbox: Sandbox, why_no_better: str = "") -> OpenedSandbox:
    gaps = f" (it does not stop: {'; '.join(sandbox.gaps)})" if sandbox.gaps else ""
    return OpenedSandbox(sandbox, f"sandbox: {sandbox.level}{gaps}", why_no_better)


def _bubblewrap_program(near: str) -> str | None:
    """The path of `bwrap`, outside of the workspace and of folders that anybody may write."""
    folders = [each for each in os.get_exec_path() if os.path.isabs(each)]
    for folder in folders:
        program = shutil.which("bwrap", path=folder)
        if program is not None and not (near and os.path.realpath(program).startswith(os.path.realpath(near) + os.sep)):
            return os.path.realpath(program)
    return None
