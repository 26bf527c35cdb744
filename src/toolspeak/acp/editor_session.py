"""One session of an editor: its agent, its turns, and what the editor sees of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from toolspeak.acp.agent_options import AgentOptions
from toolspeak.acp.call_presentation import FileChange, JsonObject, shown_id
from toolspeak.acp.client_messages import ClientCapabilities
from toolspeak.acp.editor_files import EditorFiles, file_change
from toolspeak.acp.editor_terminals import EditorTerminals
from toolspeak.acp.json_rpc import INTERNAL_ERROR, Peer, PeerGone, RpcError
from toolspeak.acp.permission_modes import Mode, mode_of
from toolspeak.acp.permission_requests import EditorApprover
from toolspeak.acp.prompt_content import text_block
from toolspeak.acp.recorded_changes import RecordedChanges
from toolspeak.acp.run_updates import RunUpdates
from toolspeak.acp.server_forms import EditorForms
from toolspeak.acp.session_agent import SessionAgent
from toolspeak.acp.session_options import config_options, mode_fields
from toolspeak.acp.session_replay import conversation_updates
from toolspeak.acp.turn_answer import answer_to_prompt
from toolspeak.agent import Agent, Run, Session
from toolspeak.agent.result import result_of
from toolspeak.agent.storage.runs import close_run, load_state, set_metadata
from toolspeak.data.deltas import CallCompleted
from toolspeak.data.events import (
    HistoryCompacted,
    MetadataSet,
    ModelAnswered,
    Record,
    RunResumed,
    RunStarted,
    ToolFinished,
)
from toolspeak.data.messages import Message, ToolCall, ToolResult
from toolspeak.data.run_values import UNFINISHED_STATUSES, RunStatus
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import evolve
from toolspeak.errors import ProviderError, RunBusy, RunError
from toolspeak.execute.concurrency.limits import in_thread
from toolspeak.journal import Journal, SessionInfo
from toolspeak.journal.leases import holder_of, is_held
from toolspeak.mcp.servers_file import Server
from toolspeak.project.configuration.configured_setup import with_model_of
from toolspeak.project.recorded_setup import last_run_of, setup_of_run
from toolspeak.sandbox.processes import finish_work
from toolspeak.tools.builtin import Workspace
from toolspeak.tools.files.workspace_folders import Folders
from toolspeak.ui.format import printable

MOST_PROMPTS = 8
"""How many prompts of a session may wait for the end of a turn."""

_MODE = "acp_mode"
"""The metadata of a run: the mode that the user has chosen for its session."""

_RESUMABLE: frozenset[RunStatus] = frozenset({"running", "awaiting_approval", "suspended"})
"""A last run of these statuses goes on with the next prompt. `queued` and `waiting` ones belong to workers."""


class EditorSession:
    """A session of the journal that an editor has open.

    - `folder`: its working directory, the workspace of the tools.
    - `servers`: MCP servers that the editor brings.
    """

    def __init__(
        self,
        peer: Peer,
        journal: Journal,
        session_id: str,
        folder: str,
        options: AgentOptions,
        capabilities: ClientCapabilities,
        servers: Sequence[Server] = (),
    ) -> None:
        self.session_id = session_id
        self.folder = folder
        self.setup = options.setup
        self._peer = peer
        self.journal = journal
        self._options = options
        folders = (str(Path(folder).resolve()), *self.setup.folders)
        self._in_buffers: dict[tuple[str, str], dict[str, FileChange]] = {}  # what the turn's calls changed
        self._files: Workspace | None = None
        if capabilities.reads or capabilities.writes:
            files = [EditorFiles(each, peer, session_id, capabilities, self._in_buffers) for each in folders]
            self._files = Folders(files[0], files[1:])
        self._disk = Folders(Workspace(folders[0]), [Workspace(each) for each in folders[1:]])
        self._recorded_changes = RecordedChanges(journal)
        terminals = EditorTerminals(peer, session_id, self._show_terminal) if capabilities.terminal else None
        self.approver = EditorApprover(peer, session_id, folders, self._change_of)
        self.approver.mode, self.approver.rules_file = options.mode, self.setup.rules
        self.between_turns = asyncio.Lock()
        """Held by a turn, and by what may only happen between two."""
        self._turns: set[asyncio.Task[JsonObject]] = set()
        self._leader: asyncio.Task[JsonObject] | None = None  # the prompt whose turn is under way
        self._run: Run | None = None  # of that turn, once it has begun
        self._early: list[Message] = []  # messages for a turn that has no run yet
        self._unread: Sequence[Message] = ()  # messages that came too late for the last turn
        self._is_cancelled = False
        self._agent = SessionAgent(
            journal,
            self.approver,
            EditorForms(peer, session_id, folders[0], capabilities),
            servers,
            self._saw_event,
            self._tell,
            self._warn,
            open_files=self._files,
            run_command=terminals,
        )
        self._warnings: set[str] = set()
        self._title: str | None = None
        self._cost: float | None = 0.0
        self._views: dict[str, RunUpdates] = {}  # of the turn's run and its sub-runs, by their ids

    # --- what the editor sees ------------------------------------------------------------------------------------

    async def send(self, update: JsonObject) -> None:
        """Shows an update. Waits while the editor reads slowly. Raises PeerGone."""
        await self._peer.notify("session/update", {"sessionId": self.session_id, "update": update})

    async def _show_terminal(self, run_id: str, call_id: str, terminal_id: str) -> None:
        terminal: JsonObject = {"type": "terminal", "terminalId": terminal_id}
        shown_call_id = shown_id(run_id, call_id)
        view = self._views.get(run_id)
        if view is not None:
            view.show_terminal(call_id, terminal)
        await self.send({"sessionUpdate": "tool_call_update", "toolCallId": shown_call_id, "content": [terminal]})

    async def say(self, text: str) -> None:
        """Shows a text of the agent's program, not of the model."""
        await self.send({"sessionUpdate": "agent_message_chunk", "content": text_block(printable(text))})

    def _tell(self, text: str) -> None:
        """Shows a line as soon as the editor reads it."""
        self._peer.start(self.say(f"*{text}*\n\n"))

    async def _warn(self, warning: str, kind: str = "agent_message_chunk") -> None:
        """Shows what the user should know, once in a session: its agent is opened anew for another model."""
        if warning and warning not in self._warnings:
            self._warnings.add(warning)
            await self.send({"sessionUpdate": kind, "content": text_block(printable(f"*{warning}*\n\n"))})

    def choices(self) -> JsonObject:
        """The mode, the model, and what else may be chosen."""
        options = config_options(self.approver.mode, self.setup.model, self._options.models)
        return {"modes": mode_fields(self.approver.mode), "configOptions": options}

    @property
    def models(self) -> Mapping[str, str]:
        """The names that the user may choose, each with the model that it stands for."""
        return self._options.models

    async def continue_after(self, info: SessionInfo) -> None:
        """Takes the model, how it is spoken to, and the mode that the user chose, from the last turn of a session."""
        run_id = last_run_of(info)
        if run_id is None:
            return
        self.setup = with_model_of(self.setup, await setup_of_run(self.journal, run_id), ())
        mode = mode_of(str((await load_state(self.journal, run_id)).metadata.get(_MODE, "")))
        if mode is not None:
            self.approver.mode = mode

    async def set_mode(self, mode: Mode) -> None:
        """Changes the mode, for the questions from now on. The journal keeps it with the last turn."""
        self.approver.mode = mode
        if self._run is not None:
            await self._keep_mode(self._run)
        else:
            info = await self.journal.session(self.session_id)
            if info is not None and info.last_run is not None:
                with suppress(RunBusy):  # another process works on the session: the next turn keeps the mode
                    await set_metadata(self.journal, info.last_run, {_MODE: mode})
        await self.send({"sessionUpdate": "current_mode_update", "currentModeId": mode})
        await self.send({"sessionUpdate": "config_option_update", "configOptions": self.choices()["configOptions"]})

    async def set_model(self, name: str, *, between_turns: bool) -> None:
        """Changes the model, from the next turn on. Raises ConfigurationError for a model that cannot be used; during a
        turn the next one says so."""
        setup = evolve(self.setup, model=self._options.models.get(name, name))
        if between_turns:
            await self._agent.open(setup)
        self.setup = setup
        await self.send({"sessionUpdate": "config_option_update", "configOptions": self.choices()["configOptions"]})

    # --- the past ------------------------------------------------------------------------------------------------

    async def replay(self) -> None:
        """Shows the whole conversation so far."""
        async for update in conversation_updates(self.journal, self.session_id, self.folder, self._recorded_changes):
            await self.send(update)

    async def go_on(self) -> None:
        """Asks again what a loaded session waits for; says so if its last turn was interrupted."""
        info = await self.journal.session(self.session_id)
        run = None if info is None or info.last_run is None else await self.journal.run(info.last_run)
        if run is None or run.status not in UNFINISHED_STATUSES:
            return
        if is_held(run):
            await self.say("*Another process is working on this session now. Load it again when that has ended.*")
        elif (await load_state(self.journal, run.run_id)).approvals.open_requests:
            with suppress(RpcError):
                await self.prompt(None)
        elif run.status in _RESUMABLE:
            await self.say("*The last turn of this session was interrupted. Your next message continues it.*")

    async def _keep_mode(self, run: Run) -> None:
        with suppress(RunError):  # the run has not begun, and keeps the mode when it does; or has just ended
            if run.state.metadata.get(_MODE, self._options.mode) != self.approver.mode:
                await run.record(MetadataSet({_MODE: self.approver.mode}))

    # --- turns ---------------------------------------------------------------------------------------------------

    @property
    def has_turn(self) -> bool:
        """Whether a turn is under way, which reads what the user says."""
        return self._leader is not None and not self._leader.done()

    async def prompt(self, message: Message | None) -> JsonObject:
        """Does a turn with the user's message. The model reads it at the next step of a turn that is under way, and
        both prompts have the answer of that turn. None: goes on with the last run.

        Returns the answer to the editor. Raises RpcError if the turn fails.
        """
        return await self.until_cancelled(lambda: self._answer_to(message))

    async def until_cancelled(self, work: Callable[[], Coroutine[Any, Any, JsonObject]]) -> JsonObject:
        """Does what a prompt asks for, unless the editor cancels it. Raises RpcError if too many prompts wait."""
        if len(self._turns) > MOST_PROMPTS:
            raise RpcError(f"{MOST_PROMPTS} prompts of this session wait already: cancel, or wait for an answer")
        turn = asyncio.create_task(work())
        self._turns.add(turn)
        try:
            await asyncio.wait([turn])
        except asyncio.CancelledError:
            turn.cancel()
            await asyncio.wait([turn])
            raise
        finally:
            self._turns.discard(turn)
        return {"stopReason": "cancelled"} if turn.cancelled() else turn.result()

    def cancel(self) -> None:
        """Ends the turn that is under way, with its calls, and those that wait."""
        self._is_cancelled = bool(self._turns)
        for turn in self._turns:
            turn.cancel()

    async def _answer_to(self, message: Message | None) -> JsonObject:
        while message is not None and (leader := self._leader) is not None and not leader.done():
            try:
                if self._run is None:
                    self._early.append(message)
                else:
                    self._run.say(message)
                has_said = True
            except RunError:  # the run has just ended
                has_said = False
            await asyncio.wait([leader])
            if has_said and not any(each is message for each in self._unread):
                return {"stopReason": leader.result()["stopReason"]}  # the usage is in the leader's answer
        self._leader = asyncio.current_task()
        return await self._turn(message)

    async def _turn(self, message: Message | None) -> JsonObject:
        async with self.between_turns:
            self._unread = ()
            try:
                return await self._turn_alone(message)
            finally:
                run, self._run = self._run, None
                self._unread, self._early = (*(() if run is None else run.unread), *self._early), []

    async def _turn_alone(self, message: Message | None) -> JsonObject:
        self._is_cancelled = False
        for warning in self._options.warnings:
            await self._warn(warning)
        agent = await self._agent.open(self.setup)
        run, view = await self._next_run(agent, message)
        try:
            return await self._drive(run, view)
        except (RunBusy, ProviderError) as error:
            raise RpcError(str(error), INTERNAL_ERROR) from None
        except asyncio.CancelledError:
            if self._is_cancelled:
                await finish_work(self._end_run(run.run_id, view))
            raise

    async def _next_run(self, agent: Agent, message: Message | None) -> tuple[Run, RunUpdates]:
        """The run of a turn, not yet driven: the last one if it did not end, with the message added."""
        info = await self.journal.session(self.session_id)
        last = None if info is None or info.last_run is None else await self.journal.run(info.last_run)
        if last is not None and last.status in _RESUMABLE:
            if is_held(last):
                raise RunBusy(f"{holder_of(last)} works on this session (run {last.run_id[:8]}): wait, or end it there")
            view = RunUpdates(self.folder, last.run_id)
            for record in await self.journal.read(last.run_id):
                view.updates(record)  # the editor has seen them
            run = agent.reopen(last.run_id)
            if message is not None:
                run.say(message)
            return run, view
        if message is None:
            raise RpcError("there is no turn to go on with")
        setup = self.setup.as_json()
        run = await Session(agent, self.session_id).start(message, limits=self._options.limits, setup=setup)
        return run, RunUpdates(self.folder, run.run_id)

    async def _drive(self, run: Run, view: RunUpdates) -> JsonObject:
        self.approver.begin(run.run_id)
        self._views = {run.run_id: view}
        self._in_buffers.clear()
        self._run, early, self._early = run, self._early, []
        for message in early:
            run.say(message)
        async with aclosing(run.stream()) as items:
            async for item in items:
                change: FileChange | None = None
                changes: Sequence[FileChange] = ()
                if type(item) is CallCompleted and item.call_id is not None:
                    change = await self._change_of(ToolCall(item.call_id, item.name, item.arguments))
                elif isinstance(item, Record) and isinstance(item.event, ToolFinished):
                    changes = await self._changes_by(item.run_id, item.event.result)
                for update in view.updates(item, change, changes):
                    await self.send(update)
                self.approver.saw(item)
                match item:
                    case Record(event=RunStarted() | RunResumed()):
                        self._peer.start(self._keep_mode(run))  # in a task: this one reads what it records
                    case Record(event=ModelAnswered() as answer):
                        await self._show_usage(answer)
                    case _:
                        pass
        await self._show_title()
        answer, text = answer_to_prompt(result_of(run))
        if text:
            await self.say(text)
        return answer

    async def _end_run(self, run_id: str, view: RunUpdates) -> None:
        """After a cancellation: closes the run, so that the session goes on from what was said."""
        with suppress(RunError):  # it may have ended, or not have begun
            await close_run(self.journal, run_id, partial_text=view.partial_text)
        with suppress(PeerGone):
            for update in view.end_interrupted_turn():
                await self.send(update)
            await self._show_title()

    async def _show_usage(self, event: ModelAnswered) -> None:
        if event.cost is None or self._cost is None:
            self._cost = None
        else:
            self._cost += event.cost
        window = await self._agent.window()
        if window is None or event.usage.total is None:
            return  # the protocol has no usage without the size of the window
        update: JsonObject = {"sessionUpdate": "usage_update", "used": event.usage.total, "size": window}
        if self._cost:
            update["cost"] = {"amount": self._cost, "currency": "USD"}
        await self.send(update)

    async def _show_title(self) -> None:
        info = await self.journal.session(self.session_id)
        if info is not None and info.title != self._title:
            self._title = info.title
            updated_at = datetime.fromtimestamp(info.updated, UTC).isoformat()
            await self.send({"sessionUpdate": "session_info_update", "title": info.title, "updatedAt": updated_at})

    async def _change_of(self, call: ToolCall) -> FileChange | None:
        outcome = await in_thread(lambda: file_change(self._files or self._disk, call))
        return outcome.value if outcome.error is None else None

    async def _changes_by(self, run_id: str, result: ToolResult) -> Sequence[FileChange]:
        """What a call has changed: on the disk as the store of changes has it, else in the editor's buffer."""
        in_buffers = self._in_buffers.pop((run_id, result.call_id), {}).values()
        changes = await asyncio.to_thread(self._recorded_changes.of_result, run_id, result)
        return changes or [each for each in in_buffers if each.before != each.after]

    def _saw_event(self, event: object) -> None:
        """Shows the calls of sub-runs beside those of the run."""
        if isinstance(event, Record) and event.parent_run_id is not None:
            view = self._views.setdefault(event.run_id, RunUpdates(self.folder, event.run_id, calls_only=True))
            for update in view.updates(event):
                self._peer.start(self.send(update))

    async def tools(self) -> Sequence[ToolSpec]:
        """The agent's tools."""
        return [tool.spec for tool in (await self._agent.open(self.setup)).all_tools]

    async def compact(self) -> HistoryCompacted | None:
        """Makes the conversation shorter for the model, at once; see `Session.compact`."""
        return await Session(await self._agent.open(self.setup), self.session_id).compact()

    # --- its end -------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stops the turns, which can go on later."""
        turns = list(self._turns)
        for turn in turns:
            turn.cancel()
        if turns:
            await asyncio.wait(turns)

    async def aclose(self) -> None:
        """Stops the turns and closes what the session has open."""
        await self.stop()
        await self._agent.aclose()
        self._recorded_changes.close()
