"""Requests about stored responses, and responses in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from urllib.parse import parse_qsl

from toolspeak.data.deltas import TurnEnded
from toolspeak.data.messages import JSON
from toolspeak.gateway.client_request import Request
from toolspeak.gateway.http.asgi import AsgiMessage
from toolspeak.gateway.http.error_responses import Failure, failure_of, gateway_stopped
from toolspeak.gateway.stored.response_memory import PATH, ResponseMemory, ResponseStorage
from toolspeak.providers.http_client import json_bytes
from toolspeak.wire.base import WireRequest

_OFF = "no responses are stored here; send the whole conversation as 'input', or ask the operator to set [responses]"


async def answer_about(memory: ResponseMemory | None, request: Request) -> None:
    """Answers `GET` and `DELETE /v1/responses/ID`, `GET …/input_items` and `POST …/cancel`. Raises Failure."""
    if memory is None:
        raise Failure(404, _OFF, "responses_not_kept")
    method, owner = request.scope["method"], request.owner
    response_id, _, what = request.path.removeprefix(PATH).partition("/")
    query = dict(parse_qsl(request.scope["query_string"].decode("latin-1")))
    body: JSON
    match method, what:
        case "GET", "":
            if query.get("stream", "").lower() == "true":
                raise Failure(
                    400,
                    "stream: events are not stored here; ask without it until the status is final",
                    "invalid_request",
                )
            body = await memory.retrieve(owner, response_id)
        case "DELETE", "":
            body = await memory.delete(owner, response_id)
        case "GET", "input_items":
            body = await memory.input_items(owner, response_id, query)
        case "POST", "cancel":
            body = await memory.cancel(owner, response_id)
        case _, "" | "input_items" | "cancel":
            raise Failure(405, f"{method} is not supported here; see the API's reference", "method_not_allowed")
        case _:
            raise Failure(404, f"there is nothing at {request.path}", "not_found")
    await request.respond(200, json_bytes(body))


async def begin_background(
    memory: ResponseMemory,
    request: Request,
    wire_request: WireRequest,
    work: Callable[[Request], Awaitable[None]],
    finish: Callable[[Request], None],
) -> None:
    """Answers with a queued response, and starts `work` for it; `finish` is called at the end. Raises Failure."""
    keeping = request.keeping
    assert keeping is not None, "the request asks for the background"
    encoder = request.wire.encoder(wire_request, response_id=keeping.response_id, created_at=int(request.arrived_at))
    _, created_event = encoder.feed(TurnEnded("stop"))[0]
    body = await memory.begin(keeping, created_event["response"])
    assert request.account is not None, "a request that has a place has one"
    account = request.account.handed_on()
    facts: dict[str, object] = {"response": keeping.response_id}
    run = replace(request, receive=_never, send=_nowhere, runs=True, facts=facts, account=account)
    task = asyncio.get_running_loop().create_task(_run(memory, run, keeping, body, work, finish))
    memory.runs[keeping.response_id] = task
    task.add_done_callback(lambda _: memory.runs.pop(keeping.response_id, None))
    task.add_done_callback(lambda _: account.settle())  # also if it is cancelled before its first step
    await request.respond(200, json_bytes(body))


async def _run(
    memory: ResponseMemory,
    run: Request,
    keeping: ResponseStorage,
    body: JSON,
    work: Callable[[Request], Awaitable[None]],
    finish: Callable[[Request], None],
) -> None:
    """Runs the work; its failure ends the response."""
    failure: Failure | None = None
    try:
        await work(run)
    except asyncio.CancelledError:  # by its client, which has ended the response, or by the end of the gateway
        failure = gateway_stopped()
    except Exception as error:  # noqa: BLE001 - it ends the response
        failure = failure_of(error, run.id)
    if failure is not None:
        run.status = failure.status
        run.facts.update(error=failure.cause, code=failure.code)
    finish(run)
    if failure is not None:
        await memory.fail(keeping.response_id, body, failure)


async def _never() -> AsgiMessage:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("this client stays")


async def _nowhere(_message: AsgiMessage) -> None:
    return None
