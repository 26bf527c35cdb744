"""`verify`: checks whether a call took effect that was started and has no result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from toolspeak.data.values import quick
from toolspeak.tools.context import RunContext


@quick()
class Happened:
    """The call took effect; `value` is what its function would have returned."""

    value: Any


class Verify(Protocol):
    """Checks whether a call took effect, from its validated arguments and its context (with the idempotency key).

    `Happened(value)` or True: it took effect. False: it did not; the call runs again. None: that cannot be known.
    """

    def __call__(self, arguments: Mapping[str, Any], context: RunContext[Any]) -> Any: ...
