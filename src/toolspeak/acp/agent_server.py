"""The requests of an editor: which sessions there are, and what happens in each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec

from toolspeak.acp.agent_options import agent_options
from toolspeak.acp.call_presentation import JsonObject
from toolspeak.acp.client_messages import (
    ClientCapabilities,
    ConfigOptionParams,
    ListParams,
    ModeParams,
    PromptParams,
    ServerEntry,
    SessionIdParams,
    SessionParams,
    SteeringParams,
)
from toolspeak.acp.editor_choices import EditorChoices
from toolspeak.acp.editor_session import EditorSession
from toolspeak.acp.json_rpc import (
    AUTH_REQUIRED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    NOT_FOUND,
    Peer,
    RpcError,
    params_as,
)
from toolspeak.acp.permission_modes import MODES, mode_of
from toolspeak.acp.prompt_content import message_of
from toolspeak.acp.slash_commands import COMMANDS, command_in, run_slash_command
from toolspeak.agent.storage.sessions import fork_session, new_session_id
from toolspeak.data.messages import JSON
from toolspeak.errors import ConfigurationError, RunError
from toolspeak.journal import Journal, SessionInfo
from toolspeak.mcp.servers_file import HttpServer, Server, StdioServer
from toolspeak.project.recorded_setup import folder_of, setup_of

PAGE = 50
"""How many sessions a list holds at once."""

MOST_SESSIONS = 64
"""How many sessions an editor may have open."""


class AgentServer:
    """Answers what an editor asks after `initialize`, with sessions of one journal."""

    def __init__(
        self,
        peer: Peer,
        journal: Journal,
        choices: EditorChoices,
        capabilities: ClientCapabilities,
    ) -> None:
        self._peer = peer
        self._journal = journal
        self._choices = choices
        self._capabilities = capabilities
        self._sessions: dict[str, EditorSession] = {}
        self._methods: Mapping[str, Callable[[Any], Awaitable[JSON]]] = {
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/fork": self._fork,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/prompt": self._prompt,
            "_session/steering": self._steer,
            "session/cancel": self._cancel,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
        }

    async def handle(self, method: str, params: msgspec.Raw) -> JSON:
        """Answers a request or takes a notification. Raises RpcError."""
        answer = self._methods.get(method)
        if answer is None:
            raise RpcError(f"there is no method {method!r} here", METHOD_NOT_FOUND)
        return await answer(params_as(_PARAMS[method], params))

    async def stop(self) -> None:
        """Stops the turns of all sessions, which can go on later."""
        await asyncio.gather(*(session.stop() for session in self._sessions.values()))

    async def aclose(self) -> None:
        """Closes all sessions and the journal."""
        await asyncio.gather(*(session.aclose() for session in self._sessions.values()))
        await self._journal.aclose()

    async def _new(self, params: SessionParams) -> JsonObject:
        session = self._open(new_session_id(), params)
        self._peer.start(self._introduce(session))
        return {"sessionId": session.session_id, **session.choices()}

    async def _load(self, params: SessionParams) -> JsonObject:
        session = await self._reopen(params)
        await session.replay()
        self._peer.start(self._introduce(session, goes_on=True))
        return session.choices()

    async def _resume(self, params: SessionParams) -> JsonObject:
        session = await self._reopen(params)
        self._peer.start(self._introduce(session, goes_on=True))
        return session.choices()

    async def _fork(self, params: SessionParams) -> JsonObject:
        await self._known_session(params.session_id)
        info = await fork_session(self._journal, params.session_id)
        session = self._open(info.session_id, params)
        await session.continue_after(info)
        self._peer.start(self._introduce(session))
        return {"sessionId": session.session_id, **session.choices()}

    async def _introduce(self, session: EditorSession, *, goes_on: bool = False) -> None:
        commands = [
            {"name": name, "description": each.description, **({"input": {"hint": each.hint}} if each.hint else {})}
            for name, each in COMMANDS.items()
        ]
        await session.send({"sessionUpdate": "available_commands_update", "availableCommands": commands})
        if goes_on:
            await session.go_on()

    async def _list(self, params: ListParams) -> JsonObject:
        cursor = params.cursor or "0"
        if not cursor.isdecimal() or not cursor.isascii():
            raise RpcError(f"the cursor {params.cursor!r} is not one of a list", INVALID_PARAMS)
        rows: list[JsonObject] = []
        infos, position = await self._journal.sessions(), int(cursor)
        folder_filter = None if params.cwd is None else _real(params.cwd)
        others_filter = None
        if params.additional_directories is not None:
            others_filter = [_real(folder) for folder in params.additional_directories]
        while position < len(infos) and len(rows) < PAGE:
            info = infos[position]
            position += 1
            setup = await setup_of(self._journal, info)
            folder, others = folder_of(setup), cast("list[JSON]", setup.get("folders") or [])
            if (
                info.principal is None
                and folder
                and folder_filter in (None, folder)
                and others_filter in (None, others)
            ):
                updated_at = datetime.fromtimestamp(info.updated, UTC).isoformat()
                row: JsonObject = {"sessionId": info.session_id, "cwd": folder, "additionalDirectories": others}
                rows.append({**row, "title": info.title, "updatedAt": updated_at})
        return {"sessions": rows, **({"nextCursor": str(position)} if position < len(infos) else {})}

    async def _close(self, params: SessionIdParams) -> JsonObject:
        session = self._sessions.pop(params.session_id, None)
        if session is None:
            raise self._closed_session_error(params.session_id)
        session.cancel()
        await session.aclose()
        return {}

    async def _delete(self, params: SessionIdParams) -> JsonObject:
        session = self._sessions.pop(params.session_id, None)
        if session is not None:
            session.cancel()
            await session.aclose()
        if await self._journal.session(params.session_id) is not None:
            await self._journal.delete_session(params.session_id)
        return {}

    async def _prompt(self, params: PromptParams) -> JsonObject:
        session = self._session(params.session_id)
        message = message_of(params.prompt)
        command = command_in(message)
        if command is not None:
            return await session.until_cancelled(lambda: run_slash_command(session, *command))
        return await session.prompt(message)

    async def _steer(self, params: SteeringParams) -> JsonObject:
        """Takes a message for the turn that is under way. It never gets lost: without a turn it begins one, unless the
        editor does that itself."""
        session = self._session(params.session_id)
        begins = not session.has_turn or command_in(message_of(params.prompt)) is not None
        if begins and params.meta.steering.idle_behavior == "promptRequired":
            return {"outcome": "promptRequired", "reason": "noRunningTurn"}
        self._peer.start(self._answer_later(session, params))
        return {"outcome": "startedNewTurn" if begins else "injected"}

    async def _answer_later(self, session: EditorSession, params: PromptParams) -> None:
        try:
            await self._prompt(params)
        except RpcError as error:  # no request waits for it
            await session.say(f"*{error}*")

    async def _cancel(self, params: SessionIdParams) -> None:
        self._session(params.session_id).cancel()

    async def _set_mode(self, params: ModeParams) -> JsonObject:
        await self._change_mode(self._session(params.session_id), params.mode_id)
        return {}

    async def _change_mode(self, session: EditorSession, name: str) -> None:
        mode = mode_of(name)
        if mode is None:
            raise RpcError(f"there is no mode {name!r}: the modes are {', '.join(MODES)}", INVALID_PARAMS)
        await session.set_mode(mode)

    async def _set_option(self, params: ConfigOptionParams) -> JsonObject:
        session = self._session(params.session_id)
        match params.config_id, params.value:
            case "mode", str(name):
                await self._change_mode(session, name)
            case "model", str(name):
                if session.between_turns.locked():
                    await session.set_model(name, between_turns=False)
                else:
                    async with session.between_turns:
                        await session.set_model(name, between_turns=True)
            case _:
                raise RpcError(f"there is no option {params.config_id!r} with such a value", INVALID_PARAMS)
        return {"configOptions": session.choices()["configOptions"]}

    # --- sessions ------------------------------------------------------------------------------------------------

    def _session(self, session_id: str) -> EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise self._closed_session_error(session_id)
        return session

    def _closed_session_error(self, session_id: str) -> RpcError:
        return RpcError(f"session {session_id!r} is not open here: make it with session/new, or load it", NOT_FOUND)

    async def _known_session(self, session_id: str) -> SessionInfo:
        info = await self._journal.session(session_id) if session_id else None
        if info is None:
            raise RpcError(f"there is no session {session_id!r}; session/list lists those there are", NOT_FOUND)
        if info.principal is not None:
            raise RunError(f"session {session_id} belongs to another user; start one of your own")
        return info

    async def _reopen(self, params: SessionParams) -> EditorSession:
        """The session, opened anew: the editor may bring other servers."""
        info = await self._known_session(params.session_id)
        before = self._sessions.pop(params.session_id, None)
        if before is not None:
            await before.aclose()
        session = self._open(params.session_id, params)
        await session.continue_after(info)
        return session

    def _open(self, session_id: str, params: SessionParams) -> EditorSession:
        if len(self._sessions) >= MOST_SESSIONS:
            raise RpcError(f"{MOST_SESSIONS} sessions are open: close one first")
        places = {"cwd": (params.cwd,), "each of additionalDirectories": params.additional_directories or ()}
        for what, folders in places.items():
            for folder in folders:
                if "\0" in folder or not Path(folder).is_absolute() or not Path(folder).is_dir():
                    raise RpcError(f"{what} must be the absolute path of a folder, not {folder!r}", INVALID_PARAMS)
        # Each list is the whole one: folders of earlier turns do not come back by themselves.
        folder = _real(params.cwd)
        others = dict.fromkeys(map(_real, params.additional_directories or ()))
        others.pop(folder, None)
        servers = tuple(_server(entry) for entry in params.mcp_servers or ())
        try:
            options = agent_options(self._choices, params.cwd, tuple(others))
        except ConfigurationError as error:
            raise RpcError(str(error), AUTH_REQUIRED) from None
        session = EditorSession(self._peer, self._journal, session_id, params.cwd, options, self._capabilities, servers)
        self._sessions[session_id] = session
        return session


def _real(folder: str) -> str:
    return str(Path(folder).resolve())


def _server(entry: ServerEntry) -> Server:
    """An MCP server as the editor names it. Raises RpcError."""
    match entry.type:
        case "stdio" if entry.command:
            return StdioServer(entry.name, entry.command, entry.args, {each.name: each.value for each in entry.env})
        case "http" | "sse" as kind if entry.url.startswith(("http://", "https://")):
            return HttpServer(entry.name, entry.url, {each.name: each.value for each in entry.headers}, kind)
        case _:
            problem = "name its command, or its address with type 'http' or 'sse'"
    raise RpcError(f"the MCP server {entry.name!r} cannot be used: {problem}", INVALID_PARAMS)


_PARAMS: Mapping[str, type[Any]] = {
    "session/new": SessionParams,
    "session/load": SessionParams,
    "session/resume": SessionParams,
    "session/fork": SessionParams,
    "session/list": ListParams,
    "session/close": SessionIdParams,
    "session/delete": SessionIdParams,
    "session/prompt": PromptParams,
    "_session/steering": SteeringParams,
    "session/cancel": SessionIdParams,
    "session/set_mode": ModeParams,
    "session/set_config_option": ConfigOptionParams,
}
"""The parameters of each method."""
