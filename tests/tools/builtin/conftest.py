"""A workspace in a temporary folder, beside a canary that no tool may touch, and calls as the executor makes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolspeak.data.messages import ToolCall
from toolspeak.tools import RunContext, Tool, Toolset
from toolspeak.tools.builtin import Workspace, workspace_tools
from toolspeak.tools.context import injected_values

CANARY = "the canary sings outside"


def never() -> bool:
    return False


class Caller:
    """Calls tools of one run: arguments are read as a model's, the memory is shared."""

    def __init__(self, tools: Toolset) -> None:
        self.tools = tools
        self.memory: dict[str, Any] = {}
        self.is_cancelled: Callable[[], bool] = never

    def tool(self, name: str) -> Tool:
        match = self.tools.get(name)
        assert match is not None
        return match

    def arguments(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        read = self.tool(name).read_arguments(arguments)
        assert not isinstance(read, tuple), read
        return dict(read)

    def __call__(self, name: str, /, **arguments: Any) -> Any:
        """The value, or for an async tool the coroutine."""
        tool, read = self.tool(name), self.arguments(name, arguments)
        if tool.injected_kinds:
            call = ToolCall("c1", name, arguments)
            context = RunContext(None, call, memory=self.memory, is_cancelled=self.is_cancelled)
            read |= injected_values(tool.injected_kinds, context)
        return tool(**read)

    def preview(self, name: str, /, **arguments: Any) -> str:
        """The preview for somebody who does not know what the run knows."""
        preview = self.tool(name).preview
        assert preview is not None
        return preview(self.arguments(name, arguments))

    def preview_in_run(self, name: str, /, **arguments: Any) -> str:
        preview = self.tool(name).preview
        assert preview is not None
        call = ToolCall("c1", name, arguments)
        return preview(self.arguments(name, arguments), RunContext(None, call, memory=self.memory))

    def effects(self, name: str, /, **arguments: Any):
        return self.tool(name).effects_of(self.arguments(name, arguments))


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "outside"
    folder.mkdir()
    canary = folder / "canary.txt"
    canary.write_text(CANARY)
    yield folder
    assert canary.read_text() == CANARY
    assert os.listdir(folder) == ["canary.txt"]


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture(params=[True, False], ids=["descriptors", "portable"])
def workspace(request: pytest.FixtureRequest, root: Path) -> Workspace:
    return Workspace(root, descriptors=request.param)


@pytest.fixture
def call(root: Path) -> Caller:
    return Caller(workspace_tools(root))
