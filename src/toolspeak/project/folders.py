"""Where a project and its user keep files for agents, and the bounded reading of such files."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, ToolError
from toolspeak.project.user_files.user_folders import home_folder, user_folder
from toolspeak.tools.builtin import Workspace

Origin = Literal["project", "user"]
"""Who brings a file: the project in which the agent works, or its user."""

_HIDDEN_NAMES = (".toolspeak", ".agents", ".claude")
"""The folders in which projects keep files for agents. The first of two files with one name counts."""


@quick()
class FileSource:
    """A folder that may hold files for agents.

    - `top`: the folder that links in it must not leave. None for the user's own folders: their links may lead anywhere.
    """

    path: Path
    origin: Origin
    top: Path | None


def project_folders(workspace: Path) -> list[Path]:
    """The workspace and the folders above it, up to the root of its git repository, else up to the user's home; the
    nearest first. Outside of both it is the workspace alone: anybody may own the folders above."""
    real = Path(os.path.realpath(workspace))
    chain = [real, *real.parents]
    for number, folder in enumerate(chain):
        if (folder / ".git").exists():
            return chain[: number + 1]
    home = home_folder()
    return chain[: chain.index(home) + 1] if home in chain and home != Path(home.anchor) else chain[:1]


def sources_of(kind: Literal["skills", "agents"], workspace: Path) -> Iterator[FileSource]:
    """The folders that may hold skills or sub-agents, the nearest first, the user's last. Each comes once."""
    folders = project_folders(workspace)
    home, top = home_folder(), folders[-1]
    real_paths: set[str] = set()
    candidates = [
        *(
            FileSource(folder / name / kind, "project", top)
            for folder in folders
            if folder != home
            for name in _HIDDEN_NAMES
        ),
        FileSource(user_folder() / kind, "user", None),
        *(FileSource(home / name / kind, "user", None) for name in _HIDDEN_NAMES),
    ]
    for source in candidates:
        real = os.path.realpath(source.path)
        if real not in real_paths and source.path.is_dir():
            real_paths.add(real)
            yield source


def read_text(path: Path, top: Path | None, most: int) -> tuple[str, int]:
    """The first `most` bytes of a text file, and the size of the file in bytes.

    `top`: the folder that the file's links must not leave; None if they may lead anywhere. Raises ConfigurationError,
    with the place, for what is no regular file of UTF-8 text there.
    """
    try:
        if top is None:
            path = Path(os.path.realpath(path))
            top = path.parent
        with Workspace(top).open(path.relative_to(top).as_posix()) as file:
            data = file.read(most + 1)
            size = max(os.fstat(file.fileno()).st_size, len(data))
    except ToolError as error:
        raise ConfigurationError(f"{path}: {error}") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data[:most], final=len(data) <= most)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    return text, size
