"""Calls that are there to their end, with nothing in their values that might be a tag: read in one step.

So are most calls of a text that comes whole. The states of a body would say the same of them, ten times as slowly; they
read every other call.
"""

from __future__ import annotations

import re

from toolspeak.data.values import quick

GAP = r"[ \t\r\n]*+"
"""White space between tags."""


@quick()
class WholeCall:
    """`call` matches one: its name, and all its arguments. `argument` finds each of these: its name, what its tag says
    about the value (may be empty; there is none in function notation), and the value."""

    call: re.Pattern[str]
    argument: re.Pattern[str]


def whole_call(start: str, argument: str, end: str, joint: str = GAP) -> WholeCall:
    """The patterns of a call: `start` has one group, the name; `argument` has `key`, `said` (but in function notation)
    and `value`. `joint` is what follows each argument."""
    return WholeCall(re.compile(rf"{start}{GAP}((?:{argument}{joint})*+){end}"), re.compile(argument))


def text_without(*tags: str) -> str:
    """A pattern of text in which none of these tags begins. They begin with the same character."""
    first = re.escape(tags[0][0])
    rest = "|".join(re.escape(tag[1:]) for tag in tags)
    return f"[^{first}]*+(?:{first}(?!{rest})[^{first}]*+)*+"
