"""A cassette's file as what was recorded."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from toolspeak.agent.cassettes.cassette_lines import ERROR_FIELDS, delta_of, fact_of, read_lines, standing_of, stop_of
from toolspeak.agent.cassettes.cassette_requests import restore_request
from toolspeak.data.codec import load
from toolspeak.data.deltas import Delta
from toolspeak.data.events import ApprovalDecided, SubRunUsed
from toolspeak.data.messages import JSON, ToolResult
from toolspeak.data.values import quick
from toolspeak.errors import AgentStop, ConfigurationError, FormatError, ProviderError
from toolspeak.execute import RecordedResult
from toolspeak.execute.approval.approvers import StandingApprover
from toolspeak.providers.capabilities import Capabilities

_NUMBER = re.compile(r"(?<=^call_)\d+")


def in_turn(call_id: str) -> str:
    """A call's id without the number of its turn: where a turn was lost with its process, those after it count on."""
    return _NUMBER.sub("", call_id)


@quick()
class PlayedTurn:
    request: dict[str, JSON]
    digest: str
    answer: tuple[Delta, ...]
    error: ProviderError | None
    provider: int = 0
    is_cut: bool = False
    took: float | None = None


@quick()
class PlayedCall:
    """`arguments` is None where the function was not called."""

    name: str
    arguments: JSON
    recorded_result: RecordedResult
    at: float = 0.0


@quick()
class PlayedAnswer:
    """What was said to a question about a call: a decision, or that the run ends; neither where the run paused."""

    name: str
    arguments: JSON
    preview: str = ""
    decision: ApprovalDecided | None = None
    stop: AgentStop | None = None
    reason: str = ""
    revised_preview: str | None = None
    at: float = 0.0

    @property
    def escalated(self) -> bool:
        return self.decision is None and self.stop is None


@dataclass(slots=True)
class CassetteContent:
    """What a file holds. Calls and answers stand with the number of requests ahead of them (a cassette may hold
    several runs, and in each a call of this id) and `in_turn` of their id. `at` is when they came, in seconds from the
    turn's end on, or since the run continued; `took` how many seconds a turn took. `requests` and `before` count what a
    resumed run asked again too."""

    id: str = ""
    providers: list[tuple[str, Capabilities]] = field(default_factory=list[tuple[str, Capabilities]])
    turns: list[PlayedTurn] = field(default_factory=list[PlayedTurn])
    calls: dict[tuple[int, str], PlayedCall] = field(default_factory=dict[tuple[int, str], PlayedCall])
    answers: dict[tuple[int, str, bool], deque[PlayedAnswer]] = field(
        default_factory=dict[tuple[int, str, bool], deque[PlayedAnswer]]
    )
    standing: dict[int, StandingApprover | None] = field(default_factory=dict[int, StandingApprover | None])
    requests: int = 0
    before: dict[str, JSON] | None = None


def read_recording(path: Path) -> CassetteContent:
    """Raises ConfigurationError for a file that is no recording, naming the line."""
    lines, content = read_lines(path), CassetteContent()
    reader = _RecordingReader(content)
    try:
        content.id = str(lines[0].get("id", ""))
        reader.provider(lines[0])
        content.standing[0] = standing_of(lines[0])
    except (LookupError, TypeError, ValueError, AttributeError):
        raise ConfigurationError(f"{path}, line 1: names no provider; record the run again") from None
    for number, line in enumerate(lines[1:], 2):
        try:
            reader.read(line)
        except (LookupError, TypeError, ValueError, AttributeError, FormatError) as error:
            raise ConfigurationError(f"{path}, line {number}: is no line of a recording: {error!r}") from None
    return content


class _RecordingReader:
    def __init__(self, content: CassetteContent) -> None:
        self._content = content
        self._sub_runs: list[SubRunUsed] = []
        self._is_resumed = False

    def read(self, line: dict[str, Any]) -> None:
        if "turn" in line:
            self._turn(line)
        elif "call" in line:
            self._call(line)
        elif "approval" in line:
            self._answer(line)
        elif "spent" in line:
            sub_run_usage = load({"format": 1, **line["spent"]})
            if not isinstance(sub_run_usage, SubRunUsed):
                raise TypeError("its usage is not usage")
            self._sub_runs.append(sub_run_usage)
        elif "resumed" in line:
            self._resumption(line)
        else:
            self.provider(line)
            if "standing" in line:
                self._content.standing[len(self._content.turns)] = standing_of(line)

    def provider(self, line: dict[str, Any]) -> None:
        names = {each.name for each in fields(Capabilities)}
        capability_fields = cast("dict[str, Any]", line["capabilities"])
        capabilities = Capabilities(**{name: capability_fields[name] for name in capability_fields if name in names})
        self._content.providers.append((line["provider"], capabilities))

    def _turn(self, line: dict[str, Any]) -> None:
        content = self._content
        request = restore_request(line["asked"], content.before)
        failure = line.get("error")
        error = ProviderError(failure["message"], **{name: failure[name] for name in ERROR_FIELDS}) if failure else None
        answer, provider, is_cut = tuple(map(delta_of, line["answer"])), line.get("provider", 0), line.get("cut", False)
        turn = PlayedTurn(request, line["digest"], answer, error, provider, is_cut, line.get("took"))
        if self._is_resumed and content.turns:
            last = content.turns[-1]
            if last.is_cut or last.digest == turn.digest:  # or the process died before it was journaled
                content.turns.pop()
        content.turns.append(turn)
        content.requests, content.before, self._is_resumed = content.requests + 1, request, False

    def _call(self, line: dict[str, Any]) -> None:
        result = load({"format": 1, **line["result"]})
        if not isinstance(result, ToolResult):
            raise TypeError("its result is not a result")
        recorded_result = RecordedResult(
            result,
            stop_of(line.get("stop")),
            line.get("recalled", False),
            line.get("skipped", False),
            tuple(self._sub_runs),
        )
        self._sub_runs.clear()
        place = len(self._content.turns), in_turn(line["call"])
        self._content.calls[place] = PlayedCall(
            line["name"], line.get("arguments"), recorded_result, line.get("at", 0.0)
        )

    def _answer(self, line: dict[str, Any]) -> None:
        fact = line.get("answer")
        answer = PlayedAnswer(
            line["name"],
            line["arguments"],
            line.get("preview", ""),
            fact_of(fact) if fact else None,
            stop_of(line.get("stop")),
            line.get("escalated", ""),
            line["revised"][0] if "revised" in line else None,
            line.get("at", 0.0),
        )
        place = len(self._content.turns), in_turn(line["approval"]), line.get("in_doubt", False)
        self._content.answers.setdefault(place, deque()).append(answer)

    def _resumption(self, line: dict[str, Any]) -> None:
        content, here = self._content, len(self._content.turns)
        self._is_resumed = True
        for call_id in line["open"]:
            content.calls.pop((here, in_turn(call_id)), None)
        for call_id in line["undecided"]:
            place = here, in_turn(call_id), False
            if place in content.answers:
                content.answers[place] = deque(answer for answer in content.answers[place] if answer.escalated)
        content.standing[here] = standing_of(line)
