"""Checks of what a caller chooses for an agent and its runs, where it is chosen: a later failure would not name it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from inspect import iscoroutinefunction
from types import MappingProxyType
from typing import Any, cast, get_args

from toolspeak.agent.options import Approval, Execution
from toolspeak.agent.state.history import Window
from toolspeak.data.events import Limits
from toolspeak.data.messages import Message, ToolChoice
from toolspeak.data.prices import Price, price_of
from toolspeak.errors import ConfigurationError, UnknownTool, suggest
from toolspeak.execute import BatchExecutor, Concurrency, InDoubtPolicy, Secrets, StandingRules
from toolspeak.tools import Tool, Toolset
from toolspeak.tools.returned_values import Unserialisable, jsonable

_NO_SECRETS = Secrets()
_USUAL_LIMITS = Limits()
_HISTORY = "a list of Messages, say the `messages` of an earlier RunResult"
_LISTS = (list, tuple)
_IN_DOUBT: tuple[InDoubtPolicy, ...] = get_args(InDoubtPolicy)
_EACH_LIMIT = ("steps", "calls", "seconds", "tokens", "repeats", "failures", "cost")


def toolset_of(tools: Toolset | Iterable[Tool | Callable[..., Any]]) -> Toolset:
    """The tools as a set. Raises ConfigurationError for one tool alone, a mapping or a text."""
    if isinstance(tools, Toolset):
        return tools
    if type(tools) not in _LISTS and (
        isinstance(cast("object", tools), Mapping | str) or not hasattr(tools, "__iter__")
    ):
        remedy = "write tools=[it]" if callable(tools) else "write tools=[function, …]"
        raise ConfigurationError(
            f"tools is a list of functions and tools, or a Toolset, not {_quoted(tools)}; {remedy}"
        )
    return Toolset(tools)


def secrets_of(secrets: Secrets | Mapping[str, str] | None) -> Secrets:
    """The secrets of an agent. Raises ConfigurationError for what names none."""
    if isinstance(secrets, Secrets) or not secrets:
        return secrets if isinstance(secrets, Secrets) else _NO_SECRETS
    _is(secrets, Mapping, "secrets", "a dict of names and values")
    return Secrets(secrets)


def check_options(options: Mapping[str, Any], known: Collection[str]) -> None:
    """Raises ConfigurationError for an option of a run that there is none of, or whose value cannot be meant."""
    for name, value in options.items():
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
        raise ConfigurationError(f"setup is a dict of JSON, for it is recorded, not {_quoted(setup)}") from None


def check_messages(task: object, history: object) -> None:
    """Raises ConfigurationError for a task or a history that is not made of messages."""
    if type(task) is not str:
        _is(task, str | Message, "the task", "a text or a Message (Message.user(…))")
    if history == ():
        return
    if isinstance(history, str) or not isinstance(history, Sequence):
        raise ConfigurationError(f"history is {_HISTORY}, not {_quoted(history)}")
    for each in cast("Sequence[object]", history):
        if not isinstance(each, Message):
            raise ConfigurationError(f"history is {_HISTORY}; it holds {_quoted(each)}")


def check_limits(limits: object) -> None:
    """Raises ConfigurationError for what is no Limits, or has one that is no number."""
    if limits is None:
        return
    if not isinstance(limits, Limits):
        raise ConfigurationError(f"limits is a Limits, not {_quoted(limits)}; write Limits(steps=20), say")
    values = (limits.steps, limits.calls, limits.seconds, limits.tokens, limits.repeats, limits.failures, limits.cost)
    for place, value in enumerate(cast("tuple[object, ...]", values)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
            name = _EACH_LIMIT[place]
            raise ConfigurationError(f"Limits({name}={value!r}): a number from 0 up, or None for no limit")


def check_execution(execution: Execution) -> None:
    """Raises ConfigurationError for an `Execution` that cannot be meant. The executor checks the rest."""
    _is(execution.concurrency, Concurrency, "concurrency", "a Concurrency, say Concurrency(batch=4)")
    timeout = cast("object", execution.tool_timeout)
    if timeout is not None:
        is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        if not is_number or not cast("float", timeout) > 0:
            expected = "a number of seconds above 0, or None for no limit"
            raise ConfigurationError(f"tool_timeout is {expected}, not {_quoted(timeout)}")
    for name in ("early_start", "throw_on_failure", "stop_on_block"):
        flag = getattr(execution, name)
        if flag is not True and flag is not False:
            raise ConfigurationError(f"{name} is True or False, not {_quoted(flag)}")


def check_approval(approval: Approval) -> None:
    """Raises ConfigurationError for an `Approval` that cannot be meant. The approver and the policy are checked where
    they are resolved."""
    if approval.rules is not None:
        remedy = "a StandingRules; rules that decide first are policy=[Rule(…), …]"
        _is(approval.rules, StandingRules, "rules", remedy)
    if approval.in_doubt not in _IN_DOUBT:
        raise ConfigurationError(f"in_doubt is {', '.join(map(repr, _IN_DOUBT))}, not {approval.in_doubt!r}")


def check_settings(
    *,
    limits: object,
    interceptors: object,
    observers: object,
    journal: object,
    window: object,
    instructions: object,
    name: object,
    prices: object,
    cassette: object,
    clock: object,
) -> None:
    """Raises ConfigurationError for a setting of an agent that cannot be meant, with what belongs there."""
    # An agent is made in 10 µs: what is as usual is passed over by its type.
    if type(limits) is not Limits or limits != _USUAL_LIMITS:
        check_limits(limits)
    if interceptors != ():
        for each in _listed(interceptors, "interceptors"):
            if isinstance(each, type):
                raise ConfigurationError(
                    f"interceptors holds the class {each.__name__}; give an instance, {each.__name__}()"
                )
    if observers != ():
        for each in _listed(observers, "observers"):
            if not callable(each):
                raise ConfigurationError(f"an observer is a function of one event, not {_quoted(each)}")
            if iscoroutinefunction(each):
                remedy = "nobody would wait for it; read `Run.events()`, or put the event in a queue"
                raise ConfigurationError(f"an observer is a plain function, and {_quoted(each)} is async: {remedy}")
    if journal is not None and not hasattr(journal, "append"):
        remedy = "open one with SqliteJournal(path) or open_journal(url)"
        raise ConfigurationError(f"journal is a Journal, not {_quoted(journal)}; {remedy}")
    if cassette is not None and not hasattr(cassette, "recording"):
        raise ConfigurationError(f"cassette is a Cassette, not {_quoted(cassette)}; write Cassette(path)")
    if window is not None:
        _is(window, int | Window, "window", "a number of tokens or a Window")
    if type(instructions) is not str:
        _is(instructions, str, "instructions", "a text")
    if type(name) is not str:
        _is(name, str, "name", "a text")
    if not callable(clock):
        raise ConfigurationError(f"clock is a function that gives the Unix time, not {_quoted(clock)}")
    if type(prices) is not MappingProxyType or prices:
        _is(cast("object", prices), Mapping, "prices", "a dict of Prices by 'provider:model'")
        for model, price in cast("Mapping[object, object]", prices).items():
            _is(price, Price, f"prices[{model!r}]", "a Price")


def _listed(value: object, name: str) -> Sequence[object]:
    if not isinstance(value, Sequence):
        raise ConfigurationError(f"{name} is a list, not {_quoted(value)}; write {name}=[it]")
    return cast("Sequence[object]", value)


def checked_choice(choice: str | ToolChoice, tools: Toolset) -> ToolChoice:
    """The tool choice that is meant. Raises UnknownTool for a name that no tool has, ConfigurationError without any
    tool."""
    if type(choice) is not str and not isinstance(cast("object", choice), ToolChoice):
        raise ConfigurationError(
            f"tool_choice is 'auto', 'required', 'none', a tool's name or a ToolChoice, not {choice!r}"
        )
    tool_choice = ToolChoice.of(choice) if isinstance(choice, str) else choice
    if tool_choice.mode in ("auto", "none"):
        return tool_choice
    names = [spec.name for spec in tools.specs]
    if tool_choice.mode == "specific" and tool_choice.name not in names:
        raise UnknownTool(f"tool_choice: there is no tool {suggest(tool_choice.name or '', names)}")
    if tool_choice.mode == "required" and not names:
        raise ConfigurationError("tool_choice='required' needs a tool")
    return tool_choice


def check_executor(executor: BatchExecutor, choices: Mapping[str, Any], *, answers: bool) -> None:
    """Raises ConfigurationError for what is no executor, for `choices` that are its own to make, and where the answer
    is asked for as a tool (`answers`), which it does not have."""
    if not hasattr(executor, "run") or isinstance(executor, type):
        raise ConfigurationError(f"execution is an Execution, or an executor with its `run`, not {_quoted(executor)}")
    twice = [name for name, choice in choices.items() if choice]
    if twice:
        raise ConfigurationError(
            f"{', '.join(twice)}: the executor's to say, as in Executor(Toolset(tools), {twice[0]}=…)"
        )
    if answers:
        raise ConfigurationError(
            "the answer is asked for as a tool, which the executor does not have: say Output(…, mode='prompted')"
        )


def check_deps(tools: Toolset, deps: object, expected: object = None) -> None:
    """Raises ConfigurationError where tools want the run's `deps` and there are none, and where they are of another
    class than `expected` (None: of any)."""
    # A protocol that is not made for it, and a type with parameters, cannot be asked about.
    if deps is not None and type(expected) is type and not isinstance(deps, expected):
        raise ConfigurationError(f"deps is a {type(deps).__name__}, and the agent's deps_type is {expected.__name__}")
    wanting = [each for each in tools if each.deps] if deps is None else ()
    if wanting:
        named = ", ".join(f"{each.name} ({each.deps})" for each in wanting)
        raise ConfigurationError(
            f"no deps were given, and tools want them: {named}. Give them to the run, as in "
            "agent.run(task, deps=…) and agent.resume(run, deps=…); a tool that can do without has RunContext[X | None]"
        )


def _is(value: object, kinds: Any, name: str, expected: str, *, optional: bool = False) -> None:
    if not isinstance(value, kinds) and not (optional and value is None):
        raise ConfigurationError(f"{name} is {expected}, not {_quoted(value)}")


def _quoted(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:59] + '…'} ({type(value).__name__})"


def check_priced(limits: Limits, model: str, prices: Mapping[str, Price]) -> None:
    """Raises ConfigurationError for a limit that cannot be held, because nobody knows what the model costs."""
    if limits.cost is not None and price_of(model, prices) is None:
        raise ConfigurationError(
            f"a limit of {limits.cost:g} US dollars cannot be held: the price of {model!r} is not known. Give it, in "
            f"USD per million tokens, with Agent(prices={{{model!r}: Price(input=…, output=…)}}) or --prices FILE, or "
            "limit the tokens"
        )
