"""Wrapping every call with one's own code: before it is admitted, around its function, after its result.

Interceptors see placeholders, never secrets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, cast

from toolspeak.data.messages import ToolCall, ToolResult, failure
from toolspeak.errors import UsageError
from toolspeak.execute.batch import BatchContext
from toolspeak.execute.results import describe


@dataclass(frozen=True, slots=True)
class Block:
    """The call does not run; the reason goes to the model."""

    reason: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The call does not run; the value is its result, as if the tool had returned it."""

    value: Any


Verdict: TypeAlias = ToolCall | Block | Answer

Proceed: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]
"""Runs the call: the interceptors further in, then the function. Takes the call `around` was given."""


class Interceptor(Protocol):
    """Lets every call pass as it is; subclass it and override, or have the same attributes.

    The highest `priority` is outermost: its `before` and `around` come first, its `after` last; equals keep
    the order they were given in. An exception in one fails that call alone, with a message that names the
    interceptor's class. Nothing is remembered of `before` while a run waits for approvals: it is asked again.
    """

    priority: int = 0

    async def before(self, call: ToolCall, context: BatchContext) -> Verdict:
        """The call to go on with (changed or not, with the same id), a Block or an Answer."""
        return call

    async def around(self, call: ToolCall, proceed: Proceed) -> ToolResult:
        """The call's result. What runs is what was approved: a call is changed in `before`."""
        return await proceed(call)

    async def after(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """The result to record, whole: it is shortened for the model afterwards."""
        return result


def in_order(pipeline: Sequence[Interceptor]) -> tuple[Interceptor, ...]:
    """The interceptors, the outermost first."""
    return tuple(sorted(pipeline, key=lambda interceptor: -interceptor.priority))


async def run_before(
    pipeline: Sequence[Interceptor], call: ToolCall, context: BatchContext
) -> ToolCall | Answer | ToolResult:
    """The call to go on with, the value that answers it, or the failure it ends in."""
    for interceptor in pipeline:
        try:
            verdict = cast("object", await interceptor.before(call, context))
            if isinstance(verdict, Block):
                return failure(call, "blocked", verdict.reason)
            if isinstance(verdict, Answer):
                return verdict
            if not isinstance(verdict, ToolCall):
                raise UsageError(f"before returns a ToolCall, a Block or an Answer, not {type(verdict).__name__}")
            if verdict.id != call.id:
                raise UsageError(f"before keeps the call's id {call.id!r}, it gave {verdict.id!r}")
        except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises is this call's failure
            return _broken(interceptor, call, error)
        call = verdict
    return call


async def run_around(
    pipeline: Sequence[Interceptor], call: ToolCall, innermost: Callable[[], Awaitable[ToolResult]]
) -> ToolResult:
    """The call's result with every `around` around `innermost`, then through every `after`."""
    if not pipeline:
        return await innermost()
    for interceptor in reversed(pipeline):
        innermost = _wrapped(interceptor, call, innermost)
    result = await innermost()
    for interceptor in reversed(pipeline):
        try:
            result = _own(call, await interceptor.after(call, result))
        except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises is this call's failure
            result = _broken(interceptor, call, error, ran=True)
    return result


def _wrapped(
    interceptor: Interceptor, call: ToolCall, inner: Callable[[], Awaitable[ToolResult]]
) -> Callable[[], Awaitable[ToolResult]]:
    async def run() -> ToolResult:
        ran = False

        async def proceed(given: ToolCall) -> ToolResult:
            nonlocal ran
            if given is not call and given != call:
                raise UsageError("around proceeds with the call it was given; change it in before")
            result = await inner()
            ran = True
            return result

        try:
            return _own(call, await interceptor.around(call, proceed))
        except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises is this call's failure
            return _broken(interceptor, call, error, ran=ran)

    return run


def _own(call: ToolCall, result: object) -> ToolResult:
    if not isinstance(result, ToolResult):
        raise UsageError(f"around and after return a ToolResult, not {type(result).__name__}")
    if result.call_id == call.id and result.name == call.name:
        return result
    return replace(result, call_id=call.id, name=call.name)


def _broken(interceptor: Interceptor, call: ToolCall, error: Exception, *, ran: bool = False) -> ToolResult:
    told = " (the tool itself had run)" if ran else ""
    return failure(call, "exception", f"the interceptor {type(interceptor).__name__} failed{told}: {describe(error)}")
