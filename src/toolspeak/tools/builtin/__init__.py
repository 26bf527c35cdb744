"""The built-in tools: tools for the files of one folder, a shell that starts there, a search of earlier sessions.

To add a tool, add a file with its factory and a line in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from toolspeak.errors import ConfigurationError, ToolError
from toolspeak.sandbox.command_sandbox import CommandSandbox
from toolspeak.tools import Tool, Toolset
from toolspeak.tools.builtin.active_file import active_file_tool
from toolspeak.tools.builtin.append import append_tool
from toolspeak.tools.builtin.edit import edit_tool
from toolspeak.tools.builtin.fact_file import FactFiles
from toolspeak.tools.builtin.find import find_tool
from toolspeak.tools.builtin.line_edit import line_edit_tool
from toolspeak.tools.builtin.list import list_tool
from toolspeak.tools.builtin.memory import memory_tool
from toolspeak.tools.builtin.read import read_tool
from toolspeak.tools.builtin.read_result import read_result_tool
from toolspeak.tools.builtin.recall import recall_tool
from toolspeak.tools.builtin.replace import replace_tool
from toolspeak.tools.builtin.shell import RunCommand, shell_tool
from toolspeak.tools.builtin.todo import todo_tool
from toolspeak.tools.builtin.write import write_tool
from toolspeak.tools.files.workspace import Workspace
from toolspeak.tools.files.workspace_folders import Folders

WORKSPACE_TOOLS: Mapping[str, Callable[[Workspace], Tool]] = {
    "list": list_tool,
    "read": read_tool,
    "find": find_tool,
    "write": write_tool,
    "append": append_tool,
    "edit": edit_tool,
    "line_edit": line_edit_tool,
    "replace": replace_tool,
    "shell": shell_tool,
}
"""The tools that work on a workspace, in the order of the prompt."""


def workspace_tools(
    root: str | Path,
    *,
    active_file: str | None = None,
    env: Collection[str] = (),
    open_files: Workspace | None = None,
    run_command: RunCommand | None = None,
    also_read: Iterable[str | Path] = (),
    folders: Sequence[str | Path] = (),
    sandbox: CommandSandbox | None = None,
) -> Toolset:
    """The tools in the table, `active_file` and `read_result`, for the folder `root`.

    `active_file`: the path, relative to the workspace, of the file that the user has open.
    `env`, `run_command`: the names of environment variables that commands get, and what runs them (see `shell_tool`).
    `open_files`: the same folder with the files as an editor has them. The tools for one file use it; those that look
    at many files use the disk.
    `sandbox`: what commands may touch (see `shell_tool`).
    `folders`: other folders that the tools use as they use the workspace, by absolute paths. `open_files` has them too.
    `also_read`: folders outside the workspace whose files `read` opens too, by their absolute paths.

    Raises ConfigurationError if `root`, one of `folders` or of `also_read` is not a folder, and for an active file
    outside `root`.
    """
    workspace = Workspace(root)
    others = [Workspace(folder) for folder in folders]
    if others:
        workspace = Folders(workspace, others)
    if active_file is not None:
        try:
            workspace.resolve(active_file)
        except ToolError as error:
            raise ConfigurationError(
                f"the active file must be a file of the workspace that the tools can open: {error}"
            ) from None
    makers = {
        **WORKSPACE_TOOLS,
        "read": partial(read_tool, others=[Workspace(folder) for folder in also_read]),
        "shell": partial(shell_tool, env=env, run_command=run_command, sandbox=sandbox),
    }
    one_file = workspace if open_files is None else open_files
    tools = [make(workspace if name in ("list", "find") else one_file) for name, make in makers.items()]
    return Toolset([*tools, active_file_tool(active_file), read_result_tool()])


__all__ = [
    "WORKSPACE_TOOLS",
    "FactFiles",
    "Workspace",
    "active_file_tool",
    "append_tool",
    "edit_tool",
    "find_tool",
    "line_edit_tool",
    "list_tool",
    "memory_tool",
    "read_result_tool",
    "read_tool",
    "recall_tool",
    "replace_tool",
    "shell_tool",
    "todo_tool",
    "workspace_tools",
    "write_tool",
]
