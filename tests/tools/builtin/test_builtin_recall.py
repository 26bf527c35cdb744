"""A file that is read again is answered from memory only while nobody, in the run or outside, has changed it."""

import asyncio
from pathlib import Path

from toolspeak.data.messages import ToolCall
from toolspeak.execute import ANSWERED_FROM, BatchContext, Executor, approve_all
from toolspeak.tools.builtin import workspace_tools


def test_a_file_changed_from_outside_is_read_again(tmp_path: Path):
    file = tmp_path / "a.txt"
    file.write_text("one\n")
    executor, context = Executor(workspace_tools(tmp_path)), BatchContext("run")

    async def emit(event):
        pass

    async def call(number, name, **arguments):
        made = ToolCall(f"c{number}", name, arguments)
        batch = await executor.run([made], emit=emit, context=context, approver=approve_all)
        return batch.results[0]

    async def main():
        first = await call(1, "read", path="a.txt")
        again = await call(2, "read", path="a.txt")
        file.write_text("changed\n")
        changed = await call(3, "read", path="a.txt")
        await call(4, "append", path="a.txt", content="more\n")
        appended = await call(5, "read", path="a.txt")
        await call(6, "shell", command="true")
        after_shell = await call(7, "read", path="a.txt")
        return first, again, changed, appended, after_shell

    first, again, changed, appended, after_shell = asyncio.run(main())
    assert again.extra == {ANSWERED_FROM: "c1"}
    assert first.text in again.text
    assert "changed" in changed.text
    assert "more" in appended.text
    assert after_shell.text == appended.text
    assert all(ANSWERED_FROM not in each.extra for each in (first, changed, appended, after_shell))
