"""What the schedule made of the calls: which waited for which, and where a declaration would have let them overlap."""

from __future__ import annotations

from collections.abc import Iterable

from toolspeak.data.events import ToolStarted
from toolspeak.data.tools import EVERYTHING
from toolspeak.data.values import quick


@quick()
class Wait:
    """A call that might only start once others of its batch had finished, by id."""

    call_id: str
    name: str
    waited_for: tuple[str, ...]


def waits(started: Iterable[ToolStarted]) -> tuple[Wait, ...]:
    """The calls that waited, in the order they started."""
    return tuple(Wait(each.call_id, each.name, each.waited_for) for each in started if each.waited_for)


def hints(started: Iterable[ToolStarted]) -> tuple[str, ...]:
    """For each tool whose calls waited, or were waited for, only because it says too little: what to declare."""
    calls = {each.call_id: each for each in started}
    vague: dict[tuple[str, str], set[str]] = {}
    for call in calls.values():
        for earlier in (calls[name] for name in call.waited_for if name in calls):
            for one in (call, earlier):
                what = _vague(one)
                if what:
                    vague.setdefault((one.name, what), set()).add(call.call_id)
    return tuple(_hint(name, what, len(waiting)) for (name, what), waiting in vague.items())


def _vague(call: ToolStarted) -> str:
    effects = call.effects
    if effects is None:
        return ""
    if not effects.declared:
        return "does not declare what it touches"
    return "may read anything" if EVERYTHING in effects.reads and effects.read_only else ""


def _hint(name: str, what: str, count: int) -> str:
    waited = "1 call had" if count == 1 else f"{count} calls had"
    return (
        f"{name} {what}, so {waited} to wait; with @tool(effects=…) it would run beside calls that touch something else"
    )
