"""Lists of tools that say the same, as one object."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from pydantic_core import PydanticSerializationError, to_json

from toolspeak.data.tools import ToolSpec

MOST_LISTS = 64
"""As many as dialects keep what they made of one (`dialects.readers.known_readers`)."""

LARGEST_BYTES = 256 * 1024
"""Of a list as JSON; a larger one is not kept, so that clients cannot fill the memory."""


class KnownTools:
    """Every request brings its tools anew; prompts and parsers are kept by the objects, a millisecond for each list."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Sequence[ToolSpec]] = OrderedDict()

    def known(self, tools: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        """The first list that said the same, as long as it is kept."""
        if not tools:
            return tools
        try:
            said = to_json([(tool.name, tool.description, tool.parameters, tool.extra) for tool in tools])
        except (PydanticSerializationError, UnicodeEncodeError):  # a lone surrogate, which no JSON in UTF-8 can carry
            return tools
        found = self._known.get(said)
        if found is not None:
            self._known.move_to_end(said)
            return found
        if len(said) <= LARGEST_BYTES:
            self._known[said] = tools
            if len(self._known) > MOST_LISTS:
                self._known.popitem(last=False)
        return tools
