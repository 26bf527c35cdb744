"""Tasks of a server (an extension of 2026-07-28): it answers a call with a handle, and has the result later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from mcp import MCPError, types
from pydantic import BaseModel, TypeAdapter

from toolspeak.errors import ToolError
from toolspeak.tools.files.text_format import visible

EXTENSION = "io.modelcontextprotocol/tasks"

_USUAL_POLL, _LEAST_POLL, _MOST_POLL = 1.0, 0.05, 30.0
"""Seconds between two looks at a task: if the server does not say, and what it may say."""

_GOODBYE = 1.0
"""Seconds to tell the server that a task is not needed any more."""

_ResultT = TypeVar("_ResultT", bound=BaseModel)


class TaskHandle(types.Result):
    """A server's answer to a call that it goes on with by itself."""

    result_type: Literal["task"]
    task_id: str
    status: str = "working"
    poll_interval_ms: int | None = None


class TaskState(types.Result):
    """How a task stands."""

    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str | None = None
    poll_interval_ms: int | None = None
    input_requests: types.InputRequests | None = None
    result: dict[str, Any] | None = None
    error: types.ErrorData | None = None


class _TaskParams(types.RequestParams):
    task_id: str


class _UpdateParams(_TaskParams):
    input_responses: types.InputResponses


class GetTask(types.Request[_TaskParams, Literal["tasks/get"]]):
    name_param: ClassVar[str | None] = "taskId"
    method: Literal["tasks/get"] = "tasks/get"
    params: _TaskParams


class UpdateTask(types.Request[_UpdateParams, Literal["tasks/update"]]):
    name_param: ClassVar[str | None] = "taskId"
    method: Literal["tasks/update"] = "tasks/update"
    params: _UpdateParams


class CancelTask(types.Request[_TaskParams, Literal["tasks/cancel"]]):
    name_param: ClassVar[str | None] = "taskId"
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: _TaskParams


class SendRequest(Protocol):
    """Sends a request to the server."""

    def __call__(
        self, request: types.Request[Any, Any], result_type: type[_ResultT] | TypeAdapter[_ResultT], /
    ) -> Awaitable[_ResultT]: ...


async def result_of_task(
    handle: TaskHandle,
    send: SendRequest,
    answers: Callable[[types.InputRequests], Awaitable[types.InputResponses | None]],
    report: Callable[[str], None] | None,
) -> types.CallToolResult:
    """Looks at a task until it has ended. Cancelling this cancels the task.

    `answers`: answers what the task asks; None if nobody can be asked.

    Raises MCPError and ValidationError as a call does, and ToolError for a task that has no result.
    """
    params, interval, message = _TaskParams(task_id=handle.task_id), handle.poll_interval_ms, ""
    try:
        while True:
            seconds = _USUAL_POLL if interval is None else interval / 1000
            await asyncio.sleep(min(max(seconds, _LEAST_POLL), _MOST_POLL))
            state = await send(GetTask(params=params), TaskState)
            interval = state.poll_interval_ms if state.poll_interval_ms is not None else interval
            if report is not None and state.status_message and state.status_message != message:
                message = state.status_message
                report(message)
            if state.status == "completed":
                return types.CallToolResult.model_validate(state.result or {}, by_name=False)
            if state.status == "failed":
                raise MCPError.from_error_data(state.error or types.ErrorData(code=0, message="the task failed"))
            if state.status == "cancelled":
                raise ToolError(
                    f"the server cancelled the task: {visible(state.status_message or 'it says no reason')}"
                )
            if state.status == "input_required" and state.input_requests:
                responses = await answers(state.input_requests)
                if responses is None:
                    raise ToolError("the server's task asks for input from a person, which is not possible here")
                update = _UpdateParams(task_id=handle.task_id, input_responses=responses)
                await send(UpdateTask(params=update), types.EmptyResult)
    except (asyncio.CancelledError, ToolError):
        goodbye = asyncio.ensure_future(send(CancelTask(params=params), types.EmptyResult))
        await asyncio.wait([goodbye], timeout=_GOODBYE)
        if not goodbye.cancel() and not goodbye.cancelled():
            goodbye.exception()  # marks it as retrieved: the server may not know the task any more
        raise
