"""What a program shows of a run in progress: the model's text, or the answer so far."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Generic

from toolspeak.agent.result import result_of
from toolspeak.agent.run import Run
from toolspeak.agent.state.output import FINAL_TOOL, AnswerT, OutputT
from toolspeak.agent.state.partial_output import ABSENT
from toolspeak.data.deltas import ArgumentsDelta, CallStarted, TextDelta, TextWasReasoning, TurnRestarted
from toolspeak.data.events import ModelAsked, Record, RunFinished
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError

_BETWEEN_TURNS = "\n\n"


async def stream_text(run: Run[Any], *, accumulated: bool = False) -> AsyncGenerator[str]:
    """Yields the model's text as it comes, without its thoughts and calls. Leaving the loop early cancels the run.

    Each item is a piece, and a blank line separates the texts of two turns. `accumulated`: each item is the whole
    text of the turn so far, so the last one is the answer. An answer that no turn wrote as text (that of a tool or an
    interceptor) comes at the end.

    Text that proves to be reasoning, or belongs to a turn that is requested again, is taken back if `accumulated`: the
    next item begins anew. A run that has no answer ends the loop, and `run.state` says why. Raises ProviderError when
    the model API fails.
    """
    turn, earlier = "", False
    async with aclosing(run.stream()) as items:
        async for item in items:
            if type(item) is TextDelta and item.text:
                piece = _BETWEEN_TURNS + item.text if earlier and not turn and not accumulated else item.text
                turn += item.text
                yield turn if accumulated else piece
            elif type(item) is TextWasReasoning or type(item) is TurnRestarted:
                turn, earlier = "", earlier or bool(turn)
                if accumulated:
                    yield ""
            elif isinstance(item, Record) and type(item.event) is ModelAsked:
                turn, earlier = "", earlier or bool(turn)
            elif isinstance(item, Record) and type(item.event) is RunFinished:
                answer, turn_text = item.event.answer.strip(), turn.strip()
                if not answer or answer == turn_text:
                    continue
                if accumulated:
                    yield item.event.answer
                elif turn_text and answer.startswith(turn_text):
                    yield answer.removeprefix(turn_text)
                else:
                    yield _BETWEEN_TURNS + answer if earlier or turn_text else answer


@quick()
class StreamedOutput(Generic[AnswerT]):
    """One item of `stream_output`: the answer so far, or the answer."""

    value: AnswerT
    """What there is of the answer. An incomplete model or dataclass has no attributes for missing fields without a
    default, and an incomplete TypedDict has no keys for them."""
    attempt: int
    """Which answer of the run this is, from 1. If it grows, the values of the attempts before are taken back."""
    is_final: bool
    """Whether this is the whole, validated answer of the run: the last item, and the only one that passes the checks of
    the whole class."""


async def stream_output(run: Run[OutputT]) -> AsyncGenerator[StreamedOutput[OutputT]]:
    """Yields the answer so far, as the agent's output type, then the whole, validated answer, which says `is_final`.
    Leaving the loop early cancels the run.

    Each field is validated on its own. An answer that is refused (it is not of the type, its call may not run, its turn
    is requested again) is taken back: the items of the model's next answer have a higher `attempt`.

    Raises RunError if the run ends without an answer or pauses, ConfigurationError for an agent without an output type,
    ProviderError when the model API fails.
    """
    answer_type = run.answer_type
    if answer_type is None:
        raise ConfigurationError("stream_output needs the type of the answer: Agent(output=…)")
    answer, is_call, index = answer_type.partial(), answer_type.mode == "tool", -1
    attempt, is_shown = 1, False
    async with aclosing(run.stream()) as items:
        async for item in items:
            piece = ""
            if (type(item) is TextDelta and not is_call) or (type(item) is ArgumentsDelta and item.index == index):
                piece = item.text
            elif type(item) is CallStarted and is_call and item.name == FINAL_TOOL:
                index = item.index
                answer.reset()
                attempt, is_shown = attempt + is_shown, False
            elif type(item) in (TextWasReasoning, TurnRestarted) or (
                isinstance(item, Record) and type(item.event) is ModelAsked
            ):
                index = -1
                answer.reset()
                attempt, is_shown = attempt + is_shown, False
            value = answer.add(piece) if piece else ABSENT
            if value is not ABSENT:
                is_shown = True
                yield StreamedOutput(value, attempt, is_final=False)
    yield StreamedOutput(result_of(run).output, attempt, is_final=True)
