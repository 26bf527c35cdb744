"""Reading a call's arguments, and the one message that tells a model all that is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolspeak.data.messages import ToolCall, ToolResult, failure
from toolspeak.execute.results import describe
from toolspeak.execute.secrets import Secrets
from toolspeak.tools.tool import Tool


def read_arguments(tool: Tool, call: ToolCall, secrets: Secrets) -> Mapping[str, Any] | ToolResult:
    """The function's keyword arguments with secrets revealed, or the failure that lists every problem.

    The values stay within the executor until the function runs: what an approver, an interceptor or a
    journal sees is the call, which holds placeholders.
    """
    try:
        found = tool.read_arguments(secrets.reveal(call.arguments))
    except Exception as error:  # noqa: BLE001 - a validator of the tool's own may raise anything
        return failure(call, "invalid_arguments", f"the arguments of {tool.name!r} cannot be read: {describe(error)}")
    if not isinstance(found, tuple):
        return found
    listed = "\n".join(f"- {problem.message}" for problem in found)
    return failure(call, "invalid_arguments", f"the arguments of {tool.name!r} do not fit:\n{listed}")
