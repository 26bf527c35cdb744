"""The tool `find_tools`: definitions that a model can find, and their names by group."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from toolspeak.data.messages import TextPart
from toolspeak.data.tools import FOUND_TOOLS, Effects, ToolSpec
from toolspeak.tools.decorator import tool
from toolspeak.tools.returned_values import ReturnValue
from toolspeak.tools.tool import Tool
from toolspeak.tools.tool_index import ToolIndex

FIND_TOOLS = "find_tools"
"""The name of the tool that finds others."""

BEST = 5
"""How many tools one search finds."""

LISTING_CHARACTERS = 6_000
"""The most characters of the list of names, about 1,500 tokens."""

_LINE_CHARACTERS = 160  # of a description in the result of a search
_MOST_PARAMETERS = 12  # named there
_GROUP_PREFIX = re.compile(r"(.+?(?:__|[./:]))[^./:]")
_FIRST_PIECE = re.compile(r"([A-Za-z0-9]+_)[A-Za-z0-9]")
_INVISIBLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]+")

_DESCRIPTION = """\
Finds tools. There are {count} more tools than those that you see. When you need one, search for it in a few words \
that say what it does: the best {best} are added to your tools, and you can call them in your next turn.

The other tools by group, as `beginning of the names*: rest of each name`:
{listing}"""


class ToolCatalogue:
    """Definitions of tools that a model can find: their list by group, and the search."""

    def __init__(self, specs: Sequence[ToolSpec]) -> None:
        self.specs = specs

    @cached_property
    def _index(self) -> ToolIndex:
        return ToolIndex(self.specs)

    @cached_property
    def _groups(self) -> Mapping[str, Sequence[str]]:
        return by_group([spec.name for spec in self.specs])

    @cached_property
    def description(self) -> str:
        """What `find_tools` says of itself: it stays the same for as long as the tools do."""
        listing = listed_names(self._groups, LISTING_CHARACTERS)
        return _DESCRIPTION.format(count=len(self.specs), best=BEST, listing=listing)

    def search(self, query: str, group: str = "") -> tuple[str, list[str]]:
        """What the model reads about the tools that fit, and their names."""
        prefix = group.strip().rstrip("*")
        best = self._index.best(query, BEST, prefix)
        if not best and prefix:
            best = self._index.best(query, BEST)
        if not best:
            groups = listed_names(self._groups, LISTING_CHARACTERS // 2)
            return f"No tool fits: say in other words what the tool does. The groups are:\n{groups}", []
        lines = "\n".join(f"- {spec.name}: {_line_of(spec)}" for spec in best)
        return f"Added to your tools, the best first. Call the one that fits.\n{lines}", [spec.name for spec in best]

    def tool(self, name: str = FIND_TOOLS) -> Tool:
        """The tool `find_tools` for these definitions."""
        catalogue = self

        def find(query: str, group: str = "") -> ReturnValue:
            """
            Args:
                query: What the tool does, in a few words, or the tool's name.
                group: Only tools whose names begin so.
            """
            text, names = catalogue.search(query, group)
            return ReturnValue((TextPart(text),), extra={FOUND_TOOLS: [*names]} if names else {})

        effects = Effects(reads={"tools:"}, idempotent=True, destructive=False)
        return tool(find, name=name, description=self.description, effects=effects)


def by_group(names: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """The names by their group, each without it. A group is how names begin: up to `__`, `.`, `/` or `:`, or else up
    to a `_` if another name begins so. Names without a group are under ""."""
    whole, groups = [*names], dict[str, list[str]]()
    pieces: dict[str, int] = {}
    matches = [_GROUP_PREFIX.match(name) for name in whole]
    firsts = [None if match else _FIRST_PIECE.match(name) for name, match in zip(whole, matches, strict=True)]
    for first in firsts:
        if first is not None:
            pieces[first[1]] = pieces.get(first[1], 0) + 1
    for name, match, first in zip(whole, matches, firsts, strict=True):
        group = match[1] if match else first[1] if first is not None and pieces[first[1]] > 1 else ""
        groups.setdefault(group, []).append(name[len(group) :])
    return groups


def listed_names(groups: Mapping[str, Sequence[str]], most: int) -> str:
    """The groups as lines with as many names of each as fit into `most` characters."""
    sizes = sorted({len(names) for names in groups.values()} | {0})
    low, high = 0, sizes[-1] if sizes else 0
    if _size(groups, 0) > most:
        return _groups_alone(groups, most)
    while low < high:  # the most names of a group that still fit
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _size(groups, middle) <= most else (low, middle - 1)
    return "\n".join(_group_line(group, names, low) for group, names in groups.items())


def _size(groups: Mapping[str, Sequence[str]], most_names: int) -> int:
    return sum(len(_group_line(group, names, most_names)) + 1 for group, names in groups.items())


def _group_line(group: str, names: Sequence[str], most_names: int) -> str:
    more = len(names) - most_names
    texts = [*names[:most_names], *([f"… {more} more" if most_names else f"{more} tools"] if more > 0 else [])]
    return f"{group or 'others'}{'*' if group else ''}: {', '.join(texts)}"


def _groups_alone(groups: Mapping[str, Sequence[str]], most: int) -> str:
    lines: list[str] = []
    size = 0
    for group, names in sorted(groups.items(), key=lambda entry: -len(entry[1])):
        line = _group_line(group, names, 0)
        size += len(line) + 1
        if size > most:
            break
        lines.append(line)
    return "\n".join([*lines, f"… {len(groups) - len(lines)} more groups"])


def _line_of(spec: ToolSpec) -> str:
    """A tool in a line. Its description comes from whoever made the tool, and is data."""
    text = " ".join(_INVISIBLE.sub(" ", spec.description[: 4 * _LINE_CHARACTERS]).split())
    if len(text) > _LINE_CHARACTERS:
        text = text[: _LINE_CHARACTERS - 1] + "…"
    names = [_INVISIBLE.sub(" ", name)[:60] for name in [*spec.properties][:_MOST_PARAMETERS]]
    return f"{text} ({', '.join(names)})" if names else text
