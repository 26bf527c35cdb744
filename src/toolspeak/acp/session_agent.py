"""The agent of an editor's session, with its MCP servers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

from toolspeak.agent import Agent
from toolspeak.execute import Approver, BatchApprover, Observer
from toolspeak.journal import Journal
from toolspeak.mcp.servers_file import Server
from toolspeak.project.agent_builder import OpenedAgent, open_agent, window_of_agent
from toolspeak.project.run_setup import Setup
from toolspeak.tools.builtin import Workspace
from toolspeak.tools.builtin.shell import RunCommand


class SessionAgent:
    """Stays open from turn to turn, and is opened anew for other settings.

    - `servers`: MCP servers that the editor brings. `forms` gets what MCP servers ask the user.
    - `tell`: shows the user a line at once, `warn` in its place in the conversation, and once in a session.
    - the other arguments: see `open_agent`.
    """

    def __init__(
        self,
        journal: Journal,
        approver: BatchApprover,
        forms: Approver,
        servers: Sequence[Server],
        observer: Observer,
        tell: Callable[[str], object],
        warn: Callable[..., Awaitable[None]],
        *,
        open_files: Workspace | None,
        run_command: RunCommand | None,
    ) -> None:
        self._journal = journal
        self._approver = approver
        self._forms = forms
        self._servers = servers
        self._observer = observer
        self._tell = tell
        self._warn = warn
        self._open_files = open_files
        self._run_command = run_command
        self._parts = AsyncExitStack()
        self._opened_as: tuple[Setup, OpenedAgent] | None = None
        self._window: int | None = None  # of the agent that is open; 0 if nobody says it

    async def window(self) -> int | None:
        """How many tokens the model reads, as the settings, its name or its server say; None if none of them does."""
        if self._window is None and self._opened_as is not None:
            self._window = await window_of_agent(self._opened_as[1])
        return self._window or None

    async def open(self, setup: Setup) -> Agent:
        """The agent with these settings. Raises ConfigurationError for settings that cannot be used."""
        if self._opened_as is not None and self._opened_as[0] == setup:
            return self._opened_as[1].agent
        await self.aclose()
        try:
            ready_agent = await self._parts.enter_async_context(
                open_agent(
                    setup,
                    self._journal,
                    self._approver,
                    observers=[self._observer],
                    open_files=self._open_files,
                    run_command=self._run_command,
                    tell=self._tell,
                    server_questions=self._forms,
                    servers_besides=self._servers,
                )
            )
        except BaseException:
            await self.aclose()
            raise
        self._opened_as = setup, ready_agent
        for warning in ready_agent.warnings:
            await self._warn(warning)
        place = ""
        if self._run_command is not None and not ready_agent.is_confined:
            place = ", and the environment of your editor: they run in its terminals"
        await self._warn(f"{ready_agent.sandbox}{place}", "agent_thought_chunk")
        return ready_agent.agent

    async def aclose(self) -> None:
        self._opened_as = self._window = None
        parts, self._parts = self._parts, AsyncExitStack()
        await parts.aclose()
