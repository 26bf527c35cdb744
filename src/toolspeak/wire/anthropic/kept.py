"""Content blocks of Anthropic's Messages API that go back as they came: calls of tools that its own servers run, their
results, citations of a text. Sans-IO.

Source: Anthropic, "Server tools" and "Handling stop reasons" (a turn that ended with `pause_turn` goes on when its
content is sent back as it is), "Web search tool" (encrypted content and citations go back in later turns).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

from toolspeak.data.deltas import PartEnded
from toolspeak.data.messages import JSON, Opaque

Block = dict[str, JSON]


class KeptBlocks:
    """Those of one answer while it comes. `opaque` marks data as this model's own."""

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[Block, list[str]]] = {}
        self._citations: dict[int, list[JSON]] = {}
        self.cites = False
        """Whether a text of this answer has citations: then every text is a part of its own, as it was written."""

    def start(self, index: int, block: Block) -> None:
        """A block of a type that is not ours to read."""
        self._blocks[index] = dict(block), []

    def add(self, index: int, fragment: str) -> None:
        """A piece of the input of a server's call."""
        if index in self._blocks:
            self._blocks[index][1].append(fragment)

    def cite(self, index: int, citations: JSON) -> None:
        found = cast("Sequence[JSON]", citations) if isinstance(citations, list) else ()
        if found:
            self.cites = True
            self._citations.setdefault(index, []).extend(found)

    def stop(self, index: int) -> tuple[str, JSON] | None:
        """What of the block that ends here goes back with the conversation: of which part it is, and the data."""
        if index in self._blocks:
            block, pieces = self._blocks.pop(index)
            if pieces and not (block.get("input")):
                try:
                    block["input"] = json.loads("".join(pieces))
                except (ValueError, RecursionError):
                    return None  # cut off: no server ran it
            return "reasoning", {"block": block}
        if self.cites:
            citations = self._citations.pop(index, None)
            return "text", {"citations": citations} if citations else {}
        return None


def kept_part(part: str, opaque: Opaque) -> PartEnded:
    return PartEnded("text" if part == "text" else "reasoning", opaque)


def without_unanswered(turns: Sequence[tuple[str, list[Block]]]) -> None:
    """Leaves out calls of the API's own tools that have no result, for it refuses a conversation with one.

    Not at the end of the conversation, nor with the results of our calls behind them: those it goes on with.
    """
    answered = {block["tool_use_id"] for _, blocks in turns for block in blocks if _answers(block)}
    last = max((at for at, (role, _) in enumerate(turns) if role == "assistant"), default=-1)
    goes_on = all(block["type"] == "tool_result" for _, blocks in turns[last + 1 :] for block in blocks)
    for at, (role, blocks) in enumerate(turns):
        if role == "assistant" and not (at == last and goes_on):
            blocks[:] = [block for block in blocks if not _is_call(block) or block.get("id") in answered]


def _is_call(block: Mapping[str, JSON]) -> bool:
    return block["type"] != "tool_use" and str(block["type"]).endswith("_tool_use")


def _answers(block: Mapping[str, JSON]) -> bool:
    return block["type"] != "tool_result" and isinstance(block.get("tool_use_id"), str)
