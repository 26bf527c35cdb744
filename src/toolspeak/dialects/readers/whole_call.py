"""The fast path for calls that are complete in one chunk and hold no possible tag in a value: one match reads them.

Most calls of a text that arrives whole are such calls. The states of a body give the same result in ten times the time,
and read all other calls.
"""

from __future__ import annotations

import re

from toolspeak.data.values import quick

GAP = r"[ \t\r\n]*+"
"""The pattern of white space between tags."""


@quick()
class WholeCall:
    """The patterns of whole calls."""

    call: re.Pattern[str]
    """Matches a call; the groups are its name and the text of all its arguments."""
    argument: re.Pattern[str]
    """Finds each argument; the groups are its name, the type in its tag (not in function notation), and its value."""


def whole_call(start: str, argument: str, end: str, joint: str = GAP) -> WholeCall:
    """Makes the patterns of a call.

    `start`: the beginning; its one group is the name.
    `argument`: an argument with the groups `key`, `type` (not in function notation) and `value`.
    `end`: the end of the call.
    `joint`: the text after each argument.
    """
    return WholeCall(re.compile(rf"{start}{GAP}((?:{argument}{joint})*+){end}"), re.compile(argument))


def text_without(*tags: str) -> str:
    """The pattern of text in which none of these tags begins. All tags have the same first character."""
    first = re.escape(tags[0][0])
    rest = "|".join(re.escape(tag[1:]) for tag in tags)
    return f"[^{first}]*+(?:{first}(?!{rest})[^{first}]*+)*+"
