"""Every exception toolspeak raises, and nothing else.

    ToolspeakError
    ├── UsageError               the caller's mistake: a wrong name, option or combination
    │   ├── UnknownDialect
    │   ├── UnknownProvider
    │   ├── UnknownTool
    │   └── ToolDefinitionError  a function that cannot become a tool
    ├── FormatError              stored data that this version cannot read
    ├── ToolError                raised by a tool: its message goes to the model
    ├── ProviderError            the model API failed (status, retryable)
    └── RunError                 a run that cannot go on (for instance resumed without a decision)

A model's mistake is never an exception: it is data (`MalformedCall`, a failed `ToolResult`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ToolspeakError(Exception):
    """The root of the tree; catch it to catch everything of ours."""


class UsageError(ToolspeakError):
    """The caller asked for something that does not exist or does not fit; the message says what does."""


class UnknownDialect(UsageError):
    """No dialect has this name."""


class UnknownProvider(UsageError):
    """A model string names no known provider, or lacks what the provider needs."""


class UnknownTool(UsageError):
    """No tool has this name."""


class ToolDefinitionError(UsageError):
    """A function cannot become a tool: the message names the parameter and the remedy."""


class FormatError(ToolspeakError):
    """Stored data is of an unknown format version or shape; the message names the place."""


class ToolError(ToolspeakError):
    """Raise it in a tool to fail the call with a message the model can act on.

    Any other exception fails the call too, with its type in front of its message.
    """


class ProviderError(ToolspeakError):
    """The model API failed.

    `status` is the HTTP status (None when no response came); `retryable` says whether the same
    request may succeed later.
    """

    def __init__(self, message: str, *, status: int | None = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable


class RunError(ToolspeakError):
    """A run cannot go on from where it is; the message says what is missing."""


def suggest(name: str, known: Iterable[str]) -> str:
    """`'hermez'; did you mean 'hermes'? Known: …`: the tail of every "unknown name" message."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"{name!r}.{hint} Known: {', '.join(names) or '(none)'}."
