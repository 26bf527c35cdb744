"""JSON-RPC 2.0 between two peers, one message a line: either side may call the other."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

import msgspec

from toolspeak.data.messages import JSON
from toolspeak.errors import ConfigurationError, ToolspeakError

_LOG = logging.getLogger("toolspeak.acp")

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
AUTH_REQUIRED = -32000
NOT_FOUND = -32002

MOST_OPEN = 64
"""How many requests of the other side may be open at once."""

ParamsT = TypeVar("ParamsT")


class RpcError(ToolspeakError):
    """A request failed, here or at the other side; `code` is JSON-RPC's, `data` says more for programs."""

    def __init__(self, message: str, code: int = INVALID_REQUEST, data: JSON = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class PeerGone(ToolspeakError):
    """The other side closed the connection."""


class Lines(Protocol):
    """Where the messages come from and go to."""

    async def read(self) -> bytes | None:
        """The next line without its end; None at the end. Raises RpcError for a line that is too long."""
        ...

    async def write(self, line: bytes) -> None:
        """Sends a line, which has its end. The line has its place among the others before the first await; returns
        when the other side has read enough of what came before. Raises PeerGone."""
        ...


class _MessageFilter(msgspec.Struct):
    """A message of the other side: a request, a notification or a response."""

    id: int | float | str | msgspec.UnsetType | None = msgspec.UNSET
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


Handler = Callable[[str, msgspec.Raw], Awaitable[JSON]]
"""Answers a request or takes a notification, by its method and its parameters. Raises RpcError."""

_MESSAGES = msgspec.json.Decoder(_MessageFilter)


def params_as(kind: type[ParamsT], params: msgspec.Raw) -> ParamsT:
    """The parameters of a request. Raises RpcError with the place of what does not fit."""
    try:
        return msgspec.json.decode(params, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RpcError(f"the parameters do not fit: {error}", INVALID_PARAMS) from None


class Peer:
    """One end of a connection. `serve` reads until the other side closes it; `handle` answers its requests, each in a
    task of its own, which begins in the order of the requests."""

    def __init__(self, lines: Lines, handle: Handler) -> None:
        self._lines = lines
        self._handle = handle
        self._calls: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._last_id = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Reads messages until the end of the stream. Then the requests to the other side are over."""
        try:
            while True:
                try:
                    line = await self._lines.read()
                    if line is None:
                        return
                    if line.strip():
                        await self._take(line)
                except RpcError as error:
                    await self._respond(None, error)
        except PeerGone:
            pass
        finally:
            for future in self._calls.values():
                if not future.done():
                    future.set_exception(PeerGone("the editor closed the connection"))
                    future.exception()  # nobody may wait for it any more

    async def finish(self, seconds: float) -> None:
        """Answers the open requests, for at most so long, and drops the others."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def call(self, method: str, params: Mapping[str, JSON]) -> msgspec.Raw:
        """Sends a request and returns its result. Raises RpcError if the other side refuses, PeerGone if it leaves."""
        self._last_id += 1
        number = self._last_id
        future = self._calls[number] = asyncio.get_running_loop().create_future()
        try:
            await self._lines.write(
                encode_message({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            )
            return await future
        finally:
            del self._calls[number]

    async def notify(self, method: str, params: Mapping[str, JSON]) -> None:
        """Sends a notification. Waits while the other side reads slowly. Raises PeerGone."""
        await self._lines.write(encode_message({"jsonrpc": "2.0", "method": method, "params": params}))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Does work beside the requests, until it is done or the connection ends."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, PeerGone):
            _LOG.error("a task of the connection failed", exc_info=error)

    async def _take(self, line: bytes) -> None:
        try:
            message = _MESSAGES.decode(line)
        except msgspec.ValidationError as error:
            raise RpcError(f"not a JSON-RPC message: {error}", INVALID_REQUEST) from None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise RpcError(f"not JSON: {error}", PARSE_ERROR) from None
        if message.method is not None:
            if message.id is msgspec.UNSET:
                self.start(self._take_notification(message.method, message.params))
            elif len(self._tasks) >= MOST_OPEN:
                text = f"{MOST_OPEN} requests are open already: wait for an answer first"
                await self._respond(message.id, RpcError(text, INVALID_REQUEST))
            else:
                self.start(self._answer(message.id, message.method, message.params))
            return
        future = self._calls.get(message.id) if isinstance(message.id, int) else None
        if future is None:
            if message.id is msgspec.UNSET or (message.result is msgspec.UNSET and message.error is msgspec.UNSET):
                raise RpcError("not a JSON-RPC message: it has no method, and no result or error", INVALID_REQUEST)
            _LOG.info("the editor answered request %r, which is not open", message.id)
        elif future.done():
            _LOG.info("the editor answered request %r twice", message.id)
        elif message.error is not msgspec.UNSET:
            future.set_exception(_their_error(message.error))
            future.exception()  # the caller may have been cancelled
        else:
            future.set_result(msgspec.Raw(b"null") if message.result is msgspec.UNSET else message.result)

    async def _answer(self, number: float | str | None, method: str, params: msgspec.Raw) -> None:
        try:
            outcome = await self._handle(method, params)
        except PeerGone:
            return
        except RpcError as error:
            outcome = error
        except ToolspeakError as error:
            is_callers = isinstance(error, ConfigurationError)
            outcome = RpcError(str(error), INVALID_PARAMS if is_callers else INTERNAL_ERROR)
        except Exception as error:  # noqa: BLE001 - one request must not end the others
            _LOG.exception("%s failed", method)
            outcome = RpcError(f"{type(error).__name__}: {error}", INTERNAL_ERROR)
        await self._respond(number, outcome)

    async def _take_notification(self, method: str, params: msgspec.Raw) -> None:
        try:
            await self._handle(method, params)
        except ToolspeakError as error:
            _LOG.info("notification %s: %s", method, error)
        except Exception:  # noqa: BLE001 - as above
            _LOG.exception("notification %s failed", method)

    async def _respond(self, number: float | str | None, outcome: JSON | RpcError) -> None:
        response: dict[str, JSON] = {"jsonrpc": "2.0", "id": number}
        if isinstance(outcome, RpcError):
            response["error"] = {"code": outcome.code, "message": str(outcome)}
            if outcome.data is not None:
                response["error"]["data"] = outcome.data
        else:
            response["result"] = outcome
        await self._lines.write(encode_message(response))


class _TheirError(msgspec.Struct):
    code: int = INTERNAL_ERROR
    message: str = ""


def _their_error(raw: msgspec.Raw) -> RpcError:
    try:
        error = msgspec.json.decode(raw, type=_TheirError)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return RpcError("the editor refused, without saying why", INTERNAL_ERROR)
    return RpcError(error.message or f"the editor refused (code {error.code})", error.code)


def encode_message(message: Mapping[str, JSON]) -> bytes:
    """The message as a line. What JSON or UTF-8 cannot hold (NaN, lone surrogates) is replaced."""
    try:
        return msgspec.json.encode(message) + b"\n"
    except (TypeError, ValueError, OverflowError):  # UnicodeEncodeError is a ValueError
        return json.dumps(_plain(message), ensure_ascii=False).encode() + b"\n"


def _plain(value: JSON) -> JSON:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case float() if not math.isfinite(value):
            return None
        case Mapping():
            return {_plain(str(key)): _plain(item) for key, item in cast("Mapping[Any, JSON]", value).items()}
        case Sequence():
            return [_plain(item) for item in cast("Sequence[JSON]", value)]
        case bool() | int() | float() | None:
            return value
        case _:
            return str(value)
