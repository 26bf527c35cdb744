"""`shell`: runs a command line in the workspace folder."""

from __future__ import annotations

import asyncio
import fnmatch
import math
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from toolspeak.data.tools import EVERYTHING, Effects
from toolspeak.data.values import quick
from toolspeak.errors import ToolError
from toolspeak.sandbox.processes import Group, ProcessOutput, finished
from toolspeak.tools import RunContext, Tool, tool
from toolspeak.tools.builtin.capture import Capture
from toolspeak.tools.builtin.live_output import LiveOutput
from toolspeak.tools.builtin.text_format import visible
from toolspeak.tools.builtin.workspace import Workspace

OUTPUT_LIMIT = 16 * 1024
"""The most bytes of output in a result. Of a longer output it holds the beginning and the end, each half of them."""

INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "TMPDIR")
"""Environment variables that every command gets, as shell patterns. The caller may name more. A list of forbidden names
instead would expose every secret with another name (DATABASE_URL, SSH_AUTH_SOCK)."""

UNLIMITED = Effects(reads={EVERYTHING}, writes={EVERYTHING}, external=True)


@quick()
class CommandOutcome:
    """A command that has ended.

    - `exit_code`: None if it has none.
    - `output`: what it wrote.
    - `timed_out`: it was ended at its time limit.
    """

    exit_code: int | None
    output: str
    timed_out: bool


class RunCommand(Protocol):
    """Runs a command line elsewhere, such as in a terminal of the user's editor.

    It ends the command at the time limit (seconds), and when it is cancelled. `limit`: the most bytes of output.
    """

    async def __call__(
        self,
        command: str,
        *,
        folder: str,
        environment: Mapping[str, str],
        timeout: float,
        limit: int,
        ctx: RunContext[Any],
    ) -> CommandOutcome: ...


def shell_tool(
    workspace: Workspace,
    *,
    output_limit: int = OUTPUT_LIMIT,
    env: Collection[str] = (),
    run_command: RunCommand | None = None,
) -> Tool:
    """The tool `shell`. A command has all rights of the user: it only starts in the workspace.

    `output_limit`: the most bytes of output in a result.
    `env`: the names of environment variables that a command gets besides `INHERITED`.
    `run_command`: runs the commands elsewhere. None: in this process's children.
    """

    def would(command: str) -> str:
        return visible(command)

    # No time limit for the tool: the argument limits the command, and the output until then is not lost.
    @tool(
        name="shell",
        aliases={"cmd": "command"},
        effects=UNLIMITED,
        preview=would,
        timeout=math.inf,
        command_line="command",
    )
    async def shell(command: str, ctx: RunContext[Any], timeout: float = 60) -> dict[str, Any]:
        """Run a command line with /bin/sh in the workspace folder, without input.

        Returns the exit code and the output (standard output and error together; of a long one the beginning
        and the end). What the command leaves running in the background is ended with it.

        Args:
            command: The command line.
            timeout: Seconds after which the command is ended.
        """
        _check(command, timeout)
        environment = command_environment(str(workspace.root), env)
        if run_command is None:
            outcome = await _run(command, str(workspace.root), timeout, output_limit, environment, ctx.progress)
        else:
            outcome = await run_command(
                command,
                folder=str(workspace.root),
                environment=environment,
                timeout=timeout,
                limit=output_limit,
                ctx=ctx,
            )
        result: dict[str, Any] = {"exit_code": outcome.exit_code, "output": outcome.output}
        if outcome.timed_out:
            result["timed_out"] = f"ended after {timeout:g} seconds; pass a longer timeout if it needs more time"
        return result

    return shell


def _check(command: str, timeout: float) -> None:
    if os.name != "posix":
        raise ToolError("shell needs /bin/sh, which this system does not have.")
    if not timeout > 0:
        raise ToolError(f"'timeout' is {timeout:g}: give a number of seconds above 0.")
    if "\0" in command:
        raise ToolError("'command' contains a NUL character: leave it out.")
    try:
        command.encode()
    except UnicodeEncodeError:
        raise ToolError("'command' contains a lone surrogate: leave it out.") from None


def command_environment(folder: str, env: Collection[str]) -> dict[str, str]:
    """The environment of a command in a folder: the variables of this process that every command gets, and `env`."""
    names = (*INHERITED, *env)
    variables = os.environ.items()
    fitting = {name: value for name, value in variables if any(fnmatch.fnmatchcase(name, each) for each in names)}
    return {**fitting, "PWD": folder}


async def _run(
    command: str,
    folder: str,
    timeout: float,
    output_limit: int,
    environment: Mapping[str, str],
    report: Callable[[str], None],
) -> CommandOutcome:
    """Runs the command as a child. Ends all processes, also if it raises. `report` gets lines of output meanwhile."""
    loop, capture, live_output = asyncio.get_running_loop(), Capture(output_limit), LiveOutput(report)

    def receive(data: bytes) -> None:
        capture.add(data)
        live_output.add(data)

    read_end, write_end = os.pipe()
    pipe = os.fdopen(read_end, "rb", buffering=0)
    try:
        transport, output = await loop.connect_read_pipe(lambda: ProcessOutput(receive), pipe)
    except BaseException:
        pipe.close()
        os.close(write_end)
        raise
    try:
        try:
            group = Group(["/bin/sh", "-c", command], cwd=folder, env=environment, output=write_end)
        except OSError as error:
            raise ToolError(f"The command could not be started: {error}.") from error
        finally:
            os.close(write_end)
        timed_out = False
        try:
            async with asyncio.timeout(timeout):
                await group.exited.wait()
        except TimeoutError:
            timed_out = True
        finally:
            await finished(group.end(output.closed))
        return CommandOutcome(group.exit_code, capture.text(), timed_out)
    finally:
        live_output.close()
        transport.close()
