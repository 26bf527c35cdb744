"""Programs that models write: their calls run like any others, and only what they print comes back."""

from __future__ import annotations

import asyncio
import re
from textwrap import dedent

import pytest

from patience import in_time
from toolspeak import (
    Agent,
    AgentStop,
    Approval,
    ConfigurationError,
    Decision,
    Effects,
    Execution,
    Interceptor,
    Limits,
    MemoryJournal,
    Rule,
    RunContext,
    Toolset,
    tool,
)
from toolspeak.errors import UnknownTool
from toolspeak.execute import Executor
from toolspeak.programs import CodeMode
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn


def program(code):
    return ScriptedTurn("", calls=[ScriptedCall("run_code", {"code": dedent(code).strip()})])


class Desk:
    """An agent whose model writes these programs, one a turn, and answers with the last result.

    `files` is what its tools read and write, `log` the calls in the order in which their functions ended.
    """

    def __init__(self, *codes, tools=(), model=None, **options):
        self.files = files = {"a": "1", "b": "2"}
        self.log = log = []

        @tool(effects=lambda path: Effects(reads={f"file:{path}"}))
        async def read(path: str) -> str:
            "Reads a file."
            log.append(f"read {path}")
            if path not in files:
                raise FileNotFoundError(path)
            return files[path]

        @tool(effects=lambda path, text: Effects(writes={f"file:{path}"}))
        async def write(path: str, text: str) -> str:
            "Writes a file."
            files[path] = text
            log.append(f"write {path}")
            return "written"

        @tool(read_only=True, name="list")
        def list_files() -> list[str]:
            "Names the files."
            return sorted(files)

        self.model = model or ScriptedProvider([*map(program, codes), "{{last}}"])
        options = {"approve": "all", "journal": MemoryJournal(), "code_mode": True, **options}
        self.agent = Agent(self.model, [read, write, list_files, *tools], **options)

    def run(self, **options):
        return asyncio.run(self.agent.run("Work.", **options))

    def resume(self, result, decision):
        """Goes on with a run that waits for one decision, in another event loop."""
        return asyncio.run(self.agent.resume(result, {result.waiting[0]: decision}))

    def results(self):
        """The results of the programs, as the model read them."""
        last = self.model.requests[-1].messages
        return [part.text for message in last for part in message.results]


def answer(code, **options):
    """What a program gives to the model."""
    return Desk(code, **options).run().answer


# --- what a program can do


def test_the_model_gets_what_the_program_prints_and_its_last_value():
    code = """
        print("first")
        x = await read("a")
        print("second", end=" ")
        y = await read("b")
        print(x, y)
        {"sum": int(x) + int(y)}
    """
    assert answer(code) == 'first\nsecond 1 2\n{"sum": 3}'


def test_a_program_without_output_says_so():
    assert answer("pass") == "(The program ended. It printed nothing, and its last line has no value.)"


def test_the_model_sees_one_tool_with_the_others_as_functions():
    desk = Desk("1")
    desk.run()
    (tool_spec,) = desk.model.requests[0].tools
    assert tool_spec.name == "run_code"
    assert 'async def read(path: str) -> str:\n    """Reads a file."""' in tool_spec.description
    assert "async def list_() -> list[str]:" in tool_spec.description  # `list` stays Python's own


def test_direct_tools_are_beside_the_programs():
    desk = Desk("1", code_mode=CodeMode(direct=("read",)))
    desk.run()
    assert [each.name for each in desk.model.requests[0].tools] == ["run_code", "read"]


def test_a_tool_with_the_name_of_a_builtin_leaves_that_alone():
    assert answer("list(await list_())") == '["a", "b"]'


def test_effects_order_the_calls_of_a_gather():
    code = 'import asyncio\nawait asyncio.gather(write("a", "9"), read("a"), read("b"))'
    desk = Desk(code)
    assert desk.run().answer == '["written", "9", "2"]'
    assert desk.log.index("write a") < desk.log.index("read a")


def test_a_failure_is_an_exception_that_the_program_can_catch():
    code = """
        try:
            await read("missing")
        except Exception as error:
            print(type(error).__name__, error)
        await read("b")
    """
    assert answer(code) == "RuntimeError read: FileNotFoundError: missing\n2"


def test_calls_in_except_and_finally_run():
    code = (
        'try:\n    await read("x")\nexcept Exception:\n    print(await read("a"))\nfinally:\n    print(await read("b"))'
    )
    assert answer(code) == "1\n2"


def test_a_program_that_raises_fails_and_says_what_it_had_done():
    desk = Desk('await write("a", "9")\n1 / 0')
    result = desk.run()
    assert "ZeroDivisionError: division by zero" in result.answer
    assert '- write {"path": "a", "text": "9"}: done' in result.answer
    assert result.steps[0].executions[0].result.status == "failure"


def test_a_program_can_sleep_beside_its_calls():
    code = 'import asyncio\nimport time\ntime.sleep(0.001)\nawait asyncio.gather(read("a"), asyncio.sleep(0.01))'
    assert answer(code) == '["1", null]'


def test_a_long_result_is_whole_in_the_program():
    @tool(read_only=True)
    def long() -> str:
        "Is long."
        return "x" * 100_000

    assert answer("len(await long())", tools=[long]) == "100000"


def test_a_result_beyond_the_limit_is_an_exception_and_not_half_a_value():
    @tool(read_only=True)
    def long() -> list[int]:
        "Is long."
        return [1] * 100_000

    text = answer("len(await long())", tools=[long], code_mode=CodeMode(result_bytes=1000))
    assert "ValueError: long: the call ran, but its result is longer than 1000 bytes: ask for a part" in text


def test_programs_share_the_memory_of_the_runs_tools():
    @tool(read_only=True)
    def count(ctx: RunContext) -> int:
        "Counts."
        ctx.memory["count"] = ctx.memory.get("count", 0) + 1
        return ctx.memory["count"]

    desk = Desk("await count()", "await count(), await count()", tools=[count], code_mode=CodeMode(direct=("count",)))
    result = desk.run()
    assert desk.results() == ["1", "[2, 3]"]
    assert result.memory["count"] == 3


def test_the_deps_of_the_run_reach_the_tools_of_a_program():
    @tool(read_only=True)
    def whose(ctx: RunContext[str]) -> str:
        "Says whose."
        return ctx.deps

    desk = Desk("await whose()", tools=[whose], deps_type=str)
    assert desk.run(deps="Ada").answer == "Ada"


def test_tools_of_a_turn_are_the_functions_of_its_programs():
    @tool(read_only=True)
    def one() -> int:
        "One."
        return 1

    @tool(read_only=True)
    def two() -> int:
        "Two."
        return 2

    def tools(ctx: RunContext) -> list:
        return [one if len(ctx.state.messages) < 2 else two]

    model = ScriptedProvider([program("await one()"), program("await one()"), "{{last}}"])
    result = Agent(model, tools, code_mode=True).run_sync("Go.")
    assert "async def one()" in model.requests[0].tools[0].description
    assert "async def two()" in model.requests[1].tools[0].description
    assert "Nothing was run" in result.answer


def test_a_program_ends_the_run_if_a_tool_does():
    @tool(read_only=True)
    def stop() -> str:
        "Stops."
        raise AgentStop("enough", answer="The end.")

    desk = Desk('await stop()\nawait write("a", "9")', tools=[stop])
    result = desk.run()
    assert (result.status, result.answer, desk.log) == ("answered", "The end.", [])


def test_interceptors_see_the_calls_of_programs():
    names = []

    class Watch(Interceptor):
        async def before(self, call, context):
            names.append(call.name)
            return call

    Desk('await read("a")', interceptors=[Watch()]).run()
    assert names == ["run_code", "read"]


def test_secrets_reach_tools_and_no_program():
    keys = []

    @tool(read_only=True)
    def send(key: str) -> str:
        "Sends."
        keys.append(key)
        return f"the key was {key}"

    placeholder = Desk(secrets={"KEY": "hunter22"}).agent.secrets.hide_text("hunter22")
    desk = Desk(f'print(len("{placeholder}"), await send("{placeholder}"))', tools=[send], secrets={"KEY": "hunter22"})
    result = desk.run()
    assert keys == ["hunter22"]
    assert result.answer == f"{len(placeholder)} the key was {placeholder}"


# --- what is found before anything runs


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("await raed('a')", "line 2: Name `raed` used when not defined"),
        ("await read(1)", "line 2: Argument to function `read` is incorrect: Expected `str`, found `Literal[1]`"),
        ("await write('a')", "No argument provided for required parameter `text` of function `write`"),
        ("await read('a', 2, 3)", "Too many positional arguments to function `read`"),
        ("await read(file='a')", "Argument `file` does not match any known parameter of function `read`"),
        ("len(read('a'))", "write `await` before the call of a tool"),
        ("import subprocess", "Cannot resolve imported module `subprocess`"),
        ("x = (", "line 2:"),
    ],
)
def test_a_wrong_program_runs_nothing(line, problem):
    desk = Desk(f"await write('a', '9')\n{line}")
    text = desk.run().answer
    assert "Nothing was run, because of these faults in the program:" in text
    assert problem in text
    assert desk.log == []


def test_what_a_checker_may_doubt_runs():
    code = """
        import re
        match = re.match("(.)", await read("a"))
        match.group(1)
    """
    assert answer(code) == "1"


def test_wrong_arguments_that_no_type_shows_are_an_exception():
    text = answer("import json\nawait read(json.loads('[1]'))")
    assert "ValueError: read: the arguments of 'read' do not fit:\n- path: expected a string, got [1] (array)" in text


def test_a_call_that_is_not_awaited_does_not_run():
    desk = Desk('print(write("a", "9"))')
    assert "1 calls that it did not await: they did not run (write)" in desk.run().answer
    assert desk.log == []


# --- limits


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("while True: pass", "it computed for more than 0.2 seconds"),
        (
            "while True:\n    try:\n        while True: pass\n    finally:\n        continue",
            "it computed for more than",
        ),
        ("x = [0]\nwhile True: x += x", "its values take more than 20 MB"),
        ('x = "ab"\nwhile True: x = x + x', "its values take more than 20 MB"),
        ("def f(n): return f(n + 1)\nf(0)", "RecursionError"),
        ("import asyncio\nawait asyncio.sleep(1000)", "it sleeps for more than 300 seconds"),
        ("import time\ntime.sleep(301)", "it sleeps for more than 300 seconds"),
    ],
    ids=["loop", "finally", "list", "text", "recursion", "async sleep", "sleep"],
)
def test_a_program_without_an_end_is_stopped(code, reason):
    seconds = 0.2 if reason.startswith("it computed") else 60.0  # a machine that stands still computes, too
    text = answer(code, code_mode=CodeMode(seconds=seconds, memory=20 * 1024 * 1024))
    assert reason in text


def test_a_gather_of_too_many_calls_runs_none_of_them():
    desk = Desk("import asyncio\nawait asyncio.gather(*[read('a') for _ in range(10_000)])")
    text = desk.run().answer
    assert "it makes more than 1000 calls. Those of its last gather did not run" in text
    assert desk.log == []


def test_what_is_printed_beyond_the_limit_is_dropped_and_counted():
    text = answer("for _ in range(100): print('x' * 1_000_000)", code_mode=CodeMode(output=1000))
    assert text.startswith("x" * 1000)
    assert "[99999100 more characters of the program's output were dropped." in text
    assert len(text) < 1200


def test_a_value_beyond_the_limit_is_cut():
    text = answer("'x' * 1_000_000", code_mode=CodeMode(output=1000))
    assert "[999000 more characters" in text


def test_a_program_that_catches_everything_is_stopped_by_the_guard_of_failures():
    code = (
        "n = 0\nwhile True:\n    n += 1\n    try:\n        await read(f'x{n}')\n    except BaseException:\n        pass"
    )
    desk = Desk(code)
    assert "every call of its last steps failed" in desk.run().answer
    assert len(desk.log) == 8


def test_the_guard_of_repeats_counts_calls_of_programs():
    desk = Desk("while True:\n    await write('a', '9')")
    assert "it makes the same calls again and again" in desk.run().answer
    assert len(desk.log) == 5


def test_the_runs_limit_on_calls_counts_those_of_programs():
    code = "for n in range(5): await write(f'f{n}', '')"
    desk = Desk(code, code, code, limits=Limits(calls=8, repeats=None))
    result = desk.run()
    assert len(desk.log) == 6  # and the two programs
    assert result.state.totals.calls == 8


def test_the_runs_time_limit_ends_a_program():
    @tool(read_only=True)
    async def wait() -> str:
        "Waits."
        await asyncio.Event().wait()
        return ""

    def attempt(seconds):
        result = Desk("await wait()", tools=[wait]).run(limits=Limits(seconds=seconds))
        assert "the run's time limit was reached" in result.steps[0].executions[0].result.text

    in_time(attempt, 0.3, 5, 60)


# --- approvals


def test_an_approval_pauses_the_program_and_each_call_runs_once():
    code = "import asyncio\nr = await asyncio.gather(read('a'), write('a', '9'))\nprint(r)\nawait write('b', r[0])"
    desk = Desk(code, approve=None)
    result = desk.run()
    assert result.status == "awaiting_approval"
    assert [request.call.name for request in result.requests] == ["write"]
    assert result.requests[0].reason == "program: writes file:a"
    assert desk.log == []
    result = desk.resume(result, True)
    assert [request.call.arguments for request in result.requests] == [{"path": "b", "text": "1"}]
    assert desk.log == ["read a", "write a"]
    result = desk.resume(result, True)
    assert (result.status, result.answer) == ("answered", "['1', 'written']\nwritten")
    assert desk.log == ["read a", "write a", "write b"]


def test_a_no_is_an_exception():
    desk = Desk("try:\n    await write('a', '9')\nexcept PermissionError as error:\n    print(error)", approve=None)
    result = desk.run()
    result = desk.resume(result, Decision(False, "not today"))
    assert result.answer == "write: the call was rejected: not today"
    assert desk.log == []


def test_a_yes_for_always_holds_for_the_next_calls_of_the_program():
    questions = []

    async def approver(request):
        questions.append(request.call.arguments["path"])
        return Decision(True, always=Rule("approve", tool="write"))

    desk = Desk("for n in range(3): await write(f'f{n}', '')", approve=approver)
    desk.run()
    assert (questions, len(desk.log)) == (["f0"], 3)


def test_a_decision_that_ends_the_run_ends_it():
    desk = Desk("try:\n    await write('a', '9')\nexcept BaseException:\n    await write('b', '9')", approve=None)
    result = desk.run()
    result = desk.resume(result, Decision(False, "stop", ends_run=True))
    assert (result.status, desk.log) == ("no_answer", [])


AFTER = [Rule("escalate", tool="write", after="fetch"), Rule("approve")]


@tool(effects=Effects(external=True))
def fetch() -> str:
    "Reads a page."
    return "a page"


@pytest.mark.parametrize(
    "codes",
    [
        ["await fetch()\nawait write('a', '9')"],
        ["await fetch()", "await write('a', '9')"],
        ["await fetch()\n1 / 0", "await write('a', '9')"],
        ["await write('b', '9')", "await fetch()", "1", "await write('a', '9')"],
    ],
    ids=["in one program", "in the program before", "in a program that failed", "two programs before"],
)
def test_a_rule_about_what_comes_after_a_tool_sees_the_calls_of_programs(codes):
    desk = Desk(*codes, tools=[fetch], approve=Approval(policy=AFTER))
    result = desk.run()
    assert [request.call.arguments["path"] for request in result.requests] == ["a"]


@pytest.mark.parametrize("together", [True, False])
def test_such_a_rule_sees_in_a_program_what_the_model_called_before(together):
    writes, page = program("await write('a', '9')"), ScriptedCall("fetch", {})
    turns = [ScriptedTurn("", calls=[page, *writes.calls])] if together else [ScriptedTurn("", calls=[page]), writes]
    mode = CodeMode(direct=("fetch",))
    desk = Desk(
        tools=[fetch], approve=Approval(policy=AFTER), code_mode=mode, model=ScriptedProvider([*turns, "Done."])
    )
    assert desk.run().status == "awaiting_approval"


def test_the_program_itself_needs_no_approval():
    desk = Desk("await read('a')", approve=None)
    assert desk.run().status == "answered"


def test_a_run_that_is_suspended_stops_between_the_calls_of_its_program():
    @tool(effects=Effects(writes={"x:"}))
    def step(number: int) -> int:
        "Takes a step."
        steps.append(number)
        if number == 2:
            run.suspend()
        return number

    steps = []
    desk = Desk("for n in range(5): await step(n)\n'end'", tools=[step])

    async def work():
        await run.finish()
        assert (run.state.status, steps) == ("suspended", [0, 1, 2])
        return await desk.agent.resume(run.run_id)

    run = desk.agent.start("Work.")
    assert asyncio.run(work()).answer == "end"
    assert steps == [0, 1, 2, 3, 4]


def test_an_agent_that_a_program_calls_asks_too():
    buys = []

    @tool(effects=Effects(writes={"orders:"}))
    def order(item: str) -> str:
        "Orders."
        buys.append(item)
        return f"ordered {item}"

    turns = [ScriptedTurn("", calls=[ScriptedCall("order", {"item": "pears"})]), "It is ordered."]
    buyer = Agent(ScriptedProvider(turns, follow=True), [order], name="buyer", description="Buys.")
    desk = Desk("print(await buyer('Buy pears.'))\nawait read('a')", tools=[buyer.as_tool()], approve=None)
    result = desk.run()
    while result.status == "awaiting_approval":
        questions = [request.call.name for request in result.requests]
        result = desk.resume(result, True)
    assert (questions, result.answer, buys) == (["order"], "It is ordered.\n1", ["pears"])


def test_answers_of_a_type_and_hand_offs_stay_tools():
    other = Agent(
        ScriptedProvider([ScriptedTurn("", calls=[ScriptedCall("final_answer", {"answer": 5})])]), name="b", output=int
    )
    model = ScriptedProvider([program("2 + 3"), ScriptedTurn("", calls=[ScriptedCall("transfer_to_b", {})])])
    agent = Agent(model, [], code_mode=True, output=int, handoffs=[other])
    result = agent.run_sync("Go.")
    assert result.output == 5
    assert [each.name for each in model.requests[0].tools] == ["run_code", "transfer_to_b", "final_answer"]


def test_tools_that_are_deferred_become_functions_once_they_are_found():
    @tool(read_only=True)
    def weather(city: str) -> str:
        "Tells the weather."
        return f"{city}: dry"

    find = ScriptedTurn("", calls=[ScriptedCall("find_tools", {"query": "weather"})])
    model = ScriptedProvider([find, program("await weather('Rome')"), "{{last}}"])
    agent = Agent(model, Toolset([weather]).defer(), code_mode=True)
    assert agent.run_sync("Go.").answer == "Rome: dry"
    assert [[each.name for each in request.tools] for request in model.requests] == [["run_code", "find_tools"]] * 3
    assert "async def weather" not in model.requests[0].tools[0].description


# --- settings


def test_code_mode_says_what_is_wrong_with_its_settings():
    with pytest.raises(ConfigurationError, match=re.escape("CodeMode(calls=0): expected a number above 0")):
        CodeMode(calls=0)
    with pytest.raises(ConfigurationError, match="expected names of tools"):
        CodeMode(direct="read")
    with pytest.raises(ConfigurationError, match="code_mode must be True, False or a CodeMode"):
        Desk(code_mode="yes")
    with pytest.raises(UnknownTool, match=r"there is no tool 'raed'. Did you mean 'read'"):
        Desk(code_mode=CodeMode(direct=("raed",)))
    with pytest.raises(ConfigurationError, match="code_mode needs execution=Execution"):
        Agent(ScriptedProvider([]), [], execution=Executor([]), code_mode=True)


def test_a_tool_of_that_name_is_refused():
    @tool(read_only=True)
    def run_code() -> str:
        "Mine."
        return ""

    with pytest.raises(ConfigurationError, match="code mode has the tool 'run_code' itself"):
        Agent(ScriptedProvider([]), [run_code], execution=Execution(), code_mode=True)
