"""The boundaries that this kernel lets a test use; a test of the others is skipped, with the reason."""

from __future__ import annotations

import asyncio
import shutil
import sys

import pytest

from toolspeak.sandbox.base import Sandbox
from toolspeak.sandbox.bubblewrap import Bubblewrap
from toolspeak.sandbox.control_groups import ControlGroups
from toolspeak.sandbox.landlock import Landlock
from toolspeak.testing.sandbox import OpenSandbox

LEVELS = ("bubblewrap", "landlock")
_problems: dict[str, str] = {}


def problem_with(level: str) -> str:
    """Why the boundary is not to be had here, "" if it is."""
    if level not in _problems:
        program = shutil.which("bwrap")
        if sys.platform != "linux":
            _problems[level] = "this system is not Linux"
        elif level == "landlock":
            _problems[level] = asyncio.run(Landlock.probe())
        else:
            _problems[level] = asyncio.run(Bubblewrap.probe(program)) if program else "bubblewrap is not installed"
    return _problems[level]


def open_level(level: str) -> OpenSandbox:
    """Opens the boundary of this name. Skips the test if it is not to be had."""
    if problem := problem_with(level):
        pytest.skip(f"{level}: {problem}")

    async def open_sandbox() -> Sandbox:
        groups = await ControlGroups.find()
        if level == "landlock":
            return Landlock(groups)
        program = shutil.which("bwrap")
        assert program is not None
        return Bubblewrap(program, sys.executable, groups)

    return open_sandbox
