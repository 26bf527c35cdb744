"""The pieces of a turn as they are shown while the model writes: without secrets, even one that is cut in two."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from toolspeak.data.deltas import (
    ArgumentsDelta,
    CallCompleted,
    CallMalformed,
    CallStarted,
    Delta,
    ForgedResults,
    ReasoningDelta,
    TextAside,
    TextDelta,
    TurnEnded,
)
from toolspeak.execute import Secrets

_Prose = TextDelta | TextAside | ReasoningDelta


class Shown:
    """Passes the deltas of one turn on with placeholders for secrets; `TurnEnded` is not passed on.

    Of text, reasoning and arguments an end that may be the beginning of a secret waits for what follows. Nothing else
    waits, and the order stays: text and reasoning that wait go on when something else comes, arguments when their call
    is complete.
    """

    def __init__(self, secrets: Secrets, publish: Callable[[Delta], Awaitable[None] | None]) -> None:
        self._secrets = secrets
        self._publish = publish
        self._prose: _Prose | None = None
        self._arguments: dict[int, str] = {}

    async def put(self, delta: Delta) -> None:
        """The next delta of the turn."""
        match delta:
            case TextDelta() | TextAside() | ReasoningDelta():
                await self._put_prose(delta)
                return
            case ArgumentsDelta(index, text):
                await self._end_prose()
                await self._put_arguments(index, text)
                return
            case _:
                await self._end_prose()
        match delta:
            case TurnEnded():
                for index in tuple(self._arguments):
                    await self._end_arguments(index)
            case CallCompleted(index):
                await self._end_arguments(index)
                raw = None if delta.repaired_from is None else self._secrets.hide_text(delta.repaired_from)
                delta = replace(delta, arguments=self._secrets.hide(delta.arguments), repaired_from=raw)
                await self._pass_on(self._named(delta))
            case CallStarted():
                await self._pass_on(self._named(delta))
            case CallMalformed(index):
                await self._end_arguments(index)
                hide = self._secrets.hide_text
                name = None if delta.name is None else self._secrets.hide_name(delta.name)
                await self._pass_on(replace(delta, raw=hide(delta.raw), reason=hide(delta.reason), name=name))
            case ForgedResults(raw):
                await self._pass_on(ForgedResults(self._secrets.hide_text(raw)))
            case _:
                await self._pass_on(delta)

    def _named(self, delta: CallStarted | CallCompleted) -> Delta:
        hide = self._secrets.hide_name
        return replace(delta, name=hide(delta.name), id=None if delta.id is None else hide(delta.id))

    async def _pass_on(self, delta: Delta) -> None:
        waits = self._publish(delta)
        if waits is not None:
            await waits

    async def _put_prose(self, delta: _Prose) -> None:
        held, text = self._prose, delta.text
        if held is not None and type(held) is type(delta):
            text = held.text + text
        else:
            await self._end_prose()
        certain = self._secrets.certain(text)
        self._prose = replace(delta, text=text[certain:]) if certain < len(text) else None
        if certain:
            await self._pass_on(replace(delta, text=self._secrets.hide_text(text[:certain])))

    async def _end_prose(self) -> None:
        held, self._prose = self._prose, None
        if held is not None:
            await self._pass_on(replace(held, text=self._secrets.hide_text(held.text)))

    async def _put_arguments(self, index: int, text: str) -> None:
        text = self._arguments.pop(index, "") + text
        certain = self._secrets.certain(text)
        if certain < len(text):
            self._arguments[index] = text[certain:]
        if certain:
            await self._pass_on(ArgumentsDelta(index, self._secrets.hide_text(text[:certain])))

    async def _end_arguments(self, index: int) -> None:
        held = self._arguments.pop(index, "")
        if held:
            await self._pass_on(ArgumentsDelta(index, self._secrets.hide_text(held)))
