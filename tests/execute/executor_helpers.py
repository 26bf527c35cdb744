"""What the executor's tests share: a journal in memory and a one-line way to run a batch."""

import asyncio
import itertools

from toolspeak.data.events import Event, ToolFinished, ToolStarted
from toolspeak.data.messages import ToolCall
from toolspeak.execute import BatchContext, Executor, approve_all
from toolspeak.tools import Toolset

_numbers = itertools.count(1)


class Recorder:
    """An `emit` that becomes durable a moment after it is asked, and may be told to fail."""

    def __init__(self, fail_on=lambda event: False):
        self.events: list[Event] = []
        self.fail_on = fail_on

    async def __call__(self, event):
        await asyncio.sleep(0)
        if self.fail_on(event):
            raise OSError("the disk is full")
        self.events.append(event)

    @property
    def starts(self):
        return [event.call_id for event in self.events if isinstance(event, ToolStarted)]

    @property
    def finishes(self):
        return [event.result.call_id for event in self.events if isinstance(event, ToolFinished)]

    @property
    def kinds(self):
        return [type(event).__name__ for event in self.events]


def a_call(name, /, call_id=None, **arguments):
    return ToolCall(call_id or f"c{next(_numbers)}", name, arguments)


async def run_batch(tools, calls, *, emit=None, context=None, approver=approve_all, options=None, **arguments):
    executor = Executor(Toolset(tools), **(options or {}))
    return await executor.run(
        calls, emit=emit or Recorder(), context=context or BatchContext("run"), approver=approver, **arguments
    )


def results_of(tools, calls, *, runner=asyncio.run, **arguments):
    return runner(run_batch(tools, calls, **arguments)).results


def result_of(tools, one, **arguments):
    (result,) = results_of(tools, [one], **arguments)
    return result
