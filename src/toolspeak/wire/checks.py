"""What no request may say, whatever its format."""

from __future__ import annotations

from collections.abc import Iterable

from toolspeak.errors import UsageError
from toolspeak.wire.base import ModelRequest


def check_request(request: ModelRequest, own: Iterable[str], *, format_name: str, grammars: bool = False) -> None:
    """Raises UsageError for an option that is one of the format's `own` fields, and for a grammar where the format has
    no place for one."""
    for name in own:
        if name in request.options:
            raise UsageError(f"the option {name!r} cannot be set: the request's own {name} goes there")
    if request.constraint is not None and not grammars:
        raise UsageError(
            f"{format_name} requests carry no grammar; leave the constraint (Capabilities.grammar of its provider) out"
        )
