"""Skills: folders with instructions for one kind of task (the format of agentskills.io).

A model reads them at three levels: the name and the description of each are part of its instructions, the tool `skill`
gives the rest of SKILL.md, and the tool `read` opens the files beside it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from toolspeak.data.tools import Effects
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, ToolError, suggest
from toolspeak.project.definitions import Definitions, find_definitions, literal_text, text_field
from toolspeak.project.folders import FileSource, Origin
from toolspeak.project.frontmatter import read_markdown
from toolspeak.tools import Tool, tool
from toolspeak.tools.files.text_format import quote_path, visible

FILE = "SKILL.md"

_MOST_LISTED = 16 * 1024  # bytes of names and descriptions in the instructions
_MOST_FILES = 100
_DEEPEST = 4
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")

_INTRODUCTION = """\
Skills hold instructions for certain tasks. When a task fits one, call `skill` with its name before you begin."""


@quick()
class Skill:
    """A skill, without its instructions.

    - `folder`: the folder with its files.
    - `top`: the folder that its links must not leave; None if they may lead anywhere.
    - `allowed_tools`: the tools that it suggests. Not a permission.
    """

    name: str
    description: str
    folder: Path
    origin: Origin
    top: Path | None
    allowed_tools: str = ""
    compatibility: str = ""


def find_skills(workspace: Path) -> Definitions[Skill]:
    """The skills of the project and its user. Of two with one name the nearest counts. Reads no instructions."""
    return find_definitions(
        "skills", workspace, lambda folder: folder.is_dir() and os.path.lexists(folder / FILE), read_skill
    )


def read_skill(folder: Path, source: FileSource) -> Skill:
    """Reads what SKILL.md says about the skill. Raises ConfigurationError, with the place and the remedy, for a file
    that does not follow the format."""
    path = folder / FILE
    fields = read_markdown(path, source.top).fields
    name = text_field(fields, "name", path, 64)
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"{path}: name: {literal_text(name)} must consist of lowercase letters, digits and single hyphens between"
            " them"
        )
    if name != folder.name:
        raise ConfigurationError(
            f"{path}: name: {name!r} is not the name of its folder, {literal_text(folder.name)}; rename one of them"
        )
    description = text_field(fields, "description", path, 1024)
    compatibility = text_field(fields, "compatibility", path, 500, optional=True)
    if not isinstance(fields.get("metadata") or {}, Mapping):
        raise ConfigurationError(f"{path}: metadata must be lines `name: value`")
    allowed_tools = fields.get("allowed-tools")
    tools = allowed_tools if isinstance(allowed_tools, str) else json.dumps(allowed_tools) if allowed_tools else ""
    return Skill(name, description, folder, source.origin, source.top, tools, compatibility)


def skills_text(skills: Mapping[str, Skill]) -> str:
    """The skills as a part of an agent's instructions: a line for each. "" without skills."""
    if not skills:
        return ""
    lines, room = [_INTRODUCTION], _MOST_LISTED
    for skill in skills.values():
        line = f"- {skill.name}: {visible(' '.join(skill.description.split()))}"
        room -= len(line.encode())
        lines.append(line if room >= 0 else f"- {skill.name}")
    return "\n".join(lines)


def skill_tool(skills: Mapping[str, Skill]) -> Tool:
    """The tool `skill`, which gives the instructions of a skill."""
    names = tuple(skills)
    reads = Effects(reads={f"file:{skill.folder.as_posix()}" for skill in skills.values()}, destructive=False)

    def effects(name: str) -> Effects:
        skill = skills.get(name)
        return reads if skill is None else Effects(reads={f"file:{skill.folder.as_posix()}"}, destructive=False)

    @tool(name="skill", aliases={"skill": "name"}, effects=effects, effects_bound=reads)
    def skill(name: str) -> str:
        """Get the instructions of a skill. The files that they mention are beside them: open them with `read`.

        Args:
            name: The name of the skill, from the list in your instructions.
        """
        named_skill = skills.get(name)
        if named_skill is None:
            raise ToolError(f"there is no skill {suggest(name, names)}")
        try:
            body = read_markdown(named_skill.folder / FILE, named_skill.top).body
        except ConfigurationError as error:
            raise ToolError(f"The skill {name!r} cannot be read: {error}") from None
        return _skill_text(named_skill, body)

    return skill


def _skill_text(skill: Skill, body: str) -> str:
    """What the model reads of a skill."""
    folder = quote_path(skill.folder.as_posix())
    parts = [f"The skill {skill.name}. Its folder is {folder}; paths in it are relative to that folder."]
    if skill.compatibility:
        parts.append(f"It needs: {visible(skill.compatibility)}")
    if skill.allowed_tools:
        parts.append(f"It suggests these tools: {visible(skill.allowed_tools)}")
    files = list(_files_of(skill.folder))
    if files:
        parts.append(
            "Its files: " + ", ".join(map(quote_path, files[:_MOST_FILES])) + (" …" if len(files) > _MOST_FILES else "")
        )
    return "\n".join([*parts, "", body])


def _files_of(folder: Path) -> Iterator[str]:
    """The files below a folder, relative to it, at most one more than are listed. Follows no links."""
    count = 0
    for parent, folders, files in os.walk(folder):
        place = Path(parent)
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        if len(place.relative_to(folder).parts) >= _DEEPEST:
            folders.clear()
        for name in sorted(files):
            if name == FILE and place == folder:
                continue
            yield (place / name).relative_to(folder).as_posix()
            count += 1
            if count > _MOST_FILES:
                return
