"""The agent of the conversation: opened at its first use, and anew when the settings change."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AsyncExitStack

from toolspeak.agent import Agent
from toolspeak.agent.drivers.probing import ProbingDriver
from toolspeak.agent.drivers.text import TextDriver
from toolspeak.chat.call_approver import CallApprover
from toolspeak.errors import ConfigurationError
from toolspeak.journal import Journal
from toolspeak.project.agent_builder import OpenedAgent, open_agent, window_of_agent
from toolspeak.project.configuration.configured_servers import RunServers
from toolspeak.project.run_setup import Setup
from toolspeak.providers import get_provider
from toolspeak.providers.server_probe import probe
from toolspeak.tools import Toolset

NO_MODEL = """\
No model is chosen. Name one: /model ollama:qwen3:8b (a server at OLLAMA_HOST, by default http://127.0.0.1:11434), or \
/model openai:gpt-4o (with the key in OPENAI_API_KEY). /model alone lists those of the server at OPENAI_BASE_URL. \
--model or TOOLSPEAK_MODEL names it at the start."""


class LazyAgent:
    """Holds one open agent.

    - `note`: shows a line to the person, in a style.
    """

    def __init__(self, journal: Journal, approver: CallApprover, note: Callable[[str, str], None]) -> None:
        self.window: int | None = None
        """How many tokens the agent's model reads; None before its server was asked, 0 if nobody says it."""
        self._journal, self._approver, self._note = journal, approver, note
        self._in_use: tuple[Setup, OpenedAgent, AsyncExitStack] | None = None
        self._notes: set[str] = set()

    @property
    def dialect(self) -> str:
        """How the model writes calls; "" before that is known."""
        driver = None if self._in_use is None else self._in_use[1].agent.driver
        driver = driver.choice if isinstance(driver, ProbingDriver) else driver
        return "" if driver is None else driver.dialect.name if isinstance(driver, TextDriver) else "native calls"

    @property
    def program_tools(self) -> Toolset:
        """The tools that programs of code mode may call; none without code mode."""
        return Toolset() if self._in_use is None else self._in_use[1].program_tools

    async def agent(self, setup: Setup) -> Agent:
        """The agent of these settings. Closes the one of other settings. Raises ConfigurationError without a model."""
        if not setup.model:
            raise ConfigurationError(NO_MODEL)
        if self._in_use is not None and self._in_use[0] == setup:
            return self._in_use[1].agent
        await self.close()
        approver = self._approver if setup.approve == "ask" else setup.approve
        stack = AsyncExitStack()
        opened_agent = await stack.enter_async_context(
            open_agent(
                setup,
                self._journal,
                approver,
                tell=lambda text: self._note(f"! {text}", "warning"),
                server_questions=self._approver.at_any_time if setup.approve == "ask" else None,
            )
        )
        self._in_use = (setup, opened_agent, stack)
        for text in (opened_agent.sandbox, *(f"! {warning}" for warning in opened_agent.warnings)):
            if text and text not in self._notes:
                self._notes.add(text)  # another model does not bring them anew
                self._note(text, "warning" if text.startswith("!") else "note")
        self.window = opened_agent.window
        return opened_agent.agent

    async def servers_of(self, setup: Setup) -> RunServers:
        """The MCP servers of the agent of these settings."""
        await self.agent(setup)
        return RunServers() if self._in_use is None else self._in_use[1].servers

    async def ask_for_window(self) -> None:
        """Finds `window` out, if it is not known: ask when the model has answered."""
        if self.window is None and self._in_use is not None:
            self.window = await window_of_agent(self._in_use[1])

    async def served_models(self) -> list[str]:
        """The models that the server of the agent lists, or the one at OPENAI_BASE_URL before there is an agent; none
        if it does not answer."""
        if self._in_use is not None:
            provider = getattr(self._in_use[1].agent.driver, "provider", None)
            return [] if provider is None else sorted((await probe(provider))[0] or ())
        if not os.environ.get("OPENAI_BASE_URL"):
            return []
        provider = get_provider("openai:any", os.environ)
        try:
            return sorted((await probe(provider))[0] or ())
        finally:
            await provider.aclose()

    async def close(self) -> None:
        """Closes the agent, if one is open."""
        in_use, self._in_use = self._in_use, None
        if in_use is not None:
            await in_use[2].aclose()
