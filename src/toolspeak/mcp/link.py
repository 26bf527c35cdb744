"""One connection to one server, from its opening to its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any, TextIO, TypeVar, cast
from urllib.parse import urlsplit

import httpx2
from mcp import Client, MCPError, StdioServerParameters, types
from mcp.client.extension import advertise
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from pydantic import TypeAdapter, ValidationError

from toolspeak.errors import McpError, ToolError
from toolspeak.mcp.answer_limits import ENCODINGS, MAX_ANSWER, limit_body
from toolspeak.mcp.incoming import MessageFilter
from toolspeak.mcp.paused_limits import PausedLimits
from toolspeak.mcp.program import start_program
from toolspeak.mcp.server_questions import ServerQuestions
from toolspeak.mcp.server_resources import list_prompts
from toolspeak.mcp.server_tasks import EXTENSION, TaskHandle, result_of_task
from toolspeak.mcp.servers_file import HttpServer, Server, ServerSandbox, StdioServer
from toolspeak.mcp.stderr import Stderr
from toolspeak.providers.trace_context import TRACE
from toolspeak.sandbox.processes import finish_work
from toolspeak.tools.files.text_format import visible
from toolspeak.version import __version__

MAX_PAGES = 100
"""The most pages of a listing: an endless one must not block the start."""

_GOODBYE = 0.3
"""Seconds that a connection has to end by itself before it is cut off: a server that does not read can keep it open
for ever. A server's process then has 2 seconds to end by itself, and 2 more after a SIGTERM (`program.py`)."""

_LISTEN_AGAIN = 5.0
"""Seconds before a lost subscription is renewed: a proxy may close a connection that is silent for long."""

ResultT = TypeVar("ResultT")

_MOST_ROUNDS = 10
"""How often a server may ask for input in one call."""

_RESULT: TypeAdapter[types.CallToolResult | types.InputRequiredResult | TaskHandle] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult | TaskHandle
)


class Link:
    """A connection to a server. One task opens, holds and closes it, since the SDK requires the same task for both.

    `on_change`: called when the server reports that its tools have changed.
    `questions`: answers what the server asks the person; None if nobody can be asked.
    """

    def __init__(
        self,
        server: Server,
        connect_timeout: float,
        on_change: Callable[[], None],
        questions: ServerQuestions | None = None,
    ) -> None:
        self.server = server
        self._questions = questions
        self._limits = PausedLimits()
        self._on_change = on_change
        self._connect_timeout = connect_timeout
        self._stderr = Stderr() if isinstance(server, StdioServer) else None
        self._client: Client | None = None
        self._ending = asyncio.Event()
        self._open_result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keeper: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._ends_process = False
        self.listed_tools: tuple[types.Tool, ...] = ()
        self.unreadable: dict[str, str] = {}
        """The names of listed tools that cannot be read, and why."""
        self.prompts: tuple[types.Prompt, ...] = ()
        self.has_resources = False
        self.boundary = ""
        """What holds the server's processes; "" for a server that is not started here."""
        self.under_way = 0
        """How many calls wait for an answer."""
        self.doubtful = False
        """A call was cancelled or ran out of time: the server may not answer any more."""

    @property
    def alive(self) -> bool:
        return self._client is not None and not self._ending.is_set()

    async def open(self) -> None:
        """Connects, and lists the server's tools (`listed_tools`). If it fails, ends the server and raises McpError."""
        self._keeper = asyncio.create_task(self._keep(), name=f"mcp {self.server.name}")
        try:
            await asyncio.shield(self._open_result)
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        """Ends the connection, and a server that was started. Returns when both are gone, within 5 seconds.
        Cancellation does not stop it: CancelledError is raised afterwards."""
        self._ending.set()
        keeper = self._keeper
        if keeper is None:
            return
        if not self._open_result.done():
            self._cut_off()
        timer = asyncio.get_running_loop().call_later(_GOODBYE, self._cut_off)
        await finish_work(_wait_for(keeper))
        timer.cancel()

    def _cut_off(self) -> None:
        # Not while the server's process is being ended: that would be cut off.
        if self._keeper is not None and not self._ends_process:
            self._keeper.cancel()

    def why(self) -> str:
        """Why the connection ended, if that is known. Call it after `close`."""
        last_words = self._stderr.text() if self._stderr is not None else ""
        reason = "" if self._failure is None else describe(self._failure)
        return "; ".join(part for part in (reason, last_words and f"its last output: {last_words}") if part)

    async def tools(self) -> tuple[types.Tool, ...]:
        """The server's tools. Raises MCPError and ValidationError."""
        client, by_name = self._open_client(), dict[str, types.Tool]()
        cursors: list[str | None] = [None]
        self.unreadable.clear()
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursors[-1], cache_mode="bypass")
            for tool in page.tools:
                if by_name.setdefault(tool.name, tool) != tool:  # a call holds only the tool's name
                    self.unreadable[visible(tool.name)] = (
                        "it is listed twice with different definitions; the first is used"
                    )
            if page.next_cursor is None or page.next_cursor in cursors:
                break
            cursors.append(page.next_cursor)
        return tuple(by_name.values())

    async def _look_around(self, client: Client) -> None:
        """Reads what the server offers besides tools. A server whose prompts cannot be listed has none."""
        capabilities = client.server_capabilities
        self.has_resources = capabilities.resources is not None
        if capabilities.prompts is not None:
            with suppress(MCPError, ValidationError):
                self.prompts = tuple(await list_prompts(client))

    async def ask(self, work: Callable[[Client], Awaitable[ResultT]], seconds: float | None) -> ResultT:
        """Does some work with the connection that changes nothing. Raises MCPError, ValidationError, TimeoutError."""
        self.under_way += 1
        try:
            async with self._limits.limit(seconds):
                return await work(self._open_client())
        finally:
            self.under_way -= 1

    async def answers(self, seconds: float) -> bool:
        """Whether the server still answers, within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._open_client().list_tools(cache_mode="bypass")
        except MCPError as error:
            return error.code != types.CONNECTION_CLOSED
        except (TimeoutError, ValidationError):
            return False
        return True

    async def call(
        self,
        name: str,
        arguments: dict[str, Any],
        report: Callable[[str], None] | None,
        seconds: float | None = None,
    ) -> types.CallToolResult:
        """The server's answer to a call. Cancelling it cancels the call in the server. `seconds`: its time limit, in
        which the person's time for answers does not count. Raises MCPError, ValidationError, TimeoutError, and
        ToolError if the server asks for input that this client cannot give."""

        # Not `Client.call_tool`: it checks results with a library that a pattern in a schema can hang.
        params = types.CallToolRequestParams(name=name, arguments=arguments)
        if trace := TRACE.get():  # the SDK replaces it by OpenTelemetry's current span, if there is one
            params.meta = cast("types.RequestParamsMeta", dict(trace))
        progress = None if report is None else _lines_to(report)
        self.under_way += 1
        try:
            async with self._limits.limit(seconds):
                for _ in range(_MOST_ROUNDS):
                    session = self._open_client().session
                    result = await session.send_request(
                        types.CallToolRequest(params=params), _RESULT, progress_callback=progress
                    )
                    if isinstance(result, types.CallToolResult):
                        return result
                    if isinstance(result, TaskHandle):
                        return await result_of_task(result, session.send_request, self._answers, report)
                    responses = await self._answers(result.input_requests or {})
                    if responses is None:
                        raise ToolError(
                            f"{about(self.server)} asks for input from a person, which is not possible here"
                        )
                    params = params.model_copy(
                        update={"input_responses": responses or None, "request_state": result.request_state}
                    )
                raise ToolError(f"{about(self.server)} asks for input again and again; the call was given up")
        except (asyncio.CancelledError, TimeoutError):
            self.doubtful = True
            raise
        finally:
            self.under_way -= 1

    async def _answers(self, requests: types.InputRequests) -> types.InputResponses | None:
        """The person's answers; None if nobody can be asked, or not for this."""
        responses: types.InputResponses = {}
        for key, request in requests.items():
            if self._questions is None or not isinstance(request, types.ElicitRequest):
                return None
            with self._limits.pause():
                responses[key] = await self._questions.answer(request.params)
        return responses

    async def _on_question(self, context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Answers a question of an older revision, which comes during a call."""
        assert self._questions is not None
        with self._limits.pause():
            return await self._questions.answer(params)

    def _open_client(self) -> Client:
        if self._client is None:
            raise MCPError(types.CONNECTION_CLOSED, "Connection closed")
        return self._client

    async def _keep(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._connect_timeout):
                    client = Client(
                        self._transport(),
                        client_info=types.Implementation(name="toolspeak", version=__version__),
                        message_handler=self._on_notification,
                        elicitation_callback=None if self._questions is None else self._on_question,
                        extensions=[advertise(EXTENSION)],
                    )
                    self._client = await stack.enter_async_context(client)
                    self.listed_tools = await self.tools()
                    await self._look_around(self._client)
                self._open_result.set_result(None)
                await self._listen(self._client)
        except TimeoutError:
            self._fail(f"it was not ready within {self._connect_timeout:g} seconds")
        except BaseException as error:  # noqa: BLE001 - any error of the SDK's task groups ends only this connection
            self._fail(error)
        finally:
            self._client = None
            self._ending.set()
            if self._stderr is not None:
                self._stderr.close()

    def _fail(self, error: BaseException | str) -> None:
        if self._failure is None:
            self._failure = McpError(error) if isinstance(error, str) else error
        if not self._open_result.done():
            message = f"{about(self.server)} cannot be used: {self.why().rstrip('.')}. {remedy(self.server)}"
            self._open_result.set_exception(McpError(message))
            self._open_result.exception()  # marks it as retrieved, since the caller may be gone

    async def _listen(self, client: Client) -> None:
        """Waits for the end. Subscribes to changes of the tools, which newer servers require."""
        listening = asyncio.create_task(self._subscribe(client))
        try:
            await self._ending.wait()
        finally:
            listening.cancel()
            await asyncio.wait([listening])

    async def _subscribe(self, client: Client) -> None:
        capability = client.server_capabilities.tools
        if client.session.discover_result is None or capability is None or not capability.list_changed:
            return
        with suppress(MCPError, TimeoutError):
            while True:
                with suppress(SubscriptionLost):
                    async with client.listen(tools_list_changed=True) as events:
                        async for _ in events:
                            self._on_change()
                    return
                self._on_change()  # a change during the interruption is not reported again
                await asyncio.sleep(_LISTEN_AGAIN)

    async def _on_notification(self, message: types.ServerNotification | Exception) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._on_change()

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[Any]:
        server = self.server
        if isinstance(server, HttpServer):
            timeout = httpx2.Timeout(self._connect_timeout, read=None)  # each call has its own time limit

            def http_client(*_: Any, **__: Any) -> httpx2.AsyncClient:
                return httpx2.AsyncClient(
                    headers={"accept-encoding": ENCODINGS, **server.headers},
                    timeout=timeout,
                    event_hooks={"response": [limit_body]},
                )

            if server.transport == "sse":
                async with sse_client(server.url, httpx_client_factory=http_client) as (read_stream, write):
                    # All answers come over the one connection.
                    yield MessageFilter(read_stream, self._ending.set, self.unreadable), write
                return
            async with (
                http_client() as http,
                streamable_http_client(server.url, http_client=http, max_sse_event_size=MAX_ANSWER) as streams,
            ):
                read_stream, write = streams
                yield MessageFilter(read_stream, lambda: None, self.unreadable), write
            return
        assert self._stderr is not None
        async with _running(server, self._stderr.file, self._note_failure, self._set_boundary) as (read_stream, write):
            self._stderr.close()
            try:
                yield MessageFilter(read_stream, self._ending.set, self.unreadable), write
            finally:
                self._ends_process = True

    def _set_boundary(self, level: str) -> None:
        self.boundary = level

    def _note_failure(self, why: str) -> None:
        self._failure = McpError(why)


def _running(
    server: StdioServer, errors: TextIO, on_failure: Callable[[str], None], report_level: Callable[[str], None]
) -> AbstractAsyncContextManager[tuple[Any, Any]]:
    if os.name == "posix":
        return start_program(server, errors.fileno(), on_failure, report_level)
    if isinstance(server.sandbox, ServerSandbox):
        raise McpError("its entry asks for a sandbox, which this system does not have: it is not started")
    report_level("none")
    command = StdioServerParameters(
        command=server.command, args=list(server.args), env=dict(server.env), cwd=server.cwd
    )
    return stdio_client(command, errlog=errors)


def _lines_to(report: Callable[[str], None]) -> ProgressFnT:
    async def report_progress(progress: float, total: float | None, message: str | None) -> None:
        share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        report(f"{message} ({share})" if message else share)

    return report_progress


async def _wait_for(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])


def about(server: Server) -> str:
    return f"the MCP server {server.name!r}"


def remedy(server: Server) -> str:
    """What a person can try. It leaves out arguments and paths: they may hold a key, and models read this too."""
    if isinstance(server, HttpServer):
        at = urlsplit(server.url)
        return f"Check that the server runs at {at.scheme}://{at.hostname}, and that its path and headers are right"
    return f"Start {server.command!r} by hand, with its arguments, to see the problem"


def describe(error: BaseException) -> str:
    """An exception as one line; a group as its first exception."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, McpError):
        return str(error)
    # A server's text must not control the terminal that shows it.
    text = visible(str(error)).replace("\n", " ")
    if isinstance(error, MCPError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
