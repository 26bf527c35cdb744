"""What a caller gives an agent and its runs, looked at where it is given: a later failure would not name it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from inspect import iscoroutinefunction, signature
from types import MappingProxyType
from typing import Any, TypedDict, cast

from toolspeak.agent.state.compaction import Window
from toolspeak.data.events import Limits
from toolspeak.data.messages import JSON, Message, ToolChoice
from toolspeak.data.prices import Price
from toolspeak.errors import ConfigurationError, suggest
from toolspeak.execute import BatchExecutor, Concurrency, Executor, Secrets, StandingRules
from toolspeak.tools import Tool, Toolset
from toolspeak.tools.returned_values import Unserialisable, jsonable

_NO_SECRETS = Secrets()
_USUAL_LIMITS = Limits()
_HISTORY = "a list of Messages, say the `messages` of an earlier RunResult"
_LISTS = (list, tuple)
_FLAGS = ("early_start", "throw_on_failure", "stop_on_block")
_EACH_LIMIT = ("steps", "calls", "seconds", "tokens", "repeats", "failures", "cost")


class RunOptions(TypedDict, total=False):
    """What one run is given besides its task.

    `history` is the conversation it continues, `deps` what tools receive as `RunContext.deps`; `limits` and
    `tool_choice` instead of the agent's. `setup` is kept with the run, for whoever sets it up again in another process.
    The rest goes into every record: on whose behalf, in which trace, started by which run.
    """

    history: Sequence[Message]
    deps: Any
    limits: Limits | None
    tool_choice: str | ToolChoice
    principal: str | None
    traceparent: str | None
    parent_run_id: str | None
    setup: Mapping[str, JSON]


def toolset_of(tools: Toolset | Iterable[Tool | Callable[..., Any]]) -> Toolset:
    """The tools as a set. Raises ConfigurationError for one tool alone, a mapping or a text."""
    if isinstance(tools, Toolset):
        return tools
    if type(tools) not in _LISTS and (
        isinstance(cast("object", tools), Mapping | str) or not hasattr(tools, "__iter__")
    ):
        remedy = "write tools=[it]" if callable(tools) else "write tools=[function, …]"
        raise ConfigurationError(f"tools is a list of functions and tools, or a Toolset, not {_shown(tools)}; {remedy}")
    return Toolset(tools)


def secrets_of(secrets: Secrets | Mapping[str, str] | None) -> Secrets:
    """The secrets of an agent. Raises ConfigurationError for what names none."""
    if isinstance(secrets, Secrets) or not secrets:
        return secrets if isinstance(secrets, Secrets) else _NO_SECRETS
    _is(secrets, Mapping, "secrets", "a dict of names and values")
    return Secrets(secrets)


def check_options(given: Mapping[str, Any], known: Collection[str]) -> None:
    """Raises ConfigurationError for an option of a run that there is none of, or whose value cannot be meant."""
    for name, value in given.items():
        if name not in known:
            raise ConfigurationError(f"a run has no option {suggest(name, known)}")
        if name == "limits":
            check_limits(value)
        elif name == "setup":
            _check_setup(value)
        elif name in ("principal", "traceparent", "parent_run_id"):
            _is(value, str, name, "a text", optional=True)


def _check_setup(setup: object) -> None:
    _is(setup, Mapping, "setup", "a dict of JSON", optional=True)
    try:
        jsonable(setup)
    except Unserialisable:
        raise ConfigurationError(f"setup is a dict of JSON, for it is recorded, not {_shown(setup)}") from None


def check_messages(task: object, history: object) -> None:
    """Raises ConfigurationError for a task or a history that is not made of messages."""
    if type(task) is not str:
        _is(task, str | Message, "the task", "a text or a Message (Message.user(…))")
    if history == ():
        return
    if isinstance(history, str) or not isinstance(history, Sequence):
        raise ConfigurationError(f"history is {_HISTORY}, not {_shown(history)}")
    for each in cast("Sequence[object]", history):
        if not isinstance(each, Message):
            raise ConfigurationError(f"history is {_HISTORY}; it holds {_shown(each)}")


def check_limits(limits: object) -> None:
    """Raises ConfigurationError for what is no Limits, or has one that is no number."""
    if limits is None:
        return
    if not isinstance(limits, Limits):
        raise ConfigurationError(f"limits is a Limits, not {_shown(limits)}; write Limits(steps=20), say")
    given = (limits.steps, limits.calls, limits.seconds, limits.tokens, limits.repeats, limits.failures, limits.cost)
    for place, value in enumerate(cast("tuple[object, ...]", given)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
            name = _EACH_LIMIT[place]
            raise ConfigurationError(f"Limits({name}={value!r}): a number from 0 up, or None for no limit")


def check_settings(
    *,
    limits: object,
    concurrency: object,
    interceptors: object,
    observers: object,
    journal: object,
    rules: object,
    window: object,
    instructions: object,
    name: object,
    tool_timeout: object,
    prices: object,
    cassette: object,
    output_retries: object,
    clock: object,
    flags: tuple[object, object, object],
) -> None:
    """Raises ConfigurationError for a setting of an agent that cannot be meant, with what belongs there."""
    # An agent is made in 10 µs: what is as usual is passed over by its type.
    if type(limits) is not Limits or limits != _USUAL_LIMITS:
        check_limits(limits)
    if type(concurrency) is not Concurrency:
        _is(concurrency, Concurrency, "concurrency", "a Concurrency, say Concurrency(batch=4)")
    if interceptors != ():
        for each in _listed(interceptors, "interceptors"):
            if isinstance(each, type):
                raise ConfigurationError(
                    f"interceptors holds the class {each.__name__}; give an instance, {each.__name__}()"
                )
    if observers != ():
        for each in _listed(observers, "observers"):
            if not callable(each):
                raise ConfigurationError(f"an observer is a function of one event, not {_shown(each)}")
            if iscoroutinefunction(each):
                remedy = "nobody would wait for it; read `Run.events()`, or put the event in a queue"
                raise ConfigurationError(f"an observer is a plain function, and {_shown(each)} is async: {remedy}")
    if journal is not None and not hasattr(journal, "append"):
        remedy = "open one with SqliteJournal(path) or open_journal(url)"
        raise ConfigurationError(f"journal is a Journal, not {_shown(journal)}; {remedy}")
    if cassette is not None and not hasattr(cassette, "recording"):
        raise ConfigurationError(f"cassette is a Cassette, not {_shown(cassette)}; write Cassette(path)")
    if rules is not None:
        _is(rules, StandingRules, "rules", "a StandingRules; rules that decide first are policy=[Rule(…), …]")
    if window is not None:
        _is(window, int | Window, "window", "a number of tokens or a Window")
    if type(instructions) is not str:
        _is(instructions, str, "instructions", "a text")
    if type(name) is not str:
        _is(name, str, "name", "a text")
    if tool_timeout is not None:
        is_number = isinstance(tool_timeout, int | float) and not isinstance(tool_timeout, bool)
        if not is_number or not cast("float", tool_timeout) > 0:
            wanted = "a number of seconds above 0, or None for no limit"
            raise ConfigurationError(f"tool_timeout is {wanted}, not {_shown(tool_timeout)}")
    if type(output_retries) is not int or output_retries < 0:
        raise ConfigurationError(f"output_retries is a number from 0 up, not {_shown(output_retries)}")
    if not callable(clock):
        raise ConfigurationError(f"clock is a function that gives the Unix time, not {_shown(clock)}")
    for place, said in enumerate(flags):
        if said is not True and said is not False:
            raise ConfigurationError(f"{_FLAGS[place]} is True or False, not {_shown(said)}")
    if type(prices) is not MappingProxyType or prices:
        _is(cast("object", prices), Mapping, "prices", "a dict of Prices by 'provider:model'")
        for model, price in cast("Mapping[object, object]", prices).items():
            _is(price, Price, f"prices[{model!r}]", "a Price")


def _listed(value: object, name: str) -> Sequence[object]:
    if not isinstance(value, Sequence):
        raise ConfigurationError(f"{name} is a list, not {_shown(value)}; write {name}=[it]")
    return cast("Sequence[object]", value)


def rules_of(executor: object, rules: StandingRules | None) -> StandingRules:
    """The rules an agent keeps: its executor's, if it is given one. Raises ConfigurationError for both."""
    own: StandingRules | None = getattr(executor, "rules", None)
    if executor is not None and rules is not None:
        raise ConfigurationError("rules: the executor's to say, as in Executor(Toolset(tools), rules=…)")
    return StandingRules() if own is None and rules is None else cast("StandingRules", rules if own is None else own)


def check_executor(given: BatchExecutor, said: Mapping[str, Any], *, answers: bool) -> None:
    """Raises ConfigurationError for what is no executor, for settings that are its own to say, and where the answer is
    asked for as a tool (`answers`), which it does not have."""
    if not hasattr(given, "run") or isinstance(given, type):
        raise ConfigurationError(f"executor is an Executor, or has its `run`, not {_shown(given)}")
    defaults = signature(Executor).parameters
    twice = [name for name, value in said.items() if value != defaults[name].default]
    if twice:
        raise ConfigurationError(
            f"{', '.join(twice)}: the executor's to say, as in Executor(Toolset(tools), {twice[0]}=…)"
        )
    if answers:
        raise ConfigurationError(
            "the answer is asked for as a tool, which the executor does not have: say output_mode='prompted'"
        )


def check_deps(tools: Toolset, deps: object) -> None:
    """Raises ConfigurationError where tools want the run's `deps` and there are none."""
    wanting = [each for each in tools if each.deps] if deps is None else ()
    if wanting:
        named = ", ".join(f"{each.name} ({each.deps})" for each in wanting)
        raise ConfigurationError(
            f"no deps were given, and tools want them: {named}. Give them to the run, as in "
            "agent.run(task, deps=…) and agent.resume(run, deps=…); a tool that can do without has RunContext[X | None]"
        )


def _is(value: object, kinds: Any, name: str, wanted: str, *, optional: bool = False) -> None:
    if not isinstance(value, kinds) and not (optional and value is None):
        raise ConfigurationError(f"{name} is {wanted}, not {_shown(value)}")


def _shown(value: object) -> str:
    shown = repr(value)
    return f"{shown if len(shown) <= 60 else shown[:59] + '…'} ({type(value).__name__})"
