"""New code between, on the embedded engine: `make test-engines` has the others."""

import pytest
from new_code import charge, check_new_code
from shop import agent, pay, task, working

from toolspeak import ToolChoice
from toolspeak.engines import RunClient


@pytest.mark.over_a_second
def test_new_code_leaves_no_run_of_older_code_behind(open_store):
    open_store.run(lambda: check_new_code(open_store(), "embedded:"))


def test_a_run_whose_tool_choice_is_gone_fails_at_once(open_store):
    """Also if the submitter knew the agent's name alone."""

    async def act():
        journal = open_store()
        client = RunClient(journal)
        by_code = await agent(journal, [pay]).submit(task(), tool_choice="pay")
        by_name = await client.submit("shop", task(), tool_choice=ToolChoice("specific", "pay"))
        async with working(agent(journal, [charge])):
            for submission in (by_code, by_name):
                result = await client.result(submission.run_id, 60)
                assert result.status == "failed"
                assert result.error == "tool_choice: there is no tool 'pay'. Known: charge."

    open_store.run(act)
