"""`run_sync`: for code without a loop, inside of one, and from any thread."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from agent_helpers import TOOLS, adding, an_agent, calling

from toolspeak import Agent, ProviderError, tool
from toolspeak.agent.sync import run_sync
from toolspeak.providers.scripted_provider import ScriptedProvider


def test_without_a_loop():
    agent = an_agent([adding(1, 2), "3"])
    assert str(agent.run_sync("go")) == "3"


def test_inside_of_a_running_loop_as_in_jupyter():
    async def cell():
        return an_agent([adding(1, 2), "3"]).run_sync("go")

    assert asyncio.run(cell()).answer == "3"


def test_from_many_threads_at_once():
    meeting = threading.Barrier(8, timeout=120)

    @tool(read_only=True)
    def meet() -> str:
        "All runs are under way at the same time."
        meeting.wait()
        return "met"

    def one(number):
        agent = Agent(ScriptedProvider([calling("cogency-json", ("meet", {})), f"answer {number}"]), [meet])
        return agent.run_sync("go").answer

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(8))) == [f"answer {number}" for number in range(8)]


def test_errors_come_through():
    with pytest.raises(ProviderError, match="turn 1 was requested"):
        an_agent([]).run_sync("go")


def test_a_synchronous_tool_may_run_an_agent_of_its_own():
    @tool(read_only=True)
    def delegate() -> str:
        "Asks another agent."
        return an_agent([adding(1, 2), "3 says the other"]).run_sync("go").answer

    agent = Agent(
        ScriptedProvider([calling("cogency-json", ("delegate", {})), "{{find:\\d says the other}}"]), [delegate]
    )
    assert agent.run_sync("go").answer == "3 says the other"


def test_an_asynchronous_tool_is_told_to_await_instead_of_waiting_for_itself():
    @tool(read_only=True)
    async def delegate() -> str:
        "Asks another agent, in the wrong way."
        return an_agent(["never"]).run_sync("go").answer

    agent = Agent(ScriptedProvider([calling("cogency-json", ("delegate", {})), "ok"]), [delegate])
    result = agent.run_sync("go")
    (failure,) = result.messages[2].results
    assert failure.code == "exception"
    assert "await agent.run" in failure.text


SCRIPT = """
    import asyncio, os, signal, sys
    from toolspeak import Agent, tool
    from toolspeak.providers.scripted_provider import ScriptedProvider

    signal.signal(signal.SIGINT, signal.default_int_handler)
    CALL = '<execute>[{"name": "hang", "args": {}}]</execute>'

    @tool(read_only=True)
    async def hang() -> str:
        "Hangs."
        print("entered", flush=True)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            print("cleaned up", flush=True)
        return "never"
"""


def script(body):
    return textwrap.dedent(SCRIPT) + textwrap.dedent(body)


def test_ctrl_c_cancels_the_run_and_waits_until_it_has_ended():
    body = """
        try:
            Agent(ScriptedProvider([CALL]), [hang]).run_sync("go")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        print(Agent(ScriptedProvider(["still works"])).run_sync("go"))
    """
    process = subprocess.Popen([sys.executable, "-c", script(body)], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "entered\n"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    assert out.splitlines() == ["cleaned up", "interrupted", "still works"]
    assert process.returncode == 0


def test_an_alarm_that_raises_cancels_the_run_too():
    run_end = threading.Event()

    class Alarm(Exception):
        pass

    def ring(number, frame):
        raise Alarm

    @tool(read_only=True)
    async def hang() -> str:
        "Hangs until it is cancelled."
        signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)
        try:
            await asyncio.Event().wait()
        finally:
            run_end.set()
        return "never"

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(Alarm):
            Agent(ScriptedProvider([calling("cogency-json", ("hang", {}))]), [hang]).run_sync("go")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert run_end.is_set()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_tool_that_exits_ends_its_run_and_not_the_loop(error, kind):
    def leave() -> str:
        "Leaves."
        raise error(3)

    async def leave_within() -> str:
        "Leaves, in the loop."
        raise error(3)

    agent = an_agent(
        [calling("cogency-json", ("leave", {}))],
        [tool(name="leave", read_only=True)(leave_within if kind == "async" else leave)],
    )
    with pytest.raises(error):
        agent.run_sync("go")
    assert an_agent(["still here"]).run_sync("go").answer == "still here"


def test_after_a_fork_the_child_has_a_loop_of_its_own():
    body = """
        def answer(text):
            return Agent(ScriptedProvider([text])).run_sync("go").answer

        print(answer("parent"), flush=True)
        child = os.fork()
        if not child:
            signal.alarm(20)
            print(answer("child"), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(answer("parent again"))
    """
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script(body)], capture_output=True, text=True, timeout=60, check=False
    )
    assert process.stdout.splitlines() == ["parent", "child", "parent again"], process.stderr


def test_nothing_of_a_finished_run_stays_in_the_loop():
    agent = an_agent([adding(1, 2), "3"], TOOLS)
    agent.run_sync("go")

    async def tasks():
        return len(asyncio.all_tasks())

    with contextlib.suppress(ProviderError):
        agent.run_sync("again")
    assert run_sync(tasks()) == 1
