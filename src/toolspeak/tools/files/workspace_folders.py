"""A workspace with other folders beside it, whose files have absolute paths."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Literal

from toolspeak.data.tools import Effects
from toolspeak.data.values import evolve
from toolspeak.tools.files.paths import relative_path
from toolspeak.tools.files.workspace import Entry, Workspace


class Folders(Workspace):
    """Paths are relative to the workspace, or absolute in one of the other folders. Each folder confines its paths as a
    `Workspace` does. Where folders overlap, the workspace has a path, or else the first one."""

    def __init__(self, workspace: Workspace, others: Sequence[Workspace]) -> None:
        super().__init__(workspace.root)
        self.names = workspace.names
        self.others = tuple(others)
        self._workspace = workspace

    def at(self, path: str) -> tuple[Workspace, str]:
        """The folder that has a path, and the path relative to it."""
        inner = relative_path(path, self.names)
        if inner != path:
            return self._workspace, inner
        for other in self.others if path.startswith("/") else ():
            for name in other.names:
                if path == name or path.startswith(f"{name.rstrip('/')}/"):
                    return other, path[len(name) :].lstrip("/")
        return self._workspace, path

    def real(self, path: str) -> str:
        place, rest = self.at(path)
        return place.real(rest)

    def key(self, path: str) -> str:
        place, rest = self.at(path)
        return place.key(rest)

    def scope(self, path: str) -> str:
        place, rest = self.at(path)
        return place.scope(rest)

    def version(self, path: str) -> str:
        place, rest = self.at(path)
        return place.version(rest)

    @contextmanager
    def open(self, path: str) -> Generator[BinaryIO, None, None]:
        place, rest = self.at(path)
        with place.open(rest) as file:
            yield file

    def entries(self, path: str) -> list[Entry]:
        place, rest = self.at(path)
        return place.entries(rest)

    def is_folder(self, path: str) -> bool:
        place, rest = self.at(path)
        return place.is_folder(rest)

    @contextmanager
    def alone(self, path: str, *, create: bool = False) -> Generator[None, None, None]:
        place, rest = self.at(path)
        with place.alone(rest, create=create):
            yield

    def replace(self, path: str, data: bytes, before: bytes | Literal["any"] | None = "any") -> None:
        place, rest = self.at(path)
        place.replace(rest, data, before)

    def append(self, path: str, data: bytes) -> int:
        place, rest = self.at(path)
        return place.append(rest, data)


def anywhere(workspace: Workspace, effects: Effects) -> Effects:
    """The effects in any folder of a workspace of a call that has these in the workspace itself."""
    if not isinstance(workspace, Folders):
        return effects
    own, others = workspace.scope(""), frozenset(each.scope("") for each in workspace.others)
    reads, writes = (keys | others if own in keys else keys for keys in (effects.reads, effects.writes))
    return evolve(effects, reads=reads, writes=writes)


def walk_start(workspace: Workspace, path: str) -> str:
    """The path of a folder, as a walk through it names what is below: without links, or absolute in another folder. An
    absolute path elsewhere is refused where it is opened."""
    path = relative_path(path, workspace.names)
    return (path.rstrip("/") or path) if path.startswith("/") else "/".join(workspace.resolve(path))
