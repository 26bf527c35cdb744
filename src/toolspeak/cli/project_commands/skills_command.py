"""`toolspeak skills`: lists the skills."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from toolspeak.cli.exit_codes import NO_ANSWER, SUCCESS
from toolspeak.cli.options.run_options import workspace_option
from toolspeak.project.skills import find_skills
from toolspeak.ui import printable
from toolspeak.ui.format import one_line


@click.command("skills")
@workspace_option
def skills_command(workspace: str) -> None:
    """List the skills that an agent in this folder has, where they come from, and what is wrong with others.

    The exit code is 1 if a skill cannot be used.
    """
    skill_list = find_skills(Path(workspace))
    table = Table("name", "from", "folder", "what it is for", box=None)
    for skill in skill_list.by_name.values():
        table.add_row(skill.name, skill.origin, one_line(str(skill.folder)), one_line(skill.description))
    if skill_list.by_name:
        Console(markup=False, highlight=False).print(table)
    for problem in (*skill_list.problems, *skill_list.name_conflicts):
        click.echo(f"toolspeak: {printable(problem)}", err=True)
    if not skill_list.by_name and not skill_list.problems:
        click.echo("There are no skills: put them into .agents/skills/NAME/SKILL.md.")
    sys.exit(NO_ANSWER if skill_list.problems else SUCCESS)
