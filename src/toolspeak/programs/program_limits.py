"""The limits of a program: the size of its values, the number of its turns to the host, and its interpreter's time."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Any, cast

from pydantic_monty import MontyClassProxy

from toolspeak.programs.code_mode import CodeMode
from toolspeak.sandbox.limited_start import lower_limits

MOST_CHARACTERS = 64 * 1024 * 1024
"""The most characters of the arguments of all calls of one program, and of its value. Each call is recorded with its
own arguments, while the program may pass one value to all."""
_OF_ANY = 64
"""The characters that any value counts besides its text: to look at a million of them takes a moment."""
_SECONDS_OF_OTHERS = 60
"""Seconds of the processor for what is not the program: its snapshots, the values that go to and fro."""


def limit_worker(pid: int | None, limits: CodeMode) -> None:
    """Ends the interpreter's process where this one, which watches over it, was killed: the check of a program's types
    has no limit of its own. It writes no file of its memory when it dies."""
    if sys.platform == "linux" and pid is not None:
        resource: Any = importlib.import_module("resource")
        most = math.ceil(2 * limits.seconds) + _SECONDS_OF_OTHERS
        with suppress(OSError):
            lower_limits(pid, {resource.RLIMIT_CPU: most, resource.RLIMIT_CORE: 0})


def most_round_trips(limits: CodeMode) -> int:
    """How often a program may turn to this process, for a name, a sleep or a call: a call needs three. They take time
    of this process, which `CodeMode.seconds` does not count."""
    return 10_000 + 10 * limits.calls


def size_of(value: object) -> int:
    """How large a value is as text, about; above 64 MB it is not looked at further. A list may hold the same list
    twice, and that one another one twice: a hundred of them have more values than can ever be written."""
    size, rest = 0, [value]
    while rest and size <= MOST_CHARACTERS:
        each: Any = rest.pop()
        size += _OF_ANY
        if isinstance(each, str | bytes):
            size += len(each)
        elif isinstance(each, dict):
            rest += cast("dict[object, object]", each)
            rest += cast("dict[object, object]", each).values()
        elif isinstance(each, list | tuple | set | frozenset):
            rest += cast("Collection[object]", each)
        elif isinstance(each, MontyClassProxy):  # of a class of the program's
            rest.append(each.attributes)
    return size
