"""Where the user keeps their configuration and their data, also where the user has no home."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import platformdirs

NO_FOLDER = Path(os.devnull) / "toolspeak"
"""A path at which nothing can be. It stands for a folder of the user's where they have no home."""


def user_folder() -> Path:
    """The folder of the user's own configuration, such as ~/.config/toolspeak; `NO_FOLDER` without a home."""
    return _folder_of(platformdirs.user_config_path)


def data_folder() -> Path:
    """The folder of what toolspeak stores for the user, such as ~/.local/share/toolspeak; `NO_FOLDER` without a
    home."""
    return _folder_of(platformdirs.user_data_path)


def _folder_of(kind: Callable[..., Path]) -> Path:
    try:
        return kind("toolspeak", appauthor=False)
    except RuntimeError:  # neither HOME nor the list of users says where the home is
        return NO_FOLDER


def home_folder() -> Path:
    """The user's home; `NO_FOLDER` if there is none."""
    home = os.path.expanduser("~")
    return Path(os.path.realpath(home)) if os.path.isabs(home) else NO_FOLDER
