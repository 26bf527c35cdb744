"""What a model reads of where it works: the folder, the system, the date, and whether git keeps the folder."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from toolspeak.project.folders import project_folders
from toolspeak.tools.files.text_format import quote_path


def surroundings_text(workspace: str, today: str) -> str:
    """The surroundings of work in a folder, as a part of an agent's instructions.

    `today`: the date. The text stays the same while the conversation goes on, so that the model's server can use the
    beginning of the prompt again.
    """
    folder = os.path.realpath(workspace)
    in_repository = (project_folders(Path(folder))[-1] / ".git").exists()
    return "\n".join(
        (
            "Where you work:",
            f"- the folder: {quote_path(folder)}",
            f"- in a git repository: {'yes' if in_repository else 'no'}",
            f"- the system: {platform.system()} ({platform.machine()})",
            f"- the date when this conversation began, or was opened again: {today}",
        )
    )
