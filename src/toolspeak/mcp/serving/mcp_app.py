"""A server of tools and agents for MCP clients: over streamable HTTP as an ASGI application, or over standard input."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
from mcp import MCPError, types
from mcp.server import Server, ServerRequestContext
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from toolspeak.agent import Agent, Approval, Execution, RunResult
from toolspeak.agent.interceptors import AnyInterceptor, by_level
from toolspeak.agent.settings import USUAL_EXECUTION
from toolspeak.agent.validation import check_execution, secrets_of, toolset_of
from toolspeak.data.messages import Message
from toolspeak.errors import ConfigurationError, RunConflict, RunError, ToolspeakError
from toolspeak.execute import Approve, Secrets
from toolspeak.execute.calls.prepare import new_id
from toolspeak.journal import Journal
from toolspeak.mcp.serving.approval_forms import decisions_of, question_form, question_key
from toolspeak.mcp.serving.bounded_input import bounded_streams
from toolspeak.mcp.serving.call_answers import answer_of_agent, answer_of_call, refusal
from toolspeak.mcp.serving.call_runs import CallRuns, ProgressSink
from toolspeak.mcp.serving.mirrored_headers import compared_headers, mismatch_message, odd_header
from toolspeak.mcp.serving.one_call_driver import OneCallDriver
from toolspeak.mcp.serving.ordered_executor import CALLER, OrderedExecutor
from toolspeak.mcp.serving.recent_runs import RecentRuns
from toolspeak.mcp.serving.tool_listing import listed_tool, page_of
from toolspeak.mcp.serving.tool_request import ServedTool, ToolRequest, progress_of
from toolspeak.tools import ToolLike, Toolset
from toolspeak.tools.toolset import tools_digest
from toolspeak.version import __version__

_LOG = logging.getLogger("toolspeak.mcp")

_MOST_QUESTIONS = 3
"""How often a client is asked the same question that it does not decide."""

CallAnswer = types.CallToolResult | types.InputRequiredResult


class McpApp:
    """Serves tools and agents to MCP clients, as an ASGI application (streamable HTTP) or with `serve_stdio`.

        app = McpApp([read, write], journal=open_journal("calls.db"))
        app = McpApp(Agent("openai:qwen3", tools=[read, write], description="…", journal=…))

    It speaks the revision 2026-07-28 and those before it. Each call is a run of the journal: its approvals are asked of
    the client's user, and the answer may come to any process that has the journal. Calls at the same time keep the
    order that their effects need. A call that the client sends again under the same id is not run again.

    - `offer`: tools, an agent (which needs a description and a journal), or a list of both.
    - `journal`: where the runs of tools are recorded; agents have their own. None: in memory, the latest 1,000.
    - `approve`: who decides about calls that write or leave the machine, as for an Agent. None: the client's user.
    - `execution`, `interceptors`, `secrets`: of the tools' calls, as for an Agent.
    - `deps`: the `deps` of the tools and agents, for a principal.
    - `principal`: on whose behalf an HTTP request acts, from its ASGI scope. It may raise PermissionError: the answer
      is 401. None: everybody who reaches the server is nobody in particular.
    - `hosts`: the Host headers that an HTTP request may have. None: this machine's names, or any if there is a
      `principal`: a web page of another site does not have the key.
    - `name`, `instructions`: what the server is called, and what clients tell their models about it.
    - `path`: of the HTTP endpoint.
    - `max_body`: the most bytes of a message.
    - `most_calls`: how many calls may be under way at once; further ones are refused.
    """

    def __init__(
        self,
        offer: Agent[Any, Any] | Toolset | Iterable[Agent[Any, Any] | ToolLike[Any]],
        *,
        journal: Journal | None = None,
        approve: Approve | Approval = None,
        execution: Execution = USUAL_EXECUTION,
        interceptors: Sequence[AnyInterceptor] = (),
        secrets: Secrets | Mapping[str, str] | None = None,
        deps: Callable[[str | None], Any] | None = None,
        principal: Callable[[Scope], str | None] | None = None,
        hosts: Sequence[str] | None = None,
        name: str = "toolspeak",
        instructions: str = "",
        path: str = "/mcp",
        max_body: int = 8 * 1024 * 1024,
        most_calls: int = 256,
    ) -> None:
        offers: list[Any] = [offer] if isinstance(offer, Agent) else list(cast("Iterable[Any]", offer))
        agents: list[Agent[Any, Any]] = [each for each in offers if isinstance(each, Agent)]
        toolset = toolset_of([each for each in offers if not isinstance(each, Agent)])
        caller = _agent_of_calls(toolset, journal, approve, execution, interceptors, secrets)
        self._tools = {spec.name: ServedTool(listed_tool(spec), caller, is_agent=False) for spec in toolset.specs}
        for agent in agents:
            spec = agent.as_tool().spec
            if agent.journal is None:
                raise ConfigurationError(f"McpApp needs the agent {agent.name!r} with a journal: Agent(journal=…)")
            if spec.name in self._tools:
                raise ConfigurationError(f"two served tools are named {spec.name!r}; give the agent another name")
            self._tools[spec.name] = ServedTool(listed_tool(spec), CallRuns(agent, agent.journal), is_agent=True)
        self._list = tuple(each.definition for each in self._tools.values())
        self._digest = tools_digest([*toolset.specs, *(each.as_tool().spec for each in agents)])
        self._deps = deps
        self._principal = principal
        self._max_body = max_body
        self._most_calls = most_calls
        self._under_way = 0
        schemas = {each.name: each.input_schema for each in self._list}
        self._compared_headers = compared_headers(schemas.values())
        self._server: Server[Any] = Server(
            name,
            version=__version__,
            lifespan=_connection_id,
            instructions=instructions or None,
            get_tool_input_schema=schemas.get,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        here = ["127.0.0.1", "127.0.0.1:*", "localhost", "localhost:*", "[::1]", "[::1]:*"]
        allowed_hosts = list(hosts) if hosts is not None else here
        origins = [f"{scheme}://{host}" for host in allowed_hosts for scheme in ("http", "https")]
        self._app = self._server.streamable_http_app(
            streamable_http_path=path,
            max_request_body_size=max_body,
            transport_security=TransportSecuritySettings(
                enable_dns_rebinding_protection=hosts is not None or principal is None,
                allowed_hosts=allowed_hosts,
                allowed_origins=origins,
            ),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, or runs the application's lifespan."""
        if scope["type"] == "http" and self._principal is not None:
            try:
                principal = self._principal(scope)
            except PermissionError as error:
                text = str(error) or "no valid key"
                await _send(send, 401, text, "text/plain; charset=utf-8", (b"www-authenticate", b"Bearer"))
                return
            if principal is not None:
                # The SDK lets a session be used by the user alone who began it.
                user = AuthenticatedUser(AccessToken(token="", client_id=principal, scopes=[]))
                scope = {**scope, "user": user}
        if scope["type"] == "http" and (name := odd_header(scope["headers"], self._compared_headers)):
            await _send(send, 400, mismatch_message(name), "application/json")
            return
        await self._app(scope, receive, send)

    async def serve_stdio(self) -> None:
        """Serves one client over standard input and output, until it closes them."""
        async with bounded_streams(self._max_body) as (incoming, outgoing):
            await self._server.run(incoming, outgoing, self._server.create_initialization_options())

    async def _list_tools(
        self, context: ServerRequestContext, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return page_of(self._list, None if params is None else params.cursor, self._digest)

    async def _call_tool(self, context: ServerRequestContext, params: types.CallToolRequestParams) -> CallAnswer:
        served_tool = self._tools.get(params.name)
        if served_tool is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool of this name; list the tools: {params.name!r:.100}")
        if self._under_way >= self._most_calls:
            raise MCPError(types.INTERNAL_ERROR, f"{self._most_calls} calls are under way: try again later")
        self._under_way += 1
        try:
            async with progress_of(context) as report:
                return await self._outcome(served_tool, ToolRequest(context, params), report)
        except (MCPError, asyncio.CancelledError):
            raise
        except ToolspeakError as error:
            return refusal(str(error))
        except Exception:  # noqa: BLE001 - a client gets no traceback, whatever the program raises
            _LOG.exception("a call of an MCP client broke off")
            return refusal("The call failed; the server's log says why.")
        finally:
            self._under_way -= 1

    async def _outcome(self, served_tool: ServedTool, request: ToolRequest, report: ProgressSink) -> CallAnswer:
        task, runs, principal = served_tool.task_of(request.params), served_tool.runs, request.principal
        if task is None:
            return refusal('an agent takes its task as the text `task`: {"task": "…"}')
        deps = None if self._deps is None else self._deps(principal)
        CALLER.set(request.session or principal or "everybody")
        state, answers = request.params.request_state, request.params.input_responses
        by = principal or "client"
        if state is not None:
            try:
                result = await runs.go_on(
                    task, state, principal, deps, report, lambda requests: decisions_of(requests, answers, by)
                )
            except RunError as error:
                raise MCPError(types.INVALID_PARAMS, f"invalid request state: {error}") from None
        else:
            run_id = request.run_id()
            try:
                result = await runs.start(task, run_id, principal, deps, report, request.traceparent)
            except RunConflict:
                raise MCPError(
                    types.INVALID_REQUEST, "a call with this id was made before, with other content"
                ) from None
        return await self._answer_to(served_tool, task, request, result, deps, report)

    async def _answer_to(
        self,
        served_tool: ServedTool,
        task: Message,
        request: ToolRequest,
        result: RunResult[Any],
        deps: Any,
        report: ProgressSink,
    ) -> CallAnswer:
        """Asks the client about calls that need approval, until the run has a result."""
        runs, undecided_rounds = served_tool.runs, 0
        while result.status == "awaiting_approval":
            forms = {question_key(each): question_form(each) for each in result.requests}
            if not request.can_ask:
                await runs.close(result.run_id)
                return refusal(_CANNOT_ASK.format(names=", ".join(each.call.name for each in result.requests)))
            if request.is_modern:
                return types.InputRequiredResult(input_requests={**forms}, request_state=result.run_id)
            try:
                answers = {key: await request.ask(form) for key, form in forms.items()}
            except (MCPError, ValidationError) as error:
                await runs.close(result.run_id)
                why = error.message[:500] if isinstance(error, MCPError) else "its answer is not one"
                return refusal(f"the call needs approval, and the client did not ask its user: {why}")
            except asyncio.CancelledError:
                with anyio.CancelScope(shield=True):
                    await runs.close(result.run_id)
                raise
            undecided_rounds = 0 if decisions_of(result.requests, answers, "") else undecided_rounds + 1
            if undecided_rounds == _MOST_QUESTIONS:
                await runs.close(result.run_id)
                return refusal("the call needs approval, and the client's answers do not decide: `approve` is missing")
            result = await runs.go_on(
                task,
                result.run_id,
                request.principal,
                deps,
                report,
                lambda requests, answers=answers: decisions_of(requests, answers, request.principal or "client"),
            )
        if result.status == "suspended":
            return refusal(f"somebody suspended the run {result.run_id} of this call; it goes on with the same call id")
        return (answer_of_agent if served_tool.is_agent else answer_of_call)(result, request.context.protocol_version)


_CANNOT_ASK = (
    "not run: {names} needs approval, and this client cannot ask its user (it has no elicitation). If the client asks "
    "its user itself, let the server approve such calls: toolspeak mcp serve --approve all, or --rules FILE"
)


@asynccontextmanager
async def _connection_id(_: Server[Any]) -> AsyncGenerator[str]:
    """Identifies a connection over streams. (Over HTTP it is entered once, and sessions have ids.)"""
    yield new_id()


def _agent_of_calls(
    toolset: Toolset,
    journal: Journal | None,
    approve: Approve | Approval,
    execution: Execution,
    interceptors: Sequence[AnyInterceptor],
    secrets: Secrets | Mapping[str, str] | None,
) -> CallRuns:
    """The runs of calls of these tools."""
    approval = approve if isinstance(approve, Approval) else Approval(approve)
    check_execution(execution)
    if execution.schedule == "native":
        raise ConfigurationError("schedule='native' needs a dialect, and MCP clients have none; name another one")
    executor = OrderedExecutor(
        toolset,
        schedule=execution.schedule,
        concurrency=execution.concurrency,
        early_start=False,
        interceptors=by_level(interceptors)["call"],
        max_result_bytes=execution.max_result_bytes,
        tool_timeout=execution.tool_timeout,
        secrets=secrets_of(secrets),
        policy=approval.policy,
        rules=approval.rules,
        after_web=approval.after_web,
    )
    journal = RecentRuns() if journal is None else journal
    agent: Agent[Any, Any] = Agent(
        OneCallDriver(),
        toolset,
        approve=Approval(approval.approver, in_doubt=approval.in_doubt),
        execution=executor,
        interceptors=[each for each in interceptors if each not in by_level(interceptors)["call"]],
        journal=journal,
        name=CALLS_AGENT,
    )
    return CallRuns(agent, journal)


CALLS_AGENT = "mcp-call"
"""The name of the agent of runs that are one call of an MCP client, in their records."""


async def _send(send: Send, status: int, text: str, kind: str, *headers: tuple[bytes, bytes]) -> None:
    head = [(b"content-type", kind.encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": text.encode()})
