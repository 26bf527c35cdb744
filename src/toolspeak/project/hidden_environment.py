"""Hides the environment of this process, which holds keys, from the commands that it starts."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

_PR_SET_DUMPABLE = 4


def hide_environment() -> None:
    """Hides this process's environment from the commands it starts (`/proc/PID/environ`). Only on Linux, and not from
    root.

    A process that is not "dumpable" belongs to root in /proc (man 2 prctl, PR_SET_DUMPABLE); its children are dumpable
    again.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
