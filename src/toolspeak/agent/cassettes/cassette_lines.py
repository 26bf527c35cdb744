"""The lines of a cassette.

The format (JSON Lines, UTF-8; version 1, this file is its definition). The first line names it, with an `id` of its
own, and the provider, with what that can do. Then, as they came, a line for each

- further `provider` that a driver asks, counted from 1;
- request: `turn` (counted from 1), `asked` (what it has not in common with the request before: `same` is how many of
  its first messages it shares with that, tools are left out if they are the same), its `digest`, and the `answer`: a
  text is a piece of text, all else as `data.codec` writes it; with `error` if the model's API failed after it, the
  number of its `provider` if that is not the first, and `cut` if it was cancelled;
- result of a tool's function: the `call`'s id, its name and arguments, and the `result` as `data.codec` writes it,
  whole and before any interceptor; with `stop` if it ended the run, `recalled` if an earlier result was given in its
  place, `skipped` if the function was not called;
- question about a call: the `approval`'s call id, its name, arguments and preview, and the `answer` as an
  `ApprovalDecided`, `escalated` with the reason, or the `stop` that ended the run; `later` if the run had paused and
  continued it, `in_doubt` if it was about running a call a second time, `revised` with the preview of other
  arguments that were asked about before they were decided;
- run that a tool started: what it `spent`, as `SubRunUsed`, ahead of the tool's result;
- run that continued after a pause or an interruption: `resumed` is its id, `open` its calls without a result,
  `undecided` those about which nothing was decided. What the lines above say about these calls happened again after it.

Times are in seconds: a turn `took` so long, and a result or an answer came `at` such a time after the turn's end, or
after the moment at which the run continued.

`standing`, where a provider is named and where a run continued, is the standing answer to every question.
Secrets are placeholders in all of it, and what a provider sends beside a request (headers, keys) is not part of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from toolspeak.data.approvals import Decision
from toolspeak.data.codec import dump, load
from toolspeak.data.deltas import ArgumentsDelta, Delta, ReasoningDelta, TextDelta
from toolspeak.data.events import ApprovalDecided
from toolspeak.data.messages import JSON
from toolspeak.errors import AgentStop, ConfigurationError
from toolspeak.execute import Approver, BatchApprover, Secrets
from toolspeak.execute.approval.approvers import StandingApprover

KIND = "toolspeak-cassette"
VERSION = 1
ERROR_FIELDS = ("status", "retryable", "code", "retry_after")


def is_cassette(path: Path) -> bool:
    with path.open("rb") as file:
        return f'"{KIND}"'.encode() in file.readline()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a recording; a last one that was not written to its end is left out. Raises ConfigurationError."""
    records: list[dict[str, Any]] = []
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: the recording cannot be read: {error}") from None
    lines = text.split("\n")
    fragment = lines.pop() if len(lines) > 1 else None  # "" after the last line's end
    for number, line in enumerate(lines, 1):
        records.append(_read_line(path, number, line))
    if fragment and is_json(fragment):
        records.append(_read_line(path, len(lines) + 1, fragment))
    version = records[0].get(KIND)
    if version is None:
        raise ConfigurationError(f"{path}: is no recording; `toolspeak run --record FILE` makes one")
    if version != VERSION:
        raise ConfigurationError(
            f"{path}: is of version {version!r}, and this build reads {VERSION}; upgrade toolspeak"
        )
    return records


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _read_line(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}, line {number}: is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigurationError(f"{path}, line {number}: is no line of a recording")
    return cast("dict[str, Any]", value)


def without_secrets(deltas: Sequence[Delta], secrets: Secrets) -> Sequence[Delta]:
    """Streams cut secrets in pieces: text that holds one becomes one piece. Whole values are hidden when written."""
    if not secrets:
        return deltas
    pieces: dict[tuple[object, ...], list[int]] = {}
    part = 0
    for place, delta in enumerate(deltas):
        match delta:
            case TextDelta() | ReasoningDelta():
                pieces.setdefault((type(delta), part), []).append(place)
            case ArgumentsDelta(index):
                pieces.setdefault((ArgumentsDelta, index), []).append(place)
            case _:
                part += 1
    hidden_deltas: list[Delta | None] = list(deltas)
    for places in pieces.values():
        texts = [cast("TextDelta | ReasoningDelta | ArgumentsDelta", deltas[place]) for place in places]
        whole = "".join(piece.text for piece in texts)
        safe_text = secrets.hide_text(whole)
        if safe_text != whole:
            for place in places:
                hidden_deltas[place] = None
            hidden_deltas[places[0]] = replace(texts[0], text=safe_text)
    return [delta for delta in hidden_deltas if delta is not None]


def delta_json(delta: Delta) -> JSON:
    return delta.text if isinstance(delta, TextDelta) else bare(dump(delta))


def delta_of(value: JSON) -> Delta:
    return TextDelta(value) if isinstance(value, str) else load({"format": 1, **value})


def bare(data: dict[str, JSON]) -> dict[str, JSON]:
    """Without the version, which the first line has."""
    return {name: value for name, value in data.items() if name != "format"}


def plain(value: Any) -> Any:
    """The value as JSON gives it back."""
    return json.loads(json.dumps(value, default=dict))


def fact_json(fact: ApprovalDecided) -> JSON:
    return bare(dump(fact))


def fact_of(value: JSON) -> ApprovalDecided:
    """Raises TypeError for anything else."""
    fact = load({"format": 1, **value})
    if not isinstance(fact, ApprovalDecided):
        raise TypeError("its answer is not an answer")
    return fact


def stop_json(stop: AgentStop) -> JSON:
    return {"message": str(stop), "answer": stop.answer}


def stop_of(value: Any) -> AgentStop | None:
    return AgentStop(value["message"], answer=value["answer"]) if value else None


def standing_json(approver: Approver | BatchApprover | None) -> dict[str, JSON]:
    if not isinstance(approver, StandingApprover):
        return {}
    decision = approver.decision
    return {"standing": [decision.approved, decision.reason, decision.by, approver.repaired]}


def standing_of(line: dict[str, Any]) -> StandingApprover | None:
    """Raises TypeError and ValueError for anything else."""
    if "standing" not in line:
        return None
    is_approved, reason, by, takes_repairs = line["standing"]
    return StandingApprover(Decision(is_approved, reason, by), takes_repairs)
