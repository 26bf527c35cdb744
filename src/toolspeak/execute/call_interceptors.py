"""Wrapping every call with one's own code: before it is admitted, around its function, after its result.

Interceptors see placeholders, never secrets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

from toolspeak.data.messages import ToolCall, ToolResult, failure
from toolspeak.errors import ConfigurationError
from toolspeak.execute.batch_context import BatchContext
from toolspeak.execute.hooks import Answer, Block, HookContext, HookError, HookNotes, InterceptorChain, Level

Verdict: TypeAlias = ToolCall | Block | Answer

Proceed: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]
"""Runs the call: the interceptors further in, then the function. Takes the call `around` was given."""


class Interceptor(Protocol):
    """Lets every call pass as it is; subclass it and override, or have the same attributes.

    The highest `priority` is outermost: its `before` and `around` come first, its `after` last; equals keep
    the order they were given in. An exception in one fails that call alone, with a message that names the
    interceptor's class; it is recorded (`InterceptorFailed`). `AgentStop` ends the run. Nothing is remembered of
    `before` while a run waits for approvals: it is asked again.

    `before` sees every call that can be read, one of an unknown tool too: it may name another. `after` sees every call
    that was let pass, also one that could not run (the result's `code` says why): of what cannot be read as a call
    `arguments` are empty, and `extra["malformed"]` is what the model wrote.
    """

    level: Level = "call"
    priority: int = 0

    async def before(self, call: ToolCall, context: HookContext) -> Verdict:
        """The call to go on with (changed or not, with the same id), a Block or an Answer."""
        return call

    async def around(self, call: ToolCall, proceed: Proceed, context: HookContext) -> ToolResult:
        """The call's result. What runs is what was approved: a call is changed in `before`."""
        return await proceed(call)

    async def after(self, call: ToolCall, result: ToolResult, context: HookContext) -> ToolResult:
        """The result to record, whole: it is shortened for the model afterwards."""
        return result


def chain_of(
    call: ToolCall, pipeline: Sequence[Interceptor], context: BatchContext, notes: HookNotes
) -> InterceptorChain[ToolCall, ToolResult]:
    """The call's way through the interceptors; what they leave behind is in `notes`."""

    def seen_by(name: str) -> HookContext:
        notes.last = name
        return HookContext(
            context.run_id, context.step, context.deps, context.memory, context.state, notes, name, call.id
        )

    def check(verdict: object) -> ToolCall:
        if not isinstance(verdict, ToolCall):
            raise ConfigurationError(f"before returns a ToolCall, a Block or an Answer, not {type(verdict).__name__}")
        if verdict.id != call.id:
            raise ConfigurationError(f"before keeps the call's id {call.id!r}, it gave {verdict.id!r}")
        if verdict.repaired_from != call.repaired_from:
            raise ConfigurationError("before keeps repaired_from: what was repaired stays so")
        return verdict

    def own(result: object) -> ToolResult:
        if not isinstance(result, ToolResult):
            raise ConfigurationError(f"around and after return a ToolResult, not {type(result).__name__}")
        if result.call_id == call.id and result.name == call.name:
            return result
        return replace(result, call_id=call.id, name=call.name)

    def contain(error: HookError) -> ToolResult:
        return hook_failure(call, error, notes)

    return InterceptorChain(pipeline, "call", seen_by, check, own, contain)


def hook_failure(call: ToolCall, error: HookError, notes: HookNotes) -> ToolResult:
    """The failure of a call whose interceptor failed; noted."""
    notes.failed.append(error.fact(call.id))
    return failure(call, "exception", str(error))
