"""`read_result`: shows a long result page by page."""

from __future__ import annotations

from typing import Any

from toolspeak.data.tools import Effects
from toolspeak.errors import ToolError
from toolspeak.tools import RunContext, Tool, tool
from toolspeak.tools.stored_results import KEY, READ_RESULT, stored_result

PAGE = 4_000
"""Characters of a page: at most 16 KiB in UTF-8."""


def read_result_tool() -> Tool:
    """The tool `read_result`: pages through a result that the model reads shortened."""

    def effects(handle: str) -> Effects:
        return Effects(reads={f"result:{handle}"}, idempotent=True, destructive=False)

    @tool(name=READ_RESULT, effects=effects, effects_bound=Effects(reads={"result:"}, idempotent=True))
    def read_result(ctx: RunContext[Any], handle: str, offset: int = 0, find: str = "") -> str:
        """Read on in a result that was shown shortened.

        Returns up to 4,000 characters and says where the next page starts.

        Args:
            handle: The handle that the shortened result names.
            offset: The character to start at, from 0.
            find: Start at the first place at or after `offset` that contains this text.
        """
        text = stored_result(ctx.memory, handle)
        if text is None:
            result_ids = ", ".join(ctx.memory.get(KEY, ())) or "none"
            raise ToolError(f"There is no result {handle!r} (any more): make the call again. Kept are: {result_ids}.")
        start = _start(text, offset, find)
        end = min(len(text), start + PAGE)
        more = f"; next page: offset={end}" if end < len(text) else "; this is the end"
        return f"[characters {start} to {end} of {len(text)}{more}]\n{text[start:end]}"

    return read_result


def _start(text: str, offset: int, find: str) -> int:
    if not 0 <= offset < max(1, len(text)):
        raise ToolError(f"'offset' is {offset}: the result has characters 0 to {len(text) - 1}.")
    if not find:
        return offset
    place = text.find(find, offset)
    if place < 0:
        raise ToolError(f"{find!r} does not occur at or after character {offset}.")
    return place
