"""The runs that a run's tools start, as the subagents of AG-UI: what they say and call, once each turn is recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ag_ui import core

from toolspeak.data.events import ModelAnswered, Record, RunFinished, RunPaused, RunResumed, RunStarted, ToolFinished
from toolspeak.data.messages import MalformedCall


class SubagentEvents:
    """Turns the records of sub-runs into events, in order. Every event has the id of its subagent."""

    def __init__(self) -> None:
        self._active_ids: set[str] = set()

    def of(self, record: Record) -> Iterator[core.BaseEvent]:
        """The events of one record of a sub-run."""
        run_id = record.run_id
        match record.event:
            case RunStarted() | RunResumed():
                above = record.parent_run_id if record.parent_run_id in self._active_ids else None
                self._active_ids.add(run_id)
                yield core.SubagentStartedEvent(subagent_run_id=run_id, name=record.agent, parent_subagent_run_id=above)
            case ModelAnswered(message=message):
                message_id = f"{run_id}-{record.step}"
                if message.text:
                    yield core.TextMessageStartEvent(message_id=message_id, role="assistant", subagent_run_id=run_id)
                    yield core.TextMessageContentEvent(
                        message_id=message_id, delta=message.text, subagent_run_id=run_id
                    )
                    yield core.TextMessageEndEvent(message_id=message_id, subagent_run_id=run_id)
                for call in message.calls:
                    call_id = f"{run_id}/{call.id}"
                    arguments = call.raw if isinstance(call, MalformedCall) else json.dumps(dict(call.arguments))
                    yield core.ToolCallStartEvent(
                        tool_call_id=call_id,
                        tool_call_name=call.name or "unknown",
                        parent_message_id=message_id,
                        subagent_run_id=run_id,
                    )
                    if arguments:
                        yield core.ToolCallArgsEvent(tool_call_id=call_id, delta=arguments, subagent_run_id=run_id)
                    yield core.ToolCallEndEvent(tool_call_id=call_id, subagent_run_id=run_id)
            case ToolFinished(result=result):
                call_id = f"{run_id}/{result.call_id}"
                yield core.ToolCallResultEvent(
                    message_id=f"{call_id}-result",
                    tool_call_id=call_id,
                    content=result.text,
                    metadata={"toolspeak": {"failed": True}} if result.status == "failure" else None,
                    subagent_run_id=run_id,
                )
            case RunPaused():
                outcome = core.SubagentFinishedSuspendedOutcome()
                yield core.SubagentFinishedEvent(subagent_run_id=run_id, outcome=outcome)
            case RunFinished(status="answered", answer=answer):
                yield core.SubagentFinishedEvent(subagent_run_id=run_id, result=answer)
            case RunFinished(status=status, reason=reason):
                message = f"The run ended without an answer: {reason or 'no reason is known'}."
                yield core.SubagentErrorEvent(subagent_run_id=run_id, message=message, code=reason or status)
            case _:
                pass
