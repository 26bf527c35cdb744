"""Holds the conversation of `toolspeak chat`: its configuration, its journal and its session."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace

from toolspeak.chat.chat import Chat
from toolspeak.chat.chat_commands import ChatCommands
from toolspeak.chat.display.theme import theme_class
from toolspeak.chat.display.theme_looks import styles_with
from toolspeak.chat.terminal.front import ChatTerminal
from toolspeak.cli.configuration import content_lines
from toolspeak.cli.options.journal_option import continuing, journal_of
from toolspeak.errors import ToolspeakError
from toolspeak.project.configuration.config import Config, read_config
from toolspeak.project.configuration.config_trust import ProjectConfig
from toolspeak.project.configuration.configured_setup import SetupChoices, configured_setup, with_model_of
from toolspeak.project.recorded_setup import setup_of
from toolspeak.project.run_lookup import SHORT, WAITING, find_session, last_session_of, sessions_of
from toolspeak.project.run_setup import with_absolute_path
from toolspeak.project.user_files.chosen_models import chosen_model
from toolspeak.ui.format import printable
from toolspeak.ui.question import Question
from toolspeak.ui.terminal_approver import understand

_ROWS = 8
"""The screen rows besides the content of a configuration that the person is asked about."""


async def hold_conversation(
    front: ChatTerminal,
    lines: asyncio.Queue[str],
    workspace: str,
    choices: SetupChoices,
    *,
    journal: str | None,
    session: str | None,
    continue_last: bool,
    thoughts: bool,
) -> None:
    """Holds a conversation at a front until it is cancelled. `lines` are what the person sends, `choices` what they
    chose on the command line, the rest as the options of the command."""

    def tell(text: str, style: str) -> None:
        front.print([[(f"class:{style}", printable(text))]])

    run_journal = journal_of(journal)
    workspace = await asyncio.to_thread(os.path.realpath, workspace)  # also if the folder is made anew meanwhile
    try:
        config = await _configuration(front, workspace, tell)
        try:
            front.use_styles(styles_with(config.theme))
        except ToolspeakError as error:
            tell(f"! {error}", "warning")
        setup, info = configured_setup(config, workspace, **choices), None
        try:
            if session or continue_last:
                info = await (
                    find_session(run_journal, session) if session else last_session_of(run_journal, workspace)
                )
                setup = with_model_of(setup, await setup_of(run_journal, info), choices)
        except ToolspeakError as error:
            tell(f"✗ {error}", "error")
        if not setup.model and (model := chosen_model(workspace)):
            setup = replace(setup, model=model)
            tell(f"· the model is {model}, as you chose it with /model", "note")
        setup = replace(setup, model=with_absolute_path(setup.model))
        if continue_last and info is not None:
            for use in await sessions_of(run_journal, workspace):
                if use.session.session_id != info.session_id and use.status in WAITING:
                    condition = use.status.replace("_", " ")
                    tell(f"! {use.session.session_id[:SHORT]} is {condition}, too: /sessions lists it", "warning")
        chat = Chat(front, setup, run_journal, info, limits=config.limits, thoughts=thoughts)
        commands = ChatCommands(chat, config)

        async def read() -> None:
            while True:
                commands.take(await lines.get())

        reader = asyncio.create_task(read())
        try:
            await chat.work()
        finally:
            reader.cancel()
            await asyncio.wait([reader])
            if chat.state is not None:
                tell(f"· {continuing(chat.session_id)} continues this conversation", "note")
    finally:
        await run_journal.aclose()


async def _configuration(front: ChatTerminal, workspace: str, tell: Callable[[str, str], None]) -> Config:
    """The configuration for work in a folder. Asks at the front about a project's that is not trusted."""
    loop = asyncio.get_running_loop()

    def ask(project: ProjectConfig) -> bool:
        return asyncio.run_coroutine_threadsafe(_may_count(front, project), loop).result()

    try:
        config = await asyncio.to_thread(read_config, workspace, ask=ask)
    except ToolspeakError as error:
        tell(f"✗ {error}", "error")
        tell("· the conversation goes on without the configuration", "warning")
        return Config()
    for warning in config.warnings:
        tell(f"! {warning}", "warning")
    return config


async def _may_count(front: ChatTerminal, project: ProjectConfig) -> bool:
    """Shows a project's configuration, a screen at a time, and asks whether it counts."""
    question = Question(content_lines(project))
    while True:
        screen = list(question.next_lines(front.columns, max(6, front.rows - _ROWS)))
        front.print([(theme_class(style), printable(text))] for text, style in screen)
        prompt = f"{question.characters_left:,} more characters. Enter: show them, n: ignore it › "
        line = await front.ask(
            prompt if question.characters_left else "Trust it, until its content changes? (y)es, (n)o › "
        )
        answer = understand(line or "n")
        if not question.characters_left:
            return answer is not None and answer.yes
        if answer is not None and not answer.yes:
            return False
