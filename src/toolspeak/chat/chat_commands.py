"""What the `/` commands do."""

from __future__ import annotations

import difflib
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from toolspeak.agent.storage.exports import export_session
from toolspeak.agent.storage.runs import load_state
from toolspeak.agent.storage.sessions import session_messages
from toolspeak.chat.change_commands import show_changes, undo
from toolspeak.chat.chat import Chat
from toolspeak.chat.display.styled_text import indent, wrap
from toolspeak.chat.markdown_export import markdown_of
from toolspeak.chat.own_command import run_own_command
from toolspeak.chat.prompt_commands import MARK, list_prompts, use_prompt
from toolspeak.chat.terminal.command_list import COMMANDS, SYNONYMS, help_lines
from toolspeak.dialects.registry import FAMILIES
from toolspeak.errors import ConfigurationError, suggest
from toolspeak.journal import SessionInfo
from toolspeak.project.configuration.config import Config, resolved_model
from toolspeak.project.recorded_setup import folder_of, setup_of
from toolspeak.project.run_lookup import SHORT, WAITING, sessions_of
from toolspeak.project.run_setup import with_absolute_path
from toolspeak.project.user_files.chosen_models import remember_model
from toolspeak.tools import Tool
from toolspeak.ui.format import count, money, one_line, shorten

_APPROVE = ("ask", "all", "all+repaired", "none")
_MOST_MODELS = 30

CommandHandler = Callable[[str], Awaitable[None]]


class ChatCommands:
    """The commands of a conversation. `take` gets each line that the person sends. `config` has the names of models."""

    def __init__(self, chat: Chat, config: Config) -> None:
        self._config = config
        self._chat = chat
        self._front = chat.front
        self._note = chat.transcript.note
        self._sessions: Sequence[SessionInfo] = ()  # as `/sessions` listed them last
        self._server_models: Sequence[str] = ()  # the models that the server lists
        chat.front.arguments_of = self._arguments_of
        # While the model works these take effect at once, and the others after its turn.
        self._now: dict[str, Callable[[str], None]] = {
            "help": lambda _: self._help(),
            "thoughts": lambda _: chat.transcript.show_thoughts(),
            "quit": lambda _: self._front.leave(),
        }
        self._between: dict[str, CommandHandler] = {
            "model": self._model,
            "dialect": self._dialect,
            "approve": self._approve,
            "tools": self._tools,
            "cost": self._cost,
            "sessions": self._list_sessions,
            "compact": self._compact,
            "export": self._export,
            "new": self._new,
            "prompts": lambda _: list_prompts(chat),
            "diff": lambda _: show_changes(chat),
            "undo": lambda call: undo(chat, call),
        }

    def take(self, text: str) -> None:
        """Takes a message, a command, or with `!` a command line of the shell.

        A path such as `/etc/hosts` at the start of a message is no command.
        """
        if text.startswith("!"):
            self._chat.do(lambda: run_own_command(self._chat, text[1:].strip()), one_line(text.strip()))
            return
        name, _, argument = text.strip().partition(" ")
        name = name.removeprefix("/")
        if not text.startswith("/") or "/" in name or "\n" in name:
            self._chat.say(text)
            return
        name = SYNONYMS.get(name, name)
        if name in self._now:
            self._now[name](argument.strip())
        elif name in self._between or MARK in name:
            handler = self._between.get(name) or partial(use_prompt, self._chat, name)
            if name == "approve" and argument.strip() == "ask":
                self._chat.approver.ask_again()  # at once: the turn may go on for long
            elif (
                name == "approve" and argument.strip() == "all" and self._chat.is_busy and self._chat.approves == "ask"
            ):
                self._chat.approver.approve_all()  # the turn that is under way is the one that asks
                return
            self._chat.do(lambda: handler(argument.strip()), one_line(text.strip()))
        else:
            known_names = [f"/{each}" for each in COMMANDS]
            self._note(f"✗ there is no command {suggest(f'/{name}', known_names)}", "error")

    def _arguments_of(self, name: str) -> Iterable[str]:
        match SYNONYMS.get(name, name):
            case "approve":
                return _APPROVE
            case "model":
                return [
                    *self._config.aliases,
                    *(f"{each}:" for each in self._config.providers),
                    *self._served_strings(),
                ]
            case "dialect":
                return ("auto", "native", "react", *(each for names in FAMILIES.values() for each in names))
            case "sessions":
                return [session.session_id[:8] for session in self._sessions]
            case _:
                return ()

    def _served_strings(self) -> Iterable[str]:
        """The model strings of what the server lists, as `/model` has asked it last."""
        prefix, colon, _ = self._chat.setup.model.partition(":")
        return [f"{prefix}:{name}" if colon else name for name in self._server_models]

    def _help(self) -> None:
        columns = self._front.columns
        self._front.print([[], *(row for line in help_lines() for row in wrap(line, columns)), []])

    async def _model(self, name: str) -> None:
        if name:
            await self._chat.use(model=with_absolute_path(await self._model_string(name)))
        model = self._chat.setup.model
        self._note(f"· the model is {model or 'not chosen: /model NAME chooses it'}")
        self._server_models = await self._chat.keeper.served_models()
        served_name = model.partition(":")[2]
        is_served = any(
            each in (model, served_name) or each.startswith(f"{served_name}:") for each in self._server_models
        )
        if self._server_models and not (name and is_served):
            near = difflib.get_close_matches(served_name or model, self._server_models, n=3) if name else []
            names = near or self._server_models[:_MOST_MODELS]
            others = len(self._server_models) - len(names)
            more = f" and {others:,} more" if others else ""
            start = "! the server does not list it; it has" if name else "· the server has"
            self._note(f"{start} {', '.join(map(one_line, names))}{more}", "warning" if name else "note")
            return
        if name and self._config.model:
            self._note("· in this conversation: the next one begins with the model of your configuration")
        elif name:
            remember_model(str(self._chat.folder), model)
            self._note("· the next conversation begins with it, unless --model or your configuration names another")

    async def _model_string(self, name: str) -> str:
        """The model string of an alias, or of a name as the server lists it."""
        model = resolved_model(self._config, name)
        provider, colon, _ = self._chat.setup.model.partition(":")
        if model == name and colon and name in (self._server_models or await self._chat.keeper.served_models()):
            return f"{provider}:{name}"
        return model

    async def _dialect(self, name: str) -> None:
        chat = self._chat
        if name:
            await chat.use(dialect=name)
        dialect_note = f" ({chat.dialect})" if chat.dialect else ""
        self._note(f"· calls are written in: {chat.setup.dialect}{dialect_note}")

    async def _approve(self, choice: str) -> None:
        if choice:
            if choice not in _APPROVE:
                raise ConfigurationError(f"/approve: there is no {suggest(choice, _APPROVE)}")
            self._chat.approver.ask_again()
            await self._chat.use(approve=choice)
        who = {"ask": "you decide about each", "none": "none of them runs", "all": "all run, except repaired calls"}
        now = self._chat.approves
        self._note(f"· calls that change something: {now} ({who.get(now, 'all run')})")

    async def _tools(self, _argument: str) -> None:
        agent = await self._chat.agent()
        self._list_tools(agent.all_tools)
        if functions := [each for each in self._chat.keeper.program_tools if each.name not in agent.all_tools]:
            self._note("· a program of run_code can call these, besides:")
            self._list_tools(functions)

    def _list_tools(self, tools: Iterable[Tool]) -> None:
        for each in tools:
            summary = " ".join(each.spec.description.strip().split("\n\n")[0].split())
            name = [("class:call", one_line(each.spec.name)), ("class:note", f"  {one_line(shorten(summary, 300))}")]
            self._front.print(indent(wrap(name, self._front.columns - 2), [], [("", "  ")]))

    async def _cost(self, _argument: str) -> None:
        chat = self._chat
        tokens, calls, cost, has_unpriced_calls, is_estimate = 0, 0, 0.0, False, False
        for run in await chat.journal.runs(session_id=chat.session_id):
            totals = (await load_state(chat.journal, run.run_id)).totals
            tokens, calls, cost = tokens + totals.tokens, calls + totals.calls, cost + totals.known_cost
            has_unpriced_calls, is_estimate = has_unpriced_calls or totals.unpriced, is_estimate or totals.estimated
        price = (
            "the price of the model is not known (--prices FILE)" if has_unpriced_calls else money(cost, is_estimate)
        )
        about = "~" if is_estimate else ""
        self._note(f"· this conversation: {about}{tokens:,} tokens, {count(calls, 'call')}, {price}")

    async def _list_sessions(self, which: str) -> None:
        chat = self._chat
        journal = chat.journal
        if not which:
            uses = await sessions_of(journal, str(chat.folder))
            self._sessions = [use.session for use in uses]
            for number, use in enumerate(uses, 1):
                session_id = use.session.session_id
                used_at = time.strftime("%Y-%m-%d %H:%M", time.localtime(use.time))
                sign = "›" if session_id == chat.session_id else " "
                state = f"  ({use.status.replace('_', ' ')})" if use.status in WAITING else ""
                title = f"{one_line(use.session.title)}{state}"
                self._note(f"{sign} {number:>2}  {session_id[:8]}  {used_at}  {title}", "code")
            place = str(chat.folder.resolve())
            self._note("· /sessions NUMBER continues one" if uses else f"· there is no conversation of {place} yet")
            return
        session = await journal.session(which)
        if session is None and len(which) < SHORT:  # a number: so short a part of an id fits others by chance
            if not self._sessions:
                self._sessions = [use.session for use in await sessions_of(journal, str(chat.folder))]
            if not (which.isdecimal() and 1 <= int(which) <= len(self._sessions)):
                there = count(len(self._sessions), "conversation")
                raise ConfigurationError(f"/sessions {which}: there is no such number; this folder has {there}")
            session = self._sessions[int(which) - 1]
        elif session is None:
            candidates = [each for each in await journal.sessions() if each.session_id.startswith(which)]
            if len(candidates) != 1:
                raise ConfigurationError(f"/sessions {which}: {len(candidates) or 'no'} conversations begin so")
            session = candidates[0]
        earlier = await setup_of(journal, session)
        folder = folder_of(earlier)
        if folder and folder != str(chat.folder.resolve()):
            raise ConfigurationError(
                f"/sessions {which}: this conversation is of {folder}; there, "
                f"`toolspeak chat --session {session.session_id[:SHORT]}` continues it"
            )
        model, dialect = earlier.get("model"), earlier.get("dialect")
        if isinstance(model, str) and model and isinstance(dialect, str):
            await chat.use(model=model, dialect=dialect)
        await chat.continue_session(session)

    async def _compact(self, _argument: str) -> None:
        if self._chat.state is None:
            self._note("· there is nothing to summarise yet")
        else:
            await self._chat.wait("the summary", self._compaction_note())

    async def _compaction_note(self) -> str:
        return await self._chat.compact() or "· the conversation stays as it is: a hook keeps it"

    async def _export(self, name: str) -> None:
        chat = self._chat
        journal, session_id = chat.journal, chat.session_id
        info = await journal.session(session_id)
        if info is None:
            raise ConfigurationError("/export: nothing was said yet")
        path = chat.file_at(name or f"toolspeak-{session_id[:8]}.md")
        if path.suffix in (".json", ".jsonl"):
            text = "".join([line + "\n" async for line in export_session(journal, session_id)])
        elif path.suffix in (".md", ".markdown"):
            text = markdown_of(info.title, await session_messages(journal, session_id))
        else:
            raise ConfigurationError(f"/export {name}: name a file that ends in .md or .json")
        _write_new(path, text)
        self._note(f"· written to {path}")

    async def _new(self, _argument: str) -> None:
        await self._chat.begin_anew()
        self._front.clear()
        self._note("· a new conversation begins; /sessions lists the others")


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigurationError(f"/export: {path} is there already; name another file") from None
