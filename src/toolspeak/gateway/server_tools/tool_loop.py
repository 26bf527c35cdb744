"""Turns of one answer, one after the other, for as long as the model calls server-side tools."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from toolspeak.data.deltas import (
    CallCompleted,
    CallMalformed,
    Delta,
    HostedCallEnded,
    HostedCallStarted,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import MalformedCall, Message, ToolCall, ToolChoice, ToolResult, Usage, failure
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import TurnCollector
from toolspeak.gateway.server_tools.continuation_token import encode_in_call_id, restore_messages
from toolspeak.gateway.server_tools.hosted_tools import HostedTool, HostedTools
from toolspeak.gateway.server_tools.tool_search import MOST_ROUNDS, ClientSearch
from toolspeak.gateway.server_tools.tool_servers import Running, ServerTools
from toolspeak.gateway.turns.turn_gate import Note
from toolspeak.gateway.turns.turn_report import SendDeltas, TurnReport, message_size
from toolspeak.wire.base import WireRequest

_BETWEEN = "\n\n"
"""Stands between the text of two turns: for the client both are one answer."""

_NO_CALLS = ToolChoice("none")


async def with_tools(
    server: tuple[ServerTools, Running] | None,
    wire_request: WireRequest,
    hosted_tools: HostedTools | None = None,
    most_tools: int | None = None,
) -> tuple[WireRequest, ToolLoop]:
    """The request with the server's tools besides the client's, and with the messages that its ids carry. A request
    with hosted tools gets only those. Raises FormatError for a hosted tool that does not exist.

    `most_tools`: of more tools the model reads the names, and finds the definitions."""
    request = wire_request.request
    messages = restore_messages([message for message in request.messages if isinstance(message, Message)])
    offered_tools: Sequence[ToolSpec] = ()
    if server is not None:
        tools, running = server
        offered_tools, running.shadowed_tools = await tools.tools_beside(request.tools)
    hosted_by_name: Mapping[str, HostedTool] = {}
    if hosted_tools is not None and server is not None:
        tools, running = server
        hosted_by_name = hosted_tools.among(offered_tools, tools)
        offered_tools = tuple(tool for tool in offered_tools if tool.name in hosted_by_name)
        most = request.options.get("max_tool_calls")  # of the API's own tools
        if isinstance(most, int):
            running.most_calls = max(0, min(running.most_calls, most))
    if hosted_tools is not None and hosted_tools.choice is not None:
        request = replace(request, choice=hosted_tools.tool_choice(hosted_by_name))
    elif request.choice.mode in ("none", "specific"):
        offered_tools = ()  # the client allows no call, or only calls of its own tool
    names, all_tools = frozenset(tool.name for tool in offered_tools), (*request.tools, *offered_tools)
    search = None
    if most_tools is not None and len(all_tools) > most_tools:
        search = ClientSearch.of(all_tools, messages, request.choice)
        all_tools = search.specs
    request = replace(request, messages=messages, tools=all_tools)
    return replace(wire_request, request=request), ToolLoop(server, names, hosted_by_name, search)


class AskTurn(Protocol):
    """Runs one turn, and sends what leaves."""

    def __call__(
        self,
        wire_request: WireRequest,
        put: SendDeltas,
        report: TurnReport,
        size: Callable[[], int],
        /,
        *,
        hold_calls: bool = False,
    ) -> Awaitable[None]: ...


@dataclass(slots=True)
class ToolLoop:
    """One request's turns. `names` are the server-side tools that the model is offered, `hosted_by_name` those whose
    calls are items of the answer. `search`: the search among tools that the model does not read all."""

    server: tuple[ServerTools, Running] | None
    names: frozenset[str]
    hosted_by_name: Mapping[str, HostedTool]
    search: ClientSearch | None = None
    _steps: int = 0
    _token: str = field(default_factory=lambda: secrets.token_hex(8))
    _ran: list[Message] = field(default_factory=list[Message])
    _items: int = 0

    async def run_turns(
        self,
        ask: AskTurn,
        wire_request: WireRequest,
        put: SendDeltas,
        report: TurnReport,
        prompt_size: Callable[[], int],
    ) -> None:
        """Runs turns until one has no calls of the server's tools, and runs those calls in between.

        Text and reasoning of every turn leave as they come. The calls of a turn wait for its end. Calls of the client's
        tools end the answer: they leave whole, after the server's calls of the same turn have run, and the id of the
        first one carries what ran. Past a limit the model gets no more tools. The usage is that of all turns.
        """
        if not self.names and self.search is None:
            await ask(wire_request, put, report, prompt_size)
            return
        output = _Output(put)
        usage = Usage()
        while True:
            turn = _Turn(output, self._call_id)
            turn_report = TurnReport()
            try:
                await ask(wire_request, turn.put, turn_report, prompt_size, hold_calls=True)
            except BaseException:
                _add(report, turn_report, turn_report.notes)
                raise
            usage = usage.plus(turn.end.usage)
            names = self.names if self.search is None else self.names | self.search.names
            mine = turn.calls_of(names)
            if not mine:
                _add(report, turn_report, turn_report.notes)
                await self._leave(turn, usage, output, report, names)
                return
            # The model reads what was wrong with a call, and writes it again; the client need not know.
            _add(report, turn_report, [note for note in turn_report.notes if note.code != "malformed_call"])
            hosted_calls = self._hosted_calls(mine)
            await put([start for start, _ in hosted_calls])
            results = await self._run(mine)
            by_call = {result.call_id: result for result in results}
            await put([_hosted_call_end(start, by_call[call.id]) for start, call in hosted_calls])
            # A client cannot send back what it did not see: the id of its call carries that. (The item of a search has
            # no field for a result.)
            sent_ids = {call.id for call in mine if isinstance(call, ToolCall) and not self._is_item(call)}
            self._ran += [
                Message("assistant", tuple(call for call in mine if call.id in sent_ids)),
                Message("tool", tuple(result for result in results if result.call_id in sent_ids)),
            ]
            if turn.has_others(names):
                await self._leave(turn, usage, output, report, names)
                return
            more = [turn.message, Message("tool", results)]
            prompt_size = partial(_size_with, prompt_size, more)
            searches = self.search is not None and all(call.name not in self.names for call in mine)
            wire_request = self._next(wire_request, more, report, searches=searches)
            output.turn_over(apart=bool(hosted_calls))

    async def _run(self, calls: Sequence[ToolCall | MalformedCall]) -> tuple[ToolResult, ...]:
        """The results of a turn's calls, in their order."""
        self._steps += 1
        search, by_call = self.search, dict[str, ToolResult]()
        if search is not None:
            own = search.names - self.names
            searches = [call for call in calls if isinstance(call, ToolCall) and call.name in own]
            by_call = {result.call_id: result for result in search.run(searches)}
        others = [call for call in calls if call.id not in by_call]
        if self.server is not None and others:
            tools, running = self.server
            by_call |= {result.call_id: result for result in await tools.run(others, running)}
        return tuple(
            [
                by_call.get(call.id) or failure(call, "malformed", getattr(call, "reason", "it cannot be read"))
                for call in calls
            ]
        )

    def _is_item(self, call: ToolCall) -> bool:
        """Whether the call and its result are an item of the answer."""
        return call.name in self.hosted_by_name and self.hosted_by_name[call.name].kind == "mcp"

    def _hosted_calls(self, calls: Sequence[ToolCall | MalformedCall]) -> list[tuple[HostedCallStarted, ToolCall]]:
        """The calls of hosted tools, which the client sees."""
        hosted_calls: list[tuple[HostedCallStarted, ToolCall]] = []
        for call in calls:
            if isinstance(call, ToolCall) and call.name in self.hosted_by_name:
                tool = self.hosted_by_name[call.name]
                start = HostedCallStarted(self._items, tool.kind, tool.server, tool.name, call.arguments)
                hosted_calls.append((start, call))
                self._items += 1
        return hosted_calls

    def _next(
        self, wire_request: WireRequest, more: Sequence[Message], report: TurnReport, *, searches: bool
    ) -> WireRequest:
        """The request after the results. `searches`: the calls were searches alone, so what was required was not called
        yet."""
        request, search = wire_request.request, self.search
        limit = "" if self.server is None else self.server[0].exhausted_limit(self.server[1])
        if not limit and search is not None and search.rounds >= MOST_ROUNDS:
            limit = f"{MOST_ROUNDS} searches"
        choice = _NO_CALLS if limit else request.choice if searches else ToolChoice()
        if limit:
            report.notes.append(Note("tool_limit", f"the gateway stopped its tools after {limit}"))
        tools = request.tools if search is None else search.specs
        messages = [*request.messages, *more]
        return replace(wire_request, request=replace(request, messages=messages, tools=tools, choice=choice))

    async def _leave(
        self, turn: _Turn, usage: Usage, output: _Output, report: TurnReport, names: frozenset[str]
    ) -> None:
        """The client's calls and the end of the answer. `names`: the tools whose calls do not leave."""
        leaving = [call for call in turn.calls if call.name not in names]
        call_places = [index for index, call in enumerate(leaving) if isinstance(call, CallCompleted)]
        if call_places and self._ran:
            first = leaving[call_places[0]]
            assert isinstance(first, CallCompleted)
            token = encode_in_call_id(first.id or self._call_id(first.index), self._ran)
            if token is None:
                message = (
                    "what the server's tools did is too long to be passed on, so the model will not know it in the "
                    "next request"
                )
                report.notes.append(Note("tools_not_carried", message))
            else:
                leaving[call_places[0]] = replace(first, id=token)
        finish = "stop" if turn.end.finish == "tool_calls" and not call_places else turn.end.finish
        report.calls = len(call_places)
        report.end = replace(turn.end, usage=usage, finish=finish)
        await output.end([*leaving, report.end])

    def _call_id(self, index: int) -> str:
        return f"call_{self._token}_{self._steps}_{index}"


class _Output:
    """Sends the text of all turns. White space waits: it leaves with the text after it or with the end of the answer,
    and is dropped in front of calls."""

    def __init__(self, put: SendDeltas) -> None:
        self._put = put
        self._waiting = ""
        self._text = _Voice()
        self._reasoning = _Voice()

    def turn_over(self, *, apart: bool) -> None:
        """Prepares for the next turn. `apart`: an item of its own is between the two turns."""
        self._waiting = ""
        for voice in (self._text, self._reasoning):
            voice.has_left = voice.has_left and not apart
            voice.needs_separator = voice.has_left

    async def put(self, deltas: Sequence[Delta]) -> None:
        leaving: list[Delta] = []
        for delta in deltas:
            match delta:
                case TextDelta(text):
                    whole = self._waiting + self._text.separate(text, self._waiting)
                    text_to_send = whole.rstrip()
                    self._waiting = whole[len(text_to_send) :]
                    if text_to_send:
                        self._text.has_left = True
                        leaving.append(TextDelta(text_to_send))
                case ReasoningDelta(text):
                    reasoning = self._reasoning.separate(text, "")
                    self._reasoning.has_left = self._reasoning.has_left or bool(reasoning)
                    leaving.append(ReasoningDelta(reasoning))
                case _:
                    leaving.append(delta)
        if leaving:
            await self._put(leaving)

    async def end(self, deltas: Sequence[Delta]) -> None:
        """The end of the answer."""
        rest = [TextDelta(self._waiting)] if self._waiting else []
        await self._put([*rest, *deltas])


@dataclass(slots=True)
class _Voice:
    """Text or reasoning.

    - `has_left`: whether part of it has left.
    - `needs_separator`: whether that was in an earlier turn, and nothing has left in this one.
    """

    has_left: bool = False
    needs_separator: bool = False

    def separate(self, text: str, waiting: str) -> str:
        """The text, with a separator in front if it is the first after an earlier turn."""
        if not self.needs_separator or waiting:
            return text
        opening = text.lstrip()
        if not opening:
            return ""
        self.needs_separator = False
        return _BETWEEN + opening


class _Turn:
    """Collects one turn: passes text on, and keeps calls and the end."""

    def __init__(self, output: _Output, call_id: Callable[[int], str]) -> None:
        self.calls: list[CallCompleted | CallMalformed] = []
        self.end = TurnEnded("error")
        self._output = output
        self._collector = TurnCollector(call_id)

    async def put(self, deltas: Sequence[Delta]) -> None:
        leaving: list[Delta] = []
        for delta in deltas:
            self._collector.add(delta)
            match delta:
                case CallCompleted() | CallMalformed():
                    self.calls.append(delta)
                case TurnEnded():
                    self.end = delta
                case _:
                    leaving.append(delta)
        if leaving:
            await self._output.put(leaving)

    @property
    def message(self) -> Message:
        """The turn, as the model reads it later."""
        return self._collector.turn().message

    def calls_of(self, names: frozenset[str]) -> list[ToolCall | MalformedCall]:
        """The calls to run here. Empty if no call is of one of these tools; else all but the client's, malformed ones
        included, so that the model learns what was wrong."""
        calls = self._collector.turn().calls
        if not any(call.name in names for call in calls):
            return []
        others = self.has_others(names)
        return [call for call in calls if call.name in names or (isinstance(call, MalformedCall) and not others)]

    def has_others(self, names: frozenset[str]) -> bool:
        """Whether the client has a call to answer."""
        return any(isinstance(call, CallCompleted) and call.name not in names for call in self.calls)


def _hosted_call_end(start: HostedCallStarted, result: ToolResult) -> HostedCallEnded:
    return HostedCallEnded(start.index, result.text, result.status == "failure")


def _size_with(size: Callable[[], int], more: Sequence[Message]) -> int:
    return size() + sum(map(message_size, more))


def _add(report: TurnReport, turn: TurnReport, notes: Sequence[Note]) -> None:
    report.notes += [note for note in notes if note not in report.notes]
    report.attempts += turn.attempts
    report.malformed_calls += turn.malformed_calls
    report.forged_results += turn.forged_results
    report.end = turn.end
    report.usage = report.usage.plus(turn.usage)
