"""Commands in terminals of the editor, where the user sees them run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from toolspeak.acp.client_messages import TerminalCreated, TerminalExit, TerminalText
from toolspeak.acp.json_rpc import Peer, PeerGone, RpcError, params_as
from toolspeak.data.messages import JSON
from toolspeak.errors import ToolError
from toolspeak.sandbox.processes import finish_work
from toolspeak.tools import RunContext
from toolspeak.tools.builtin.shell import CommandOutcome

_SECONDS = 10.0
"""How long an editor may take to start a command, to end one, or to give its output."""

AnswerT = TypeVar("AnswerT")
_Nothing: Any = object
"""What an answer without content is read as."""


class EditorTerminals:
    """Runs the commands of one session with `terminal/*`. A command that is cancelled, or reaches its time limit, is
    killed there. `show` shows the terminal of a call, by the ids of the run, the call and the terminal."""

    def __init__(self, peer: Peer, session_id: str, show: Callable[[str, str, str], Awaitable[None]]) -> None:
        self._peer = peer
        self._session_id = session_id
        self._show = show

    async def __call__(
        self, command: str, *, folder: str, environment: Mapping[str, str], timeout: float, limit: int, ctx: RunContext
    ) -> CommandOutcome:
        """Runs a command line with /bin/sh; see `RunCommand`. Raises ToolError if the editor cannot start it."""
        creation = asyncio.ensure_future(
            self._ask(
                TerminalCreated,
                "terminal/create",
                command="/bin/sh",
                args=["-c", command],
                env=[{"name": name, "value": value} for name, value in environment.items()],
                cwd=folder,
                outputByteLimit=limit,
            )
        )
        timed_out, exit_status = False, TerminalExit()
        try:
            terminal_id = (await asyncio.shield(creation)).terminal_id
            await self._show(ctx.run_id or "", ctx.call.id, terminal_id)
            try:
                async with asyncio.timeout(timeout):
                    wait = self._ask(TerminalExit, "terminal/wait_for_exit", seconds=None, terminalId=terminal_id)
                    exit_status = await wait
            except TimeoutError:
                timed_out = True
                await self._ask(_Nothing, "terminal/kill", terminalId=terminal_id)
            text = await self._ask(TerminalText, "terminal/output", terminalId=terminal_id)
        finally:
            await finish_work(self._release(creation))
        exit_status = text.exit_status or exit_status
        output = f"[the beginning of the output was left out]\n{text.output}" if text.truncated else text.output
        if exit_status.signal and exit_status.exit_code is None:
            output = f"{output}\n[ended by the signal {exit_status.signal}]"
        return CommandOutcome(exit_status.exit_code, output, timed_out)

    async def _release(self, creation: asyncio.Future[TerminalCreated]) -> None:
        """Ends what still runs in the terminal, which the editor may be making now."""
        with suppress(ToolError):  # there is no terminal, or the editor is gone
            await self._ask(_Nothing, "terminal/release", terminalId=(await creation).terminal_id)

    async def _ask(
        self, kind: type[AnswerT], method: str, *, seconds: float | None = _SECONDS, **params: JSON
    ) -> AnswerT:
        try:
            async with asyncio.timeout(seconds):
                return params_as(kind, await self._peer.call(method, {"sessionId": self._session_id, **params}))
        except (RpcError, PeerGone) as error:
            raise ToolError(f"the user's editor refused {method}: {error}") from None
        except TimeoutError:
            raise ToolError(f"the user's editor did not answer {method} within {seconds:g} seconds.") from None
