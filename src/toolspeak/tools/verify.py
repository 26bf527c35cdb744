"""`verify`: checks whether a call took effect that was started and has no result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from toolspeak.data.values import quick
from toolspeak.tools.context import RunContext


@quick()
class VerifiedResult:
    """The call took effect. `value`: the value that its function would have returned."""

    value: Any


class Verify(Protocol):
    """Checks whether a call took effect, from its validated arguments and its context (with the idempotency key).

    Returns `VerifiedResult(value)` or True if it took effect; False if it did not, and the call runs again; None if
    that is unknown.
    """

    def __call__(self, arguments: Mapping[str, Any], context: RunContext[Any]) -> Any: ...
