"""Entering one tool's function: its context, its thread or coroutine, its time."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Mapping
from functools import partial
from inspect import isawaitable
from typing import Any

from toolspeak.data.messages import ToolCall
from toolspeak.execute.batch import BatchContext
from toolspeak.execute.secrets import Secrets
from toolspeak.execute.threads import Outcome, call_in_loop, in_thread
from toolspeak.tools.context import RunContext
from toolspeak.tools.tool import Tool


async def invoke(
    tool: Tool,
    call: ToolCall,
    arguments: Mapping[str, Any],
    *,
    key: str,
    seconds: float | None,
    context: BatchContext,
    secrets: Secrets,
    ended: threading.Event,
) -> tuple[Outcome, bool]:
    """What the tool's function returned or raised, and whether it was told to stop because `seconds` were over.

    An async function is cancelled then, and has ended when this returns; a synchronous one is abandoned in
    its thread, where `RunContext.cancelled` turns true; `ended` is set once it does end. Raises CancelledError
    alone.
    """
    given_up = threading.Event()
    if tool.context_parameter is not None:
        wanted: RunContext[Any] = RunContext(
            deps=context.deps,
            call=call,
            idempotency_key=key,
            state=context.state,
            memory=context.memory,
            progress=_progress(context.progress, call.id, secrets, given_up),
            cancelled=given_up.is_set,
        )
        arguments = {**arguments, tool.context_parameter: wanted}
    limit = asyncio.timeout(None if seconds is None or math.isinf(seconds) else seconds)
    try:
        async with limit:
            outcome = await _enter(tool, partial(tool.function, **arguments), ended)
    except TimeoutError as error:
        outcome = Outcome(error=error)
    finally:
        given_up.set()
    return outcome, limit.expired()


async def _enter(tool: Tool, function: Callable[[], Any], ended: threading.Event) -> Outcome:
    def entered() -> Any:
        try:
            return function()
        finally:
            ended.set()

    try:
        if tool.is_async:
            return Outcome(await function())
        outcome = await in_thread(entered)
        if isawaitable(outcome.value):
            return Outcome(await outcome.value)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - the executor decides what each exception means
        return Outcome(error=error)
    return outcome


def _progress(
    report: Callable[[str, str], None], call_id: str, secrets: Secrets, given_up: threading.Event
) -> Callable[[str], None]:
    loop, home = asyncio.get_running_loop(), threading.get_ident()

    def progress(message: str) -> None:
        if given_up.is_set():
            return
        message = secrets.hide_text(message)
        if threading.get_ident() == home:
            report(call_id, message)
        else:
            call_in_loop(loop, report, call_id, message)

    return progress
