"""Where toolspeak keeps what models remember about users (`--memory`)."""

from __future__ import annotations

from toolspeak.project.user_files.user_folders import data_folder
from toolspeak.tools.builtin.fact_file import FactFiles


def memory_files() -> FactFiles:
    """The facts about this machine's user, and about principals."""
    return FactFiles(data_folder() / "memory")
