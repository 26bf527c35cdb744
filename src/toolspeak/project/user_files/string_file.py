"""A small file of strings by name, which several processes change."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from toolspeak.tools.files.folder import Folder

_LOCK_SECONDS = 10.0


def read_strings(file: Path) -> dict[str, str]:
    """The strings of a file by name, in their order; none of a file that cannot be read."""
    try:
        strings = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(strings, dict):
        return {}
    return {name: value for name, value in cast("dict[str, Any]", strings).items() if isinstance(value, str)}


def change_strings(file: Path, change: Callable[[dict[str, str]], object]) -> bool:
    """Changes the strings of a file, which is made if it is missing. Returns whether that changed anything. Raises
    OSError if they cannot be stored."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with Folder.top(os.path.realpath(file.parent)) as folder, folder.alone(_LOCK_SECONDS):
        strings = read_strings(file)
        before = list(strings.items())
        change(strings)
        if list(strings.items()) == before:
            return False
        # Other processes read the old strings or the new ones, never a part of them.
        beside = file.with_name(f"{file.name}.{os.getpid()}.new")
        beside.write_text(json.dumps(strings, indent=1), "utf-8")
        beside.chmod(0o600)
        beside.replace(file)
    return True
