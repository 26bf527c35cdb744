"""`shell`: runs a command line in the workspace folder."""

from __future__ import annotations

import asyncio
import fnmatch
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Protocol

from toolspeak.data.tools import EVERYTHING, NO_VERSION, WEB, Effects, with_sources
from toolspeak.data.values import quick
from toolspeak.errors import SandboxError, ToolError
from toolspeak.sandbox.base import Confinement, ProcessCommand, Sandbox
from toolspeak.sandbox.command_sandbox import CommandSandbox
from toolspeak.sandbox.no_sandbox import NoSandbox
from toolspeak.sandbox.process_default import default_level, default_sandbox
from toolspeak.sandbox.processes import ProcessOutput, finish_work
from toolspeak.tools import RunContext, Tool, tool
from toolspeak.tools.builtin.capture import Capture, printed_text
from toolspeak.tools.builtin.live_output import LiveOutput
from toolspeak.tools.files.text_format import quote_path, visible
from toolspeak.tools.files.workspace import Workspace
from toolspeak.tools.returned_values import ReturnValue, to_content

OUTPUT_LIMIT = 16 * 1024
"""The most bytes of output in a result. Of a longer output it holds the beginning and the end, each half of them."""

INHERITED_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "TMPDIR")
"""Environment variables that every command gets, as shell patterns. The caller may name more. A list of forbidden names
instead would expose every secret with another name (DATABASE_URL, SSH_AUTH_SOCK)."""

_MOST_NAME = 80
"""Characters of the command line of a process that was ended."""

ALL_EFFECTS = Effects(reads={EVERYTHING}, writes={EVERYTHING}, external=True)

_NO_NETWORK = re.compile(
    r"could not resolve|couldn't resolve|name or service not known|temporary failure in name resolution|"
    r"network is unreachable|ENOTFOUND|EAI_AGAIN|getaddrinfo|no address associated|could not connect|couldn't connect",
    re.IGNORECASE,
)
"""How programs say that there is no network."""


@quick()
class CommandOutcome:
    """A command that has ended.

    - `exit_code`: None if it has none.
    - `output`: what it wrote.
    - `timed_out`: it was ended at its time limit.
    - `notes`: what its sandbox has to say.
    - `left_commands`: the command lines of processes that still ran when it had exited, and were ended with it.
    """

    exit_code: int | None
    output: str
    timed_out: bool
    notes: tuple[str, ...] = ()
    left_commands: Sequence[str] = ()


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
    sandbox: CommandSandbox | None = None,
) -> Tool:
    """The tool `shell`. Without a sandbox a command has all rights of the user: it only starts in the workspace. In a
    worker it has the worker's sandbox.

    `output_limit`: the most bytes of output in a result.
    `env`: the names of environment variables that a command gets besides `INHERITED_VARIABLES`.
    `run_command`: runs the commands elsewhere. None: in this process's children. A sandbox comes first.
    `sandbox`: what commands may touch. The model then says what a command changes, and the sandbox holds it to that.
    """
    root = str(workspace.root)
    command_sandbox = sandbox if sandbox is not None and sandbox.is_enforced else None

    async def run(
        command: str, cwd: str, ctx: RunContext[Any], timeout: float, confinement: Confinement | None
    ) -> dict[str, Any] | ReturnValue:
        _check(command)
        if not timeout > 0:
            raise ToolError(f"'timeout' is {timeout:g}: give a number of seconds above 0.")
        folder = _folder(workspace, cwd)
        environment = command_environment(folder, env)
        default = default_sandbox() if sandbox is None else sandbox
        if run_command is not None and (default is None or not default.is_enforced):
            outcome = await run_command(
                command,
                folder=folder,
                environment=environment,
                timeout=timeout,
                limit=output_limit,
                ctx=ctx,
            )
        else:
            place = NoSandbox() if default is None else default.sandbox
            outcome = await _run(command, folder, timeout, output_limit, environment, place, confinement, ctx.progress)
        result: dict[str, Any] = {"exit_code": outcome.exit_code, "output": printed_text(outcome.output)}
        if outcome.timed_out:
            result["timed_out"] = f"ended after {timeout:g} seconds; pass a longer timeout if it needs more time"
        if outcome.left_commands:
            result["background"] = _ended_note(outcome.left_commands)
        notes = list(outcome.notes)
        had_network = confinement is None or confinement.hosts != ()
        if sandbox is not None and not had_network and outcome.exit_code and _NO_NETWORK.search(outcome.output):
            remedy = "tell the user to allow its host with `--allow-net HOST:PORT`"
            remedy = remedy if sandbox.hosts == () else "pass `network`: true if it needs one"
            notes.append(f"The command has no network: {remedy}.")
        if notes:
            result["sandbox"] = visible(" ".join(notes))
        if confinement is not None and confinement.hosts is None:
            # All hosts are the web. The hosts of a list are the choice of whoever runs this.
            return ReturnValue(*to_content(result), extra=with_sources({}, [WEB]))
        return result

    def plain_preview(command: str, cwd: str) -> str:
        return _preview(workspace, command, cwd)

    # No time limit for the tool: the argument limits the command, and the output until then is not lost.
    @tool(
        name="shell",
        aliases={"cmd": "command"},
        effects=ALL_EFFECTS,
        preview=plain_preview,
        timeout=math.inf,
        command_line="command",
    )
    async def shell(
        command: str, ctx: RunContext[Any], timeout: float = 60, cwd: str = ""
    ) -> dict[str, Any] | ReturnValue:
        """Run a command line with /bin/sh in the workspace folder, without input.

        Returns the exit code and the output (standard output and error together; of a long one the beginning
        and the end). What the command leaves running in the background is ended with it.

        Args:
            command: The command line.
            timeout: Seconds after which the command is ended.
            cwd: The folder to run it in, relative to the workspace.
        """
        default = default_sandbox()
        if default is None or not default.is_enforced:
            return await run(command, cwd, ctx, timeout, None)
        confinement = default.confinement(root, None, network=default.sandbox.filters_hosts or default.hosts is None)
        return await run(command, cwd, ctx, timeout, confinement)

    if sandbox is None:
        return replace(shell, sandbox=default_level)

    def effects(writes: list[str] | None, network: bool) -> Effects:
        if command_sandbox is None:
            return ALL_EFFECTS
        try:
            places = command_sandbox.places(root, writes)
        except ToolError:  # the call will fail with it
            places = (root, *command_sandbox.writable)
        only_reads = not places and not network
        return Effects(
            reads={EVERYTHING},
            writes={f"file:{place}" for place in places},
            external=network,
            idempotent=only_reads,
            destructive=not only_reads,
            version=NO_VERSION,
            approval=only_reads and not command_sandbox.unasked_reads,
        )

    def confinement_of(writes: list[str] | None, network: bool) -> Confinement | None:
        """What a command may touch; None without a sandbox. Raises ToolError for what is not to be had."""
        if command_sandbox is None:
            return None
        if network and command_sandbox.hosts == ():
            raise ToolError(
                "'network' is true, and no host is allowed here. Run the command without it, or tell the user to"
                " allow a host with `--allow-net HOST:PORT`."
            )
        if network and command_sandbox.hosts is not None and not command_sandbox.sandbox.filters_hosts:
            raise ToolError(
                f"'network' is true, and {command_sandbox.sandbox.level} cannot keep a command to a list of hosts. Run"
                " the command without it, or tell the user to install bubblewrap."
            )
        return command_sandbox.confinement(root, writes, network=network)

    def preview(command: str, writes: list[str] | None, network: bool, cwd: str) -> str:
        line = _preview(workspace, command, cwd)
        confinement_of(writes, network)  # nobody is asked about a command that would be refused
        if command_sandbox is None:
            return line
        changes = "nothing" if writes == [] else "the workspace" if writes is None else ", ".join(map(visible, writes))
        return f"{line}\n# may change: {changes}; network: {_reachable(command_sandbox) if network else 'none'}"

    @tool(
        name="shell",
        aliases={"cmd": "command"},
        effects=effects,
        effects_bound=ALL_EFFECTS,
        preview=preview,
        timeout=math.inf,
        command_line="command",
    )
    async def sandboxed_shell(
        command: str,
        ctx: RunContext[Any],
        timeout: float = 60,
        writes: list[str] | None = None,
        network: bool = False,
        cwd: str = "",
    ) -> dict[str, Any] | ReturnValue:
        """Run a command line with /bin/sh in the workspace folder, without input.

        Returns the exit code and the output (standard output and error together; of a long one the beginning
        and the end). What the command leaves running in the background is ended with it. In a sandbox, the command
        can change only what `writes` names, and temporary files in $TMPDIR.

        Args:
            command: The command line.
            timeout: Seconds after which the command is ended.
            writes: Existing files or folders that the command may change; [] if it only reads. Default: the workspace.
            network: Whether the command needs the network.
            cwd: The folder to run it in, relative to the workspace.
        """
        return await run(command, cwd, ctx, timeout, confinement_of(writes, network))

    return replace(sandboxed_shell, sandbox=sandbox.sandbox.level)


def _reachable(sandbox: CommandSandbox) -> str:
    return "all" if sandbox.hosts is None else ", ".join(map(str, sandbox.hosts)) or "none"


def _folder(workspace: Workspace, cwd: str) -> str:
    """The real path of the folder that a command runs in. Raises ToolError for one outside of the workspace, and for
    what is no folder."""
    if not cwd:
        return str(workspace.root)
    if not workspace.is_folder(cwd):
        raise ToolError(f"'cwd': {cwd!r} is no folder of the workspace: name one, or leave it out.")
    return workspace.real(cwd)


def _preview(workspace: Workspace, command: str, cwd: str) -> str:
    """The command as a person approves it, with the folder that it runs in. Raises ToolError for one that cannot
    run."""
    _check(command)
    if not cwd:
        return visible(command)
    _folder(workspace, cwd)
    return f"# in the folder: {quote_path(cwd)}\n{visible(command)}"


def _check(command: str) -> None:
    if os.name != "posix":
        raise ToolError("shell needs /bin/sh, which this system does not have.")
    if "\0" in command:
        raise ToolError("'command' contains a NUL character: leave it out.")
    try:
        command.encode()
    except UnicodeEncodeError:
        raise ToolError("'command' contains a lone surrogate: leave it out.") from None


def _ended_note(commands: Sequence[str]) -> str:
    """What a model and a person read of processes that were ended with their command."""
    names = ", ".join(visible(f"{each[:_MOST_NAME]}…" if len(each) > _MOST_NAME else each) for each in commands[:3])
    names += f" and {len(commands) - 3:,} more" if len(commands) > 3 else ""
    return (
        f"still ran in the background, and was ended with the command: {names}. Nothing runs on after a command:"
        " start a server and use it within one command."
    )


def command_environment(folder: str, env: Collection[str]) -> dict[str, str]:
    """The environment of a command in a folder: the variables of this process that every command gets, and `env`."""
    names = (*INHERITED_VARIABLES, *env)
    variables = os.environ.items()
    fitting = {name: value for name, value in variables if any(fnmatch.fnmatchcase(name, each) for each in names)}
    return {**fitting, "PWD": folder}


async def _run(
    command: str,
    folder: str,
    timeout: float,
    output_limit: int,
    environment: Mapping[str, str],
    sandbox: Sandbox,
    confinement: Confinement | None,
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
    command_line = ProcessCommand(("/bin/sh", "-c", command), folder, environment, write_end)
    timed_out, left_commands = False, list[str]()
    try:
        async with AsyncExitStack() as boundary:
            try:
                process = await boundary.enter_async_context(sandbox.start(command_line, confinement or Confinement()))
            except OSError as error:
                raise ToolError(f"The command could not be started: {error}.") from error
            except SandboxError as error:
                raise ToolError(str(error)) from error
            finally:
                os.close(write_end)
            try:
                timed_out = not await process.group.exits_within(timeout)
                left_commands = [] if timed_out else process.group.left_commands()
            finally:
                await finish_work(process.group.end(output.output_end))
        notes = tuple(process.notes)
        return CommandOutcome(process.group.exit_code, capture.text(), timed_out, notes, left_commands)
    finally:
        live_output.close()
        transport.close()
