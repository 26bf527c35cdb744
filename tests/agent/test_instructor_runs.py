"""Defects of InstructorPHP's reference implementation that runs here do not have.

Those of the executor are in tests/execute/test_instructor_executor.py.
"""

import asyncio

import pytest

from toolspeak import Agent, MemoryJournal, ProviderError, RunInterceptor, ToolError, tool
from toolspeak.data.events import ModelFailed, RunFinished
from toolspeak.providers.scripted_provider import ScriptedProvider


@tool(read_only=True)
def look(word: str) -> dict:
    "Looks a word up."
    if word == "broken":
        raise ToolError("there is no page 'broken'")
    return {"word": word, "found": True, "n": 1}


def asking(*words, say=""):
    calls = ", ".join(f'{{"name": "look", "args": {{"word": "{word}"}}}}' for word in words)
    return f"{say}<execute>\n[{calls}]\n</execute>"


def test_whoever_leaves_the_iterator_early_leaves_no_frame_open():
    run_ids = []

    class Frame(RunInterceptor):
        async def around(self, start, proceed, context):
            try:
                return await proceed(start)
            finally:
                run_ids.append(context.run_id)

    async def main():
        agent = Agent(ScriptedProvider([asking("a"), asking("b"), "Done."]), [look], interceptors=(Frame(),))
        states = agent.iterate("go")
        first = await anext(states)
        await states.aclose()
        assert run_ids == [first.run_id]

    asyncio.run(main())


def test_results_and_errors_are_the_same_once_they_were_stored():
    async def main():
        journal = MemoryJournal()
        agent = Agent(ScriptedProvider([asking("a", "broken"), "Done."]), [look], journal=journal)
        result = await agent.run("go")
        again = await agent.loads(await result.dumps())
        return result.messages[2].results, again.messages[2].results

    before, after = asyncio.run(main())
    assert after == before
    assert after[0].structured == {"word": "a", "found": True, "n": 1}
    assert (after[1].code, after[1].text) == ("exception", "there is no page 'broken'")


def test_a_model_that_fails_before_there_is_any_step_leaves_its_error_in_the_state_and_the_journal():
    class Fails(ScriptedProvider):
        async def stream(self, request):
            raise ProviderError("the model is on fire")
            yield

    async def main():
        journal = MemoryJournal()
        agent = Agent(Fails([]), [look], journal=journal)
        with pytest.raises(ProviderError, match="on fire"):
            await agent.run("go")
        (info,) = await journal.runs()
        return info, [record.event for record in await journal.read(info.run_id)]

    info, events = asyncio.run(main())
    assert info.status == "failed"
    assert "on fire" in next(event.error for event in events if isinstance(event, ModelFailed))
    run_end = events[-1]
    assert isinstance(run_end, RunFinished)
    assert run_end.reason not in ("", "answer")


def test_text_that_quotes_the_arguments_of_a_call_is_kept():
    text = 'I look up {"word": "a"}, and {} too. '
    result = Agent(ScriptedProvider([asking("a", say=text), "Done."]), [look]).run_sync("go")
    assert result.messages[1].text.strip() == text.strip()
