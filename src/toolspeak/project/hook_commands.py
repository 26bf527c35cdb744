"""Runs the commands of hooks, and reads their answers."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Literal, cast

from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.project.hook_settings import CommandHook
from toolspeak.sandbox.processes import DRAIN, Group, ProcessOutput, finish_work, within
from toolspeak.tools.builtin.capture import Capture
from toolspeak.tools.files.text_format import visible

MOST_OUTPUT = 1024 * 1024
"""How many bytes of each output of a hook are read; of a longer one its beginning and its end."""

MOST_CONTEXT = 16 * 1024
"""How many characters of a hook's texts the model reads."""

_BLOCKS = 2
"""The exit code of a hook that blocks."""

_TEXT_IS_CONTEXT = frozenset(("SessionStart", "UserPromptSubmit"))
"""Events whose hooks need not write JSON: what they write is context for the model."""


@quick()
class HookAnswer:
    """What a hook answers.

    - `decision`: about the call. "deny" blocks what an event without a call is about.
    - `arguments`: the arguments to call the tool with; None leaves them.
    - `context`: what the model reads besides.
    - `message`: what the person reads.
    - `stop`: why the run ends; None if it goes on.
    - `problem`: what went wrong with the hook, for the person.
    """

    hook: CommandHook
    decision: Literal["", "allow", "deny", "ask"] = ""
    reason: str = ""
    arguments: Mapping[str, JSON] | None = None
    context: str = ""
    message: str = ""
    stop: str | None = None
    problem: str = ""

    @property
    def name(self) -> str:
        """The hook as people and models read it."""
        return visible(f"{self.hook.event} hook `{self.hook.command[:80]}`").replace("\n", " ")


async def run_hooks(
    hooks: Sequence[tuple[CommandHook, Mapping[str, JSON]]], folder: str, environment: Mapping[str, str]
) -> list[HookAnswer]:
    """Runs hooks of one event at the same time, each with its data as JSON on its standard input. Returns their
    answers, in order. A hook that fails has a problem; nothing is raised.

    - `folder`: where they run.
    - `environment`: their environment variables.
    """
    return list(await asyncio.gather(*(_run(hook, data, folder, environment) for hook, data in hooks)))


async def _run(hook: CommandHook, data: Mapping[str, JSON], folder: str, environment: Mapping[str, str]) -> HookAnswer:
    text = json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
    output, errors = Capture(MOST_OUTPUT), Capture(MOST_OUTPUT)
    try:
        exit_code, is_late = await _communicate(hook, text, folder, environment, output, errors)
    except OSError as error:
        return HookAnswer(hook, problem=f"could not be started: {error.strerror}")
    if is_late:
        return HookAnswer(hook, problem=f"was ended after {hook.timeout:g} seconds; give it a longer timeout")
    if exit_code == _BLOCKS:
        return HookAnswer(hook, "deny", _cut(errors.text()) or "it gives no reason")
    if exit_code != 0:
        why = visible((errors.text().strip() or output.text().strip())[:500])
        return HookAnswer(hook, problem=f"ended with exit code {exit_code}" + (f": {why}" if why else ""))
    return answer_of(hook, output.text().strip())


async def _communicate(
    hook: CommandHook,
    text: bytes,
    folder: str,
    environment: Mapping[str, str],
    output: Capture,
    errors: Capture,
) -> tuple[int | None, bool]:
    """Runs a command. Returns its exit code, and whether it reached its time limit. All its processes have ended."""
    loop, pipe = asyncio.get_running_loop(), subprocess.PIPE
    command = ["/bin/sh", "-c", hook.command]
    group = Group(command, cwd=folder, env=environment, output=pipe, errors=pipe, input=pipe)
    readers = (ProcessOutput(output.add), ProcessOutput(errors.add))
    with ExitStack() as pipes:
        is_late = False
        try:
            for stream, reader in zip((group.output, group.errors), readers, strict=True):
                assert stream is not None, "it is a pipe"
                pipes.callback(stream.close)
                transport, _ = await loop.connect_read_pipe(lambda each=reader: each, stream)
                pipes.callback(transport.close)
            assert group.input is not None, "it is a pipe"
            pipes.callback(group.input.close)
            writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, group.input)
            pipes.callback(_close, writer)
            # A hook need not read it all: what does not fit into the pipe waits in the transport, until the hook ends.
            writer.write(text)
            writer.write_eof()
            async with asyncio.timeout(hook.timeout):
                await group.exit_event.wait()
        except TimeoutError:
            is_late = True
        finally:
            await finish_work(_end(group, readers))
        return group.exit_code, is_late


def _close(pipe: asyncio.WriteTransport) -> None:
    if pipe.get_write_buffer_size():
        pipe.abort()  # the hook did not read the rest
    pipe.close()


async def _end(group: Group, readers: Sequence[ProcessOutput]) -> None:
    await group.end(readers[0].output_end)
    await within(DRAIN, readers[1].output_end.wait())


def answer_of(hook: CommandHook, text: str) -> HookAnswer:
    """The answer of a hook that ended with exit code 0 and wrote this."""
    if not text.startswith("{"):
        return HookAnswer(hook, context=_cut(text) if hook.event in _TEXT_IS_CONTEXT else "")
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        return HookAnswer(hook, problem=f"wrote what is not JSON: {visible(str(error)[:200])}")
    fields = cast("Mapping[str, Any]", value)
    problems = list[str]()

    def object_of(source: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
        member: Any = source.get(name)
        if member is None or isinstance(member, Mapping):
            return cast("Mapping[str, Any] | None", member)
        problems.append(f"wrote a {name} that is not an object")
        return None

    def text_of(name: str, *sources: Mapping[str, Any]) -> str:
        values = [source[name] for source in sources if source.get(name) is not None]
        if values and not isinstance(values[0], str):
            problems.append(f"wrote a {name} that is not a text")
            return ""
        return _cut(values[0]) if values else ""

    output = object_of(fields, "hookSpecificOutput") or {}
    verdict = object_of(output, "decision") or {}  # of PermissionRequest
    choice: Any = output.get("permissionDecision") or verdict.get("behavior") or fields.get("decision") or ""
    decision = _DECISIONS.get(choice) if isinstance(choice, str) else None
    if decision is None:
        problems.append(f"wrote the decision {visible(repr(choice)[:80])}, which is not allow, deny or ask")
    source = output if "updatedInput" in output else verdict
    arguments = object_of(source, "updatedInput")
    if decision is None or (arguments is None and source.get("updatedInput") is not None):
        decision = "ask"  # it wanted to decide, or to change what runs
    reason = (
        text_of("permissionDecisionReason", output) or text_of("message", verdict) or text_of("reason", fields, output)
    )
    stop = None
    if fields.get("continue") is False or (verdict.get("interrupt") is True and decision == "deny"):
        stop = text_of("stopReason", fields) or reason or "a hook ends the run"
    context, message = text_of("additionalContext", output, fields), text_of("systemMessage", fields)
    return HookAnswer(hook, decision, reason, arguments, context, message, stop, "; ".join(problems))


_DECISIONS: Mapping[str, Literal["", "allow", "deny", "ask"]] = {
    "": "",
    "allow": "allow",
    "approve": "allow",
    "ask": "ask",
    "block": "deny",
    "defer": "",
    "deny": "deny",
}


def _cut(text: str) -> str:
    text, more = text.strip(), len(text.strip()) - MOST_CONTEXT
    return text if more <= 0 else f"{text[:MOST_CONTEXT]}\n[{more:,} characters are left out]"
