import asyncio

import pytest
from executor_helpers import Recorder, a_call, run_batch
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak.data.tools import EVERYTHING, READ_ANYTHING, UNDECLARED_EFFECTS, Effects, covers
from toolspeak.errors import ConfigurationError
from toolspeak.execute import Concurrency, Executor, Secrets, hints, plan, waits
from toolspeak.tools import Toolset, tool

KEYS = [
    "file:",
    "file:a",
    "file:a/",
    "file:a/b",
    "file:a/b/c",
    "file:ab",
    "file:x",
    "web:",
    "web:h",
    "a:b:c",
    EVERYTHING,
]
SOME_KEYS = st.sets(st.sampled_from(KEYS), max_size=2)
EFFECTS = st.builds(Effects, SOME_KEYS, SOME_KEYS, external=st.booleans(), idempotent=st.booleans()) | st.just(
    UNDECLARED_EFFECTS
)


def conflict(first, second):
    """The definition: one writes what the other touches, or both send something that counts."""
    key_pairs = [
        (a, b)
        for ours, theirs in ((first.writes, second.writes), (first.writes, second.reads), (first.reads, second.writes))
        for a in ours
        for b in theirs
    ]
    external = all((one.external or not one.declared) and not one.idempotent for one in (first, second))
    return external or any(covers(a, b) or covers(b, a) for a, b in key_pairs)


def closure(edges):
    """For each call everything it comes after, directly or not."""
    closures = []
    for waited_for in edges:
        closures.append(frozenset(waited_for).union(*(closures[index] for index in waited_for)))
    return closures


@settings(deadline=None)
@given(st.lists(EFFECTS, max_size=12))
def test_serializable_orders_the_conflicting_calls_and_waits_for_no_others(effects):
    pairwise = [[j for j in range(i) if conflict(effects[j], effects[i])] for i in range(len(effects))]
    run_plan = plan(effects, "serializable")
    assert closure(run_plan) == closure(pairwise)
    assert all(set(waits) <= set(conflicting) for waits, conflicting in zip(run_plan, pairwise, strict=True))


def test_parallel_waits_for_nothing_and_sequential_for_the_one_before():
    assert plan([UNDECLARED_EFFECTS] * 3, "parallel") == ((), (), ())
    assert plan([READ_ANYTHING] * 3, "sequential") == ((), (0,), (1,))
    assert plan([], "serializable") == plan([], "sequential") == ()


POST = Effects(external=True)
GET = Effects(external=True, idempotent=True)


def test_external_calls_that_are_not_idempotent_keep_their_order():
    assert plan([POST, GET, POST, READ_ANYTHING, POST], "serializable") == ((), (), (0,), (), (2,))
    assert plan([POST, UNDECLARED_EFFECTS, POST], "serializable") == ((), (0,), (1,))
    assert plan([POST, POST], "parallel") == ((), ())


def test_external_calls_end_in_their_order():
    async def main():
        texts, second_may_go = [], asyncio.Event()

        @tool(external=True, effects=Effects())
        async def post(text: str) -> None:
            if text == "first":
                await second_may_go.wait()
            texts.append(text)

        @tool(read_only=True)
        async def release() -> None:
            second_may_go.set()

        await run_batch(
            [post, release], [a_call("post", text="first"), a_call("post", text="second"), a_call("release")]
        )
        return texts

    assert asyncio.run(main()) == ["first", "second"]


def test_readers_between_two_writers_run_together():
    effects = [UNDECLARED_EFFECTS, READ_ANYTHING, READ_ANYTHING, UNDECLARED_EFFECTS, READ_ANYTHING]
    assert plan(effects, "serializable") == ((), (0,), (0,), (0, 1, 2), (3,))


@pytest.mark.parametrize(
    "batch",
    [
        [UNDECLARED_EFFECTS],
        [READ_ANYTHING],
        [UNDECLARED_EFFECTS, READ_ANYTHING, READ_ANYTHING],
        [POST],
        [POST, UNDECLARED_EFFECTS, GET],
        [Effects(writes={"file:a"}), Effects(reads={"file:a"})],
        [Effects(reads={"file:a"}), Effects(reads={"file:a/b"}), Effects(reads={EVERYTHING})],
    ],
)
def test_edges_grow_linearly(batch):
    small, large = (sum(map(len, plan(batch * count, "serializable"))) for count in (100, 3_000))
    assert large <= 31 * small + 31


def test_many_resources_stay_linear():
    effects = [Effects(writes={f"file:dir{number % 50}/f{number}"}) for number in range(3_000)]
    assert plan(effects, "serializable") == ((),) * 3_000
    barrier = plan([*effects, UNDECLARED_EFFECTS, *effects], "serializable")
    assert sum(map(len, barrier)) == 6_000


def test_an_unknown_schedule_is_a_usage_error():
    with pytest.raises(ConfigurationError, match="Did you mean 'parallel'"):
        Executor(Toolset(), schedule="paralel")
    with pytest.raises(ConfigurationError, match="serializable"):
        plan([], "whenever")


# A world of resources in a tree: a read sees everything at or below its key, a write changes it.
PLACES = ["file:a", "file:a/b", "file:a/b/c", "file:a/d", "file:e"]
TOOLS = ["look", "change", "copy", "rename", "half", "unclear", "anything"]
STEPS = st.lists(
    st.tuples(st.sampled_from(TOOLS), st.sampled_from(PLACES), st.sampled_from(PLACES), st.integers(0, 4)),
    max_size=10,
)


def below(world, key):
    return [place for place in world if place == key or place.startswith(key + "/")]


def world_tools(world):
    async def rest(pauses):
        for _ in range(pauses):
            await asyncio.sleep(0)

    @tool(effects=lambda source: Effects(reads={source}))
    async def look(source: str, target: str, pauses: int, mark: str) -> dict[str, str]:
        snapshot = {}
        for place in below(world, source):
            snapshot[place] = world[place]
            await rest(pauses)
        return snapshot

    @tool(effects=lambda target: Effects(writes={target}))
    async def change(source: str, target: str, pauses: int, mark: str) -> None:
        for place in below(world, target):
            await rest(pauses)
            world[place] = mark

    @tool(effects=lambda source, target: Effects(reads={source}, writes={target}))
    async def copy(source: str, target: str, pauses: int, mark: str) -> str:
        original = world[source]
        await rest(pauses)
        for place in below(world, target):
            world[place] = f"{mark} from ({original})"
        return original

    @tool(effects=lambda source, target: Effects(writes={source, target}))
    async def rename(source: str, target: str, pauses: int, mark: str) -> str:
        """Touches both ends and what lies below them."""
        contents = {place: world[place] for place in below(world, source)}
        for place in contents:
            await rest(pauses)
            world[place] = ""
        for place in below(world, target):
            await rest(pauses)
            world[place] = f"{mark} was {contents.get(source)}"
        return " ".join(contents.values())

    @tool(effects=lambda target: Effects(writes={target}))
    async def half(source: str, target: str, pauses: int, mark: str) -> None:
        """Fails when some of it is done."""
        for place in below(world, target)[:1]:
            await rest(pauses)
            world[place] = f"half of {mark}"
        raise ValueError(f"{mark} failed, {target} holds {world[target]}")

    def cannot_tell(source: str) -> Effects:
        raise LookupError(source)

    @tool(effects=cannot_tell)
    async def unclear(source: str, target: str, pauses: int, mark: str) -> str:
        """Its declaration fails: it counts as undeclared."""
        return await everything(pauses, mark)

    @tool
    async def anything(source: str, target: str, pauses: int, mark: str) -> str:
        return await everything(pauses, mark)

    async def everything(pauses, mark):
        snapshot = dict(world)
        for place in world:
            await rest(pauses)
            world[place] = f"{mark}<{snapshot[place][:20]}"
        return str(snapshot)

    return [look, change, copy, rename, half, unclear, anything]


def outcome(schedule, steps, **options):
    world = dict.fromkeys(PLACES, "")
    calls = [
        a_call(name, f"c{number}", source=source, target=target, pauses=pauses, mark=str(number))
        for number, (name, source, target, pauses) in enumerate(steps)
    ]
    batch = asyncio.run(run_batch(world_tools(world), calls, options={"schedule": schedule, **options}))
    are_failures = [result.status == "failure" for result in batch.results]
    assert are_failures == [name == "half" for name, *_ in steps]
    return batch.results, world


@settings(deadline=None)
@given(STEPS)
def test_serializable_gives_what_sequential_gives(steps):
    assert outcome("serializable", steps) == outcome("sequential", steps)


@settings(max_examples=fewer(40), deadline=None)
@given(STEPS, st.integers(1, 3))
def test_limits_change_when_calls_run_and_not_what_comes_of_them(steps, limit):
    limited_outcome = outcome("serializable", steps, concurrency=Concurrency(batch=limit, run=2))
    assert limited_outcome == outcome("sequential", steps)


@pytest.mark.parametrize("schedule", ["serializable", "parallel"])
def test_independent_calls_overlap(schedule):
    async def main():
        starts = {name: asyncio.Event() for name in ("a", "b")}

        @tool(effects=lambda name: Effects(writes={f"room:{name}"}))
        async def meet(name: str, other: str) -> str:
            starts[name].set()
            await starts[other].wait()
            return name

        calls = [a_call("meet", name="a", other="b"), a_call("meet", name="b", other="a")]
        return await run_batch([meet], calls, options={"schedule": schedule})

    assert [result.text for result in asyncio.run(main()).results] == ["a", "b"]


def test_a_call_starts_as_soon_as_its_own_predecessors_are_done():
    async def main():
        third_ran = asyncio.Event()

        @tool(effects=lambda key: Effects(writes={key}))
        async def wait_for_third(key: str) -> None:
            await third_ran.wait()

        @tool(effects=lambda key: Effects(writes={key}))
        async def touch(key: str, last: bool) -> None:
            if last:
                third_ran.set()

        calls = [
            a_call("wait_for_third", key="a"),
            a_call("touch", key="b", last=False),
            a_call("touch", key="b", last=True),
        ]
        return await run_batch([wait_for_third, touch], calls)

    assert [result.status for result in asyncio.run(main()).results] == ["success"] * 3


def test_undeclared_calls_run_one_after_the_other():
    running = []

    @tool
    async def alone() -> int:
        running.append(1)
        await asyncio.sleep(0)
        together = len(running)
        running.clear()
        return together

    results = asyncio.run(run_batch([alone], [a_call("alone") for _ in range(20)])).results
    assert [result.structured for result in results] == [1] * 20


def running_calls(tools, calls):
    recorder = Recorder()
    asyncio.run(run_batch(tools, calls, emit=recorder))
    return [event for event in recorder.events if type(event).__name__ == "ToolStarted"]


@tool(effects=lambda key: Effects(writes={key}))
async def put(key: str) -> None:
    pass


@tool(effects=lambda key: Effects(reads={key}))
async def get(key: str) -> None:
    pass


@tool
async def vague() -> None:
    pass


@tool(read_only=True)
async def glance() -> None:
    pass


def test_a_batch_says_which_calls_waited_for_which():
    calls = [
        a_call("put", "a", key="file:a"),
        a_call("put", "b", key="file:b"),
        a_call("get", "c", key="file:a/x"),
        a_call("get", "d", key="file:c"),
        a_call("put", "e", key="file:"),
    ]
    waits_by_call = {wait.call_id: wait.waited_for for wait in waits(running_calls([put, get], calls))}
    assert waits_by_call == {"c": ("a",), "e": ("a", "b", "c", "d")}


def test_hints_name_the_tools_that_say_too_little_and_only_where_somebody_waited():
    assert hints(running_calls([vague, get], [a_call("vague")])) == ()
    assert hints(running_calls([put, get], [a_call("put", key="file:a"), a_call("get", key="file:a")])) == ()
    calls = [a_call("put", key="file:a"), a_call("vague"), a_call("get", key="file:b"), a_call("get", key="file:c")]
    (hint,) = hints(running_calls([put, vague, get], calls))
    assert hint.startswith("vague does not declare what it touches, so 3 calls had to wait; with @tool(effects=…)")
    (hint,) = hints(running_calls([put, glance], [a_call("put", key="file:a"), a_call("glance")]))
    assert hint.startswith("glance may read anything, so 1 call had to wait")


def test_what_is_recorded_of_effects_shows_no_secret():
    recorder = Recorder()
    options = {"secrets": Secrets({"KEY": "hunter22"})}
    asyncio.run(run_batch([get], [a_call("get", key="file:{{secret:KEY}}")], emit=recorder, options=options))
    assert recorder.events[0].effects.reads == {"file:{{secret:KEY}}"}
