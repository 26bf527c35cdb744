"""More tools in a request than the model shall read: it gets `find_tools`, which the gateway runs itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from toolspeak.data.messages import Message, ToolCall, ToolChoice, ToolResult, failure
from toolspeak.data.tools import FOUND_TOOLS, ToolSpec, found_in, with_more
from toolspeak.execute.calls.prepare import NOW_LISTED, read_arguments
from toolspeak.execute.calls.result_limits import result_of_value
from toolspeak.execute.calls.secrets import Secrets
from toolspeak.tools import Tool
from toolspeak.tools.tool_catalogue import FIND_TOOLS, ToolCatalogue

MOST_ROUNDS = 12
"""How many turns of one answer may search. After that the model must answer."""

_NO_SECRETS = Secrets()


@dataclass(slots=True)
class ClientSearch:
    """The search among one request's tools. What the model has found or called is listed, in that order: it is in the
    messages, so the gateway keeps nothing.

    - `tools`: all tools of the request.
    - `find`: the tool that searches them.
    - `listed_names`: the tools that the model has found.
    - `rounds`: how many turns have searched.
    """

    tools: Sequence[ToolSpec]
    find: Tool
    listed_names: tuple[str, ...]
    rounds: int = 0
    _by_name: dict[str, ToolSpec] = field(init=False)

    def __post_init__(self) -> None:
        self._by_name = {spec.name: spec for spec in self.tools}

    @classmethod
    def of(cls, tools: Sequence[ToolSpec], messages: Sequence[Message], choice: ToolChoice) -> ClientSearch:
        """The search among these tools, after a conversation."""
        own_names = {spec.name for spec in tools}
        name = FIND_TOOLS
        while name in own_names:  # the client has a tool of this name
            name = f"gateway_{name}"
        listed_names: tuple[str, ...] = ()
        for message in messages:
            listed_names = with_more(listed_names, [call.name for call in message.calls if call.name in own_names])
            listed_names = with_more(listed_names, [each for part in message.results for each in found_in(part)])
        if choice.name is not None:
            listed_names = with_more(listed_names, (choice.name,))
        return cls(tools, ToolCatalogue(tools).tool(name), listed_names)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The definitions that the model reads."""
        return (self.find.spec, *(self._by_name[name] for name in self.listed_names if name in self._by_name))

    @property
    def names(self) -> frozenset[str]:
        """The tools whose calls end here: the search, and those that the model has not found."""
        return frozenset((self.find.name, *self._by_name)).difference(self.listed_names)

    def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """The results of these calls. What they found is listed from then on.

        The call of a tool that was not found never leaves: the client would run what the model has guessed from a name,
        and the gateway does not know what the tool does.
        """
        self.rounds += 1
        results = [self._result(call) for call in calls]
        for result in results:
            self.listed_names = with_more(self.listed_names, found_in(result))
        return results

    def _result(self, call: ToolCall) -> ToolResult:
        if call.name != self.find.name:
            reason = f"{call.name} did not run: you had not read its definition. {NOW_LISTED}"
            return replace(failure(call, "unknown_tool", reason), extra={FOUND_TOOLS: [call.name]})
        arguments = read_arguments(self.find, call, _NO_SECRETS)
        if isinstance(arguments, ToolResult):
            return arguments
        return result_of_value(call, self.find(**arguments), _NO_SECRETS)
