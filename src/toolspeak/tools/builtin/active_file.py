"""`active_file`: the file that the user has open."""

from __future__ import annotations

from toolspeak.data.tools import Effects
from toolspeak.errors import ToolError
from toolspeak.tools import Tool, tool

NOTHING = Effects(idempotent=True, destructive=False)


def active_file_tool(path: str | None) -> Tool:
    """The tool `active_file`: names the file that the user has open. `path` is relative to the workspace."""

    @tool(name="active_file", effects=NOTHING)
    def active_file() -> str:
        """The path of the file that is currently open, relative to the workspace."""
        if path is None:
            raise ToolError("No file is active: ask which file is meant, or use `list`.")
        return path

    return active_file
