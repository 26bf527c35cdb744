"""Every exception toolspeak raises, and how a message suggests a name.

    ToolspeakError                                                                             again?
    ├── ConfigurationError       the caller's mistake: a wrong name, option or combination     no
    │   ├── UnknownDialect       no dialect has this name                                      no
    │   ├── UnknownProvider      no provider has this name, or it lacks what it needs          no
    │   ├── UnknownTool          no tool has this name                                         no
    │   ├── PortInUse            (gateway/listening_socket.py) another process has the port    once it has ended
    │   ├── UnknownModel         (gateway/upstreams/routing.py) no model of this name          no
    │   └── ToolDefinitionError  a function that cannot become a tool                          no
    ├── FormatError              stored or sent data that this version cannot read             no
    ├── ToolError                raised by a tool: its message goes to the model               -
    │   ├── CertainFailure       a call that fails whatever runs before it: nobody is asked    -
    │   └── Unserialisable       (tools/returned_values.py) a value that must be JSON is not   -
    ├── AgentStop                raised by a tool or an interceptor: ends the run              -
    ├── ToolFailed               (Executor(throw_on_failure=True)) a call failed               no
    ├── ProviderError            the model API failed                                          its `retryable`
    │   └── NoSummary            (agent/history_summary.py) the model summarised nothing       once it can
    ├── McpError                 an MCP server cannot be started or reached                    once it can
    ├── JournalError             the journal cannot be read or written                         once it can
    │   └── AgainError           (journal/postgres_pool.py) undone because of another one      at once; done inside
    ├── DamagedContent           (changes/change_store.py) the kept content of a file is gone  no
    ├── SandboxError             a command cannot start inside its boundary                    once it can
    ├── RpcError                 (acp/json_rpc.py) a request to an editor failed               no
    ├── PeerGone                 (acp/json_rpc.py) the editor closed the connection            no
    ├── EngineError              an engine cannot be reached, or does not know the agent       once it can
    └── RunError                 a run that cannot continue, for instance without a decision     no
        ├── RunBusy              this process or another holds the run                         once it has let go
        ├── RunConflict          someone else continued the run or the session              from where it is now
        ├── RunStuck             a worker resumed the run often in vain, or its tool is gone when it is mended
        ├── LeaseLost            another process took the run over                             from where it is now
        ├── SubRunPaused         a run that a tool started waits, and its call with it         when it was decided
        ├── CallWaits            a tool's call waits for a time or an outside event            when it has come
        └── ReplayDiverged       a replayed run asks for something that was not recorded       no
            └── TurnCutOff       (agent/cassettes/recording.py) the recorded turn has no end   no

"again?" says whether the same call may succeed later. A model's mistake is never an exception: it is data
(`MalformedCall`, a failed `ToolResult`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal


class ToolspeakError(Exception):
    """The root of the tree; catch it to catch everything of ours."""


class ConfigurationError(ToolspeakError):
    """The caller named something that does not exist or does not fit; the message says what does."""


class UnknownDialect(ConfigurationError):
    """No dialect has this name."""


class UnknownProvider(ConfigurationError):
    """A model string names no known provider, or lacks what the provider needs."""


class UnknownTool(ConfigurationError):
    """No tool has this name."""


class ToolDefinitionError(ConfigurationError):
    """A function cannot become a tool: the message names the parameter and the remedy."""


class FormatError(ToolspeakError):
    """Data is of an unknown format version or shape; the message names the place."""

    def __init__(self, message: str, *, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.details = details
        """The same for programs, in the words of the format."""


class ToolError(ToolspeakError):
    """Raise it in a tool to fail the call with a message the model can act on.

    Any other exception fails the call too, with its type in front of its message.

    - `extra`: what the result holds for programs besides (`ToolResult.extra`), as JSON.
    """

    def __init__(self, *arguments: object, extra: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__(*arguments)
        self.extra = extra


class CertainFailure(ToolError):
    """A call fails whatever other calls do before it: its arguments alone forbid it. Nobody is asked about it."""


class AgentStop(ToolspeakError):
    """Raise it in a tool, an interceptor or an approver to end the run: no further call of the batch is started.

    `Executor.run` raises it once the batch's results are recorded.
    """

    def __init__(self, message: str = "", *, answer: str | None = None) -> None:
        super().__init__(message)
        self.answer = answer
        """The run's answer; without one the run ends unanswered."""
        self.batch: Any = None  # a BatchResult; the rooms above are not known here
        """The batch with its results, as `Executor.run` raises the exception."""


class ToolFailed(ToolspeakError):
    """A call failed, and its executor ends a batch at the first failure (`throw_on_failure=True`).

    `Executor.run` raises it once all results are recorded.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.batch: Any = None
        """The batch with its results."""
        self.execution: Any = None
        """The call that failed."""


ProviderErrorCode = Literal[
    "authentication",  # no key, a wrong one, or one without the permission
    "quota",  # no credit, or a limit that does not end soon
    "rate_limit",  # too many requests or tokens just now
    "overloaded",  # the server failed, or is overloaded
    "connection",  # no answer, or one that stopped in the middle
    "context_length",  # the conversation is longer than the model's window
    "content_filter",  # the API refuses the content
    "not_found",  # no such model or address
    "bad_request",  # the API rejects something in the request
    "forgotten",  # the server does not keep the earlier response that the request builds on
    "ill_formed",  # the answer is not what the API's documentation says
    "other",
]


class ProviderError(ToolspeakError):
    """The model API failed.

    `status`: the HTTP status; None if no response came.
    `retryable`: whether the same request may succeed later.
    `code`: the kind of failure.
    `retry_after`: the least seconds to wait before the next try.
    `unread`: what the model wrote, where the server could not parse the call in it (Groq).
    `result`: the RunResult of the run that it ended, where `Agent.run` raises it.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        code: ProviderErrorCode = "other",
        retry_after: float | None = None,
        unread: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable
        self.code: ProviderErrorCode = code
        self.retry_after = retry_after
        self.unread = unread
        self.result: Any = None  # a RunResult; the rooms above are not known here

    def with_message(self, message: str, code: ProviderErrorCode | None = None) -> ProviderError:
        """The same failure with another message. With `code` it is a failure of that kind, and not retryable."""
        if code is not None:
            return ProviderError(message, status=self.status, code=code)
        return ProviderError(
            message,
            status=self.status,
            retryable=self.retryable,
            code=self.code,
            retry_after=self.retry_after,
            unread=self.unread,
        )


class McpError(ToolspeakError):
    """An MCP server cannot be started or reached, or does not speak MCP; the message names it, and the remedy."""


class RunError(ToolspeakError):
    """A run cannot continue from where it is; the message says what is missing."""


class SubRunPaused(RunError):
    """A run that a tool started waits for approval, or was suspended. Do not catch it in the tool: the tool's call
    waits too, and runs again when the sub-run can continue."""

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result  # a RunResult; the rooms above are not known here
        """The sub-run's RunResult."""


class CallWaits(RunError):
    """A tool's call waits for a time or an event (`RunContext.wait_for`). Do not catch it in the tool: the tool is
    called again when what it waits for has come."""


class RunConflict(RunError):
    """Another writer appended to the run or the session since it was read."""


class RunBusy(RunError):
    """The run is driven already. The message says by which process, this one or another, and what to do."""


class RunStuck(RunError):
    """The run gets no further: a worker resumed it several times in vain, or it waits in a call of a tool that its
    agent does not have."""


class LeaseLost(RunError):
    """Another process took the run over; this one must not act for it any more."""


class ReplayDiverged(RunError):
    """A replayed run asks for something that the recording does not hold. The message names the place, the difference
    and the remedy."""


class JournalError(ToolspeakError):
    """The journal cannot be read or written; the message names the place and the remedy."""


class SandboxError(ToolspeakError):
    """A command cannot start inside its boundary. The message says what to do."""


class EngineError(ToolspeakError):
    """An engine cannot be reached, or cannot take a run; the message names the place and the remedy."""


def suggest(name: str, options: Iterable[str]) -> str:
    """The end of every "unknown name" message: `'hermez'. Did you mean 'hermes'? Known: ….`"""
    names = sorted(options)
    spellings = {option.lower(): option for option in names}
    close = difflib.get_close_matches(name.lower(), spellings, n=1, cutoff=0.5)
    hint = f" Did you mean {spellings[close[0]]!r}?" if close else ""
    return f"{name!r}.{hint} Known: {', '.join(names) or '(none)'}."
