"""What an agent gets from the files of its project and its user: instructions, skills and sub-agents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from toolspeak.data.values import quick
from toolspeak.project.instruction_files import instructions_text, read_instruction_files
from toolspeak.project.skills import find_skills, skill_tool, skills_text
from toolspeak.project.sub_agents import SubAgent, find_sub_agents
from toolspeak.tools import Tool
from toolspeak.tools.files.text_format import quote_path


@quick()
class ProjectFiles:
    """A part of an agent's instructions, the tools that go with it, and what is wrong with some of the files.

    - `sub_agents`: the agents that the tool `task` runs.
    - `folders_to_read`: folders outside of the workspace whose files the model may read.
    """

    instructions: str
    tools: tuple[Tool, ...]
    sub_agents: tuple[SubAgent, ...]
    folders_to_read: tuple[Path, ...]
    problems: tuple[str, ...]


def read_project_files(workspace: str, folders: Sequence[str] = ()) -> ProjectFiles:
    """Reads AGENTS.md, the skills and the sub-agents of a workspace and its user, and AGENTS.md of the other `folders`
    that the tools use. A file that cannot be used is left out, and named in `problems`."""
    folder = Path(os.path.realpath(workspace))
    files, unreadable = read_instruction_files(folder)
    for other in folders:
        others, problems = read_instruction_files(Path(os.path.realpath(other)))
        known_paths = {file.path for file in files}
        files = [*(file for file in others if file.path not in known_paths), *files]  # the workspace's are the nearest
        unreadable += [problem for problem in problems if problem not in unreadable]
    instructions, cuts = instructions_text(files, folder)
    skill_list = find_skills(folder)
    skills = skill_list.by_name
    agent_list = find_sub_agents(folder)
    outside = [skill.folder for skill in skills.values() if folder not in skill.folder.parents]
    return ProjectFiles(
        "\n\n".join(filter(None, (_folders_text(folders), instructions, skills_text(skills)))),
        (skill_tool(skills),) if skills else (),
        tuple(agent_list.by_name.values()),
        tuple(outside),
        (*unreadable, *cuts, *skill_list.problems, *agent_list.problems),
    )


def _folders_text(folders: Sequence[str]) -> str:
    """What the model reads about the other folders; "" without any."""
    if not folders:
        return ""
    names = "\n".join(f"- {quote_path(folder)}" for folder in folders)
    return f"Besides the workspace you may work in these folders, by absolute paths:\n{names}"
