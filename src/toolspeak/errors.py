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
    │   └── Unserialisable       (tools/returned_values.py) a value that must be JSON is none  -
    ├── AgentStop                raised by a tool or an interceptor: ends the run              -
    ├── ToolFailed               (Executor(throw_on_failure=True)) a call failed               no
    ├── ProviderError            the model API failed                                          its `retryable`
    ├── McpError                 an MCP server cannot be started or reached                    once it can
    ├── JournalError             the journal cannot be read or written                         once it can
    │   └── AgainError           (journal/postgres_pool.py) undone because of another one      at once; done inside
    └── RunError                 a run that cannot go on: resumed without a decision, say      no
        ├── RunBusy              another process holds the run                                 once it has let go
        ├── RunConflict          somebody else went on with the run or the session             from where it is now
        ├── LeaseLost            another process took the run over                             from where it is now
        ├── SubRunPaused         a run that a tool started waits, and its call with it         when it was decided
        └── ReplayDiverged       a replayed run asks for something that was not recorded       no
            └── TurnCutOff       (agent/cassettes/recording.py) the recorded turn has no end   no

"again?" says whether the same call may succeed later. A model's mistake is never an exception: it is data
(`MalformedCall`, a failed `ToolResult`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Literal


class ToolspeakError(Exception):
    """The root of the tree; catch it to catch everything of ours."""


class ConfigurationError(ToolspeakError):
    """The caller asked for something that does not exist or does not fit; the message says what does."""


class UnknownDialect(ConfigurationError):
    """No dialect has this name."""


class UnknownProvider(ConfigurationError):
    """A model string names no known provider, or lacks what the provider needs."""


class UnknownTool(ConfigurationError):
    """No tool has this name."""


class ToolDefinitionError(ConfigurationError):
    """A function cannot become a tool: the message names the parameter and the remedy."""


class FormatError(ToolspeakError):
    """Data is of an unknown format version or shape; the message names the place.

    `details` is what programs read beside the message, in the words of the format.
    """

    def __init__(self, message: str, *, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.details = details


class ToolError(ToolspeakError):
    """Raise it in a tool to fail the call with a message the model can act on.

    Any other exception fails the call too, with its type in front of its message.
    """


class AgentStop(ToolspeakError):
    """Raise it in a tool, an interceptor or an approver to end the run: no further call of the batch is started.

    `answer` is the run's answer then; without one the run ends unanswered. It comes out of `Executor.run` once the
    batch's results are recorded; `batch` holds them.
    """

    def __init__(self, message: str = "", *, answer: str | None = None) -> None:
        super().__init__(message)
        self.answer = answer
        self.batch: Any = None  # a Batch; the rooms above are not known here


class ToolFailed(ToolspeakError):
    """A call failed, and the executor was told to end its batch at the first that does.

    Comes out of `Executor.run` once all results are recorded; `batch` holds them, `execution` the one that failed.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.batch: Any = None
        self.execution: Any = None


ProviderErrorCode = Literal[
    "authentication",  # no key, a wrong one, or one that may not
    "quota",  # no credit left, or a limit that does not pass by itself soon
    "rate_limit",  # too many requests or tokens just now
    "overloaded",  # the server failed, or has too much to do
    "connection",  # no answer, or one that stopped in the middle
    "context_length",  # the conversation is longer than the model's window
    "content_filter",  # refused for what is said in it
    "not_found",  # no such model or address
    "bad_request",  # something in the request is not as the API wants it
    "forgotten",  # the server does not keep the earlier response that the request builds on
    "ill_formed",  # the answer is not what the API's documentation says
    "other",
]


class ProviderError(ToolspeakError):
    """The model API failed.

    `status` is the HTTP status (None when no response came); `retryable` says whether the same
    request may succeed later, `retry_after` in how many seconds at the earliest. `code` says what kind of failure it
    is. `unread` is what the model wrote where the server could make no call of it (Groq). `result` is the RunResult of
    the run it ended, when it comes out of `Agent.run`.
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

    def retold(self, message: str, code: ProviderErrorCode | None = None) -> ProviderError:
        """The same failure in other words. With `code` it is another kind, which no waiting mends."""
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
    """A run cannot go on from where it is; the message says what is missing."""


class SubRunPaused(RunError):
    """A run that a tool started waits for approval, or was suspended. Let it pass: the tool's call waits with it, and
    is made again when the run can go on. `result` is its RunResult."""

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result  # a RunResult; the rooms above are not known here


class RunConflict(RunError):
    """Somebody else has gone on with the run or the session since it was read."""


class RunBusy(RunError):
    """Another process holds the run; the message says which, and until when."""


class LeaseLost(RunError):
    """The run was taken over by another process: this one must do nothing more for it."""


class ReplayDiverged(RunError):
    """A run to which a recording is played asks for something that is not in it; the message says where, what is
    different, and what to do."""


class JournalError(ToolspeakError):
    """The journal cannot be read or written; the message names the place and the remedy."""


def suggest(name: str, options: Iterable[str]) -> str:
    """`'hermez'; did you mean 'hermes'? Known: …`: the tail of every "unknown name" message."""
    names = sorted(options)
    spelled = {option.lower(): option for option in names}
    close = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.5)
    hint = f" Did you mean {spelled[close[0]]!r}?" if close else ""
    return f"{name!r}.{hint} Known: {', '.join(names) or '(none)'}."
