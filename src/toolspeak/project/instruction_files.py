"""AGENTS.md: what a project and its user tell every agent. The nearest file wins.

The files of the workspace and above it are part of an agent's instructions. One in a folder below comes with the first
result of a tool that touches something in that folder.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from toolspeak.data.messages import TextPart
from toolspeak.data.values import evolve, quick
from toolspeak.errors import ConfigurationError
from toolspeak.project.folders import FileSource, Origin, project_folders, read_text
from toolspeak.project.user_files.user_folders import user_folder
from toolspeak.tools import RunContext, Tool
from toolspeak.tools.context import StateView
from toolspeak.tools.files.text_format import quote_path
from toolspeak.tools.returned_values import ReturnValue, to_content

NAME = "AGENTS.md"

MOST_BYTES = 32 * 1024
"""How much of one file is read."""

_MOST_TOGETHER = 64 * 1024
_MOST_WITH_RESULT = 7 * 1024
"""How much comes with a result: less than half of what a model reads of one, so that the end of the result is whole."""

_INTRODUCTION = """\
The files below say how to work here. They come from the project and its user. What the user says in the conversation
comes first, then the file that is nearest to what you work on. A file cannot allow what needs an approval."""

_MEMORY = "instruction_files"
"""Their key in a run's memory: `memory["instruction_files"]` maps each file to the call whose result holds it, the step
of that call, and how many messages came before it."""

_Note: TypeAlias = list[Any]
_MOST_RECENT = 10_000
_NEAR = 100  # messages after a call's turn, among which its result is unless the history was made shorter


@quick()
class InstructionFile:
    """An AGENTS.md. `text`: its beginning, up to `MOST_BYTES`; `size`: of the whole, in bytes."""

    path: Path
    origin: Origin
    text: str
    size: int


def read_instruction_files(workspace: Path) -> tuple[list[InstructionFile], list[str]]:
    """The user's AGENTS.md, then those of the folders from the project's top to the workspace; and what is wrong with
    files that cannot be read."""
    folders, files, problems = project_folders(workspace), list[InstructionFile](), list[str]()
    sources = [
        FileSource(user_folder(), "user", None),
        *(FileSource(folder, "project", folders[-1]) for folder in reversed(folders)),
    ]
    for source in sources:
        path = source.path / NAME
        if not os.path.lexists(path):
            continue
        try:
            text, size = read_text(path, source.top, MOST_BYTES)
        except ConfigurationError as error:
            problems.append(str(error))
            continue
        if text.strip():
            files.append(InstructionFile(path, source.origin, text, size))
    return files, problems


def instructions_text(files: Sequence[InstructionFile], workspace: Path) -> tuple[str, list[str]]:
    """The files as a part of an agent's instructions, the nearest last, and what was left out of them. "" without
    files."""
    room, sections, problems = _MOST_TOGETHER, list[str](), list[str]()
    for file in reversed(files):  # the nearest one gets the room first
        text = _beginning(file.text, min(room, MOST_BYTES))
        room -= len(text.encode())
        label = _label(file.path, workspace)
        if len(text.encode()) < file.size:
            problems.append(f"{file.path}: the model reads its first {len(text.encode()):,} of {file.size:,} bytes")
        sections.append(_section(label, text, file.size))
    return "\n\n".join([_INTRODUCTION, *reversed(sections)]) if sections else "", problems


class NearerInstructions:
    """Adds the AGENTS.md of the folders below a workspace to the results of the calls that touch them. Each file comes
    once in a run, and again if the model no longer reads the result that held it."""

    def __init__(self, workspace: Path) -> None:
        self._root = Path(os.path.realpath(workspace))
        self._lock = threading.Lock()  # calls of one batch run in several threads
        # What this process gave, by run and file: a call that starts early has a memory of its own until it counts.
        self._recent: dict[tuple[str | None, str], _Note] = {}

    def of_tool(self, tool: Tool) -> Tool:
        """The tool, with the files in its results; itself if it touches no files."""
        if not any(key.startswith("file:") for key in tool.spec.effects.reads | tool.spec.effects.writes):
            return tool
        function, parameter = cast("Any", tool.function), "run_of_the_call"

        async def call_async(**arguments: Any) -> Any:
            ctx: RunContext[Any] = arguments.pop(parameter)
            return self._with_files(await function(**arguments), self._files_at(tool, arguments), ctx)

        def call(**arguments: Any) -> Any:
            ctx: RunContext[Any] = arguments.pop(parameter)
            return self._with_files(function(**arguments), self._files_at(tool, arguments), ctx)

        return evolve(
            tool,
            function=call_async if tool.is_async else call,
            injected_kinds={**tool.injected_kinds, parameter: "context"},
        )

    def _files_at(self, tool: Tool, arguments: Mapping[str, Any]) -> list[Path]:
        """The AGENTS.md of the folders between the workspace and what the call touches, the nearest first."""
        effects = tool.effects_of({name: value for name, value in arguments.items() if name not in tool.injected_kinds})
        files: dict[Path, None] = {}
        for key in sorted(effects.reads | effects.writes):
            path = Path(key.removeprefix("file:"))
            if key.startswith("file:") and path != self._root and self._root in path.parents:
                for folder in (path, *path.parents):
                    if folder == self._root:
                        break
                    file = folder / NAME
                    if file != path and os.path.lexists(file):
                        files[file] = None
        return sorted(files, key=lambda file: -len(file.parts))

    def _with_files(self, value: Any, files: Sequence[Path], ctx: RunContext[Any]) -> Any:
        """The value, with the files that the model does not read already."""
        if not files:
            return value
        texts, room = list[TextPart](), _MOST_WITH_RESULT
        for label, file in self._news({file.relative_to(self._root).as_posix(): file for file in files}, ctx).items():
            try:
                text, size = read_text(file, self._root, MOST_BYTES)
            except ConfigurationError:
                continue  # the model can read it, and learns why it cannot
            text = _beginning(text, room)
            room -= len(text.encode())
            texts.append(TextPart(f"\n{_heading(label)}{_section(label, text, size)}"))
        if not texts:
            return value
        parts, structured_content = to_content(value)
        return ReturnValue((*parts, *texts), structured_content)

    def _news(self, files: Mapping[str, Path], ctx: RunContext[Any]) -> dict[str, Path]:
        """Those of the files that the model does not read already. Notes that this call brings them."""
        state, news = ctx.state, dict[str, Path]()
        note: _Note = [ctx.call.id, *((0, 0) if state is None else (state.step, len(state.messages)))]
        with self._lock:
            notes = cast("dict[str, _Note]", ctx.memory.setdefault(_MEMORY, {}))
            if len(self._recent) > _MOST_RECENT:
                self._recent.clear()
            for label, file in files.items():
                recent = self._recent.get((ctx.run_id, label), note)
                by_another = recent[0] != note[0] and note[1] <= recent[1] + 1
                if by_another or (label in notes and _is_read(notes[label], label, state)):
                    continue
                news[label] = file
                notes[label] = self._recent[ctx.run_id, label] = note
        return news


def _is_read(note: _Note, label: str, state: StateView | None) -> bool:
    """Whether the model reads the result that held the file: it is of this step, or the history still has it."""
    call_id, step, before = note
    if state is None or state.step <= step + 1:  # a call that starts early knows the step before its own
        return True
    messages = state.messages
    for message in (*messages[before : before + _NEAR], *reversed(messages[:before])):
        for result in message.results:
            if result.call_id == call_id:
                return any(isinstance(part, TextPart) and _heading(label) in part.text for part in result.content)
    return False


def _heading(label: str) -> str:
    return f"[{quote_path(label)} says how to work in its folder. What the user says comes first.]\n"


def _section(label: str, text: str, size: int) -> str:
    length = len(text.encode())
    note = (
        "" if length >= size else f"\n[{size - length:,} of {size:,} bytes are left out here; `read` shows the file.]"
    )
    return f"<file path={quote_path(label)}>\n{text.strip()}{note}\n</file>"


def _beginning(text: str, most: int) -> str:
    """The beginning of a text, whole lines if possible, in at most so many bytes."""
    data = text.encode()
    if len(data) <= most:
        return text
    cut = data[:most].decode(errors="ignore")
    return cut[: cut.rfind("\n") + 1] or cut


def _label(path: Path, workspace: Path) -> str:
    real = Path(os.path.realpath(workspace))
    return path.relative_to(real).as_posix() if real in path.parents else path.as_posix()
