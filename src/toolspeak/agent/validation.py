"""Checks of an agent's settings and a run's options, when they are given: a later failure would not name them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from inspect import iscoroutinefunction
from types import MappingProxyType
from typing import Any, cast, get_args

from toolspeak.agent.options import Approval, Execution
from toolspeak.agent.state.history import Window
from toolspeak.data.events import Limits
from toolspeak.data.messages import Message, ToolChoice
from toolspeak.data.prices import Price
from toolspeak.errors import ConfigurationError, ProviderError, UnknownTool, suggest
from toolspeak.execute import AfterWeb, Approve, BatchExecutor, Concurrency, InDoubtPolicy, Secrets, StandingRules
from toolspeak.tools import DeferredTools, Tool, ToolFilter, ToolList, Toolset, TurnTools
from toolspeak.tools.returned_values import Unserialisable, jsonable
from toolspeak.tools.signature import takes_context

_NO_SECRETS = Secrets()
_USUAL_APPROVAL = Approval()
_USUAL_LIMITS = Limits()
_HISTORY = "a list of Messages, for example the `messages` of an earlier RunResult"
_LISTS = (list, tuple)
_IN_DOUBT: tuple[InDoubtPolicy, ...] = get_args(InDoubtPolicy)
_AFTER_WEB: tuple[AfterWeb, ...] = get_args(AfterWeb)
_EACH_LIMIT = ("steps", "calls", "seconds", "tokens", "repeats", "failures", "cost")


def toolset_of(tools: ToolList, where: str = "tools must be ") -> Toolset:
    """The tools as a Toolset. Raises ConfigurationError for one tool alone, a mapping or a string; `where` begins the
    message."""
    if isinstance(tools, Toolset):
        return tools
    if type(tools) not in _LISTS and (
        isinstance(cast("object", tools), Mapping | str) or not hasattr(tools, "__iter__")
    ):
        remedy = "write tools=[it]" if callable(tools) else "write tools=[function, …]"
        raise ConfigurationError(
            f"{where}a list of functions and tools, or a Toolset, not {_describe(tools)}; {remedy}"
        )
    return Toolset(tools)


def turn_tools_of(tools: object) -> TurnTools[Any] | None:
    """The function that computes the tools of each turn, None for tools that are there already, or for one that a list
    was forgotten around."""
    if type(tools) in _LISTS or isinstance(tools, Toolset | Tool | type) or not callable(tools):
        return None
    function = cast("TurnTools[Any]", tools)
    return function if isinstance(tools, ToolFilter | DeferredTools) or takes_context(function, "tools") else None


def all_tools_of(tools: Toolset, turn_tools: object) -> Toolset | None:
    """The tools of any turn: `tools`, and those among which the function `turn_tools` selects. None if only the
    function knows them."""
    if turn_tools is None:
        return tools
    return tools + turn_tools.tools if isinstance(turn_tools, ToolFilter | DeferredTools) else None


def secrets_of(secrets: Secrets | Mapping[str, str] | None) -> Secrets:
    """The secrets of an agent. Raises ConfigurationError for a value that is not a mapping."""
    if isinstance(secrets, Secrets) or not secrets:
        return secrets if isinstance(secrets, Secrets) else _NO_SECRETS
    _is(secrets, Mapping, "secrets", "a dict of names and values")
    return Secrets(secrets)


def check_options(options: Mapping[str, Any], known_names: Collection[str]) -> None:
    """Raises ConfigurationError for an unknown option of a run, or a value of the wrong type."""
    for name, value in options.items():
        if name not in known_names:
            raise ConfigurationError(f"a run has no option {suggest(name, known_names)}")
        if name == "limits":
            check_limits(value)
        elif name == "setup":
            _check_setup(value)
        elif name in ("principal", "traceparent", "parent_run_id"):
            _is(value, str, name, "a string", optional=True)


def _check_setup(setup: object) -> None:
    _is(setup, Mapping, "setup", "a dict of JSON", optional=True)
    try:
        jsonable(setup)
    except Unserialisable:
        raise ConfigurationError(
            f"setup must be a dict of JSON, because it is recorded, not {_describe(setup)}"
        ) from None


def check_messages(task: object, history: object) -> None:
    """Raises ConfigurationError for a task that is neither a string nor a Message, and a history that is not a list of
    Messages."""
    if type(task) is not str:
        _is(task, str | Message, "the task", "a string or a Message (Message.user(…))")
    if history == ():
        return
    if isinstance(history, str) or not isinstance(history, Sequence):
        raise ConfigurationError(f"history must be {_HISTORY}, not {_describe(history)}")
    for each in cast("Sequence[object]", history):
        if not isinstance(each, Message):
            raise ConfigurationError(f"history must be {_HISTORY}; it holds {_describe(each)}")


def check_limits(limits: object) -> None:
    """Raises ConfigurationError for a value that is not a Limits, or has a limit that is not a number."""
    if limits is None:
        return
    if not isinstance(limits, Limits):
        raise ConfigurationError(f"limits must be a Limits, not {_describe(limits)}; for example Limits(steps=20)")
    values = (limits.steps, limits.calls, limits.seconds, limits.tokens, limits.repeats, limits.failures, limits.cost)
    for place, value in enumerate(cast("tuple[object, ...]", values)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
            name = _EACH_LIMIT[place]
            raise ConfigurationError(f"Limits({name}={value!r}): expected a number from 0 up, or None for no limit")


def check_execution(execution: Execution) -> None:
    """Raises ConfigurationError for a value of the wrong type in an `Execution`. The executor checks the rest."""
    _is(execution.concurrency, Concurrency, "concurrency", "a Concurrency, for example Concurrency(batch=4)")
    timeout = cast("object", execution.tool_timeout)
    if timeout is not None:
        is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        if not is_number or not cast("float", timeout) > 0:
            expected = "a number of seconds above 0, or None for no limit"
            raise ConfigurationError(f"tool_timeout must be {expected}, not {_describe(timeout)}")
    for name in ("early_start", "throw_on_failure", "stop_on_block"):
        flag = getattr(execution, name)
        if flag is not True and flag is not False:
            raise ConfigurationError(f"{name} must be True or False, not {_describe(flag)}")


def approval_of(approve: Approve | Approval) -> Approval:
    """The `Approval` of an agent's `approve`. Raises ConfigurationError for a value of the wrong type in it. The
    approver and the policy are checked where they are resolved."""
    if approve is None:
        return _USUAL_APPROVAL
    approval = approve if isinstance(approve, Approval) else Approval(approve)
    if approval.rules is not None:
        remedy = "a StandingRules; rules that decide first are policy=[Rule(…), …]"
        _is(approval.rules, StandingRules, "rules", remedy)
    if approval.after_web is not None and approval.after_web not in _AFTER_WEB:
        choices = ", ".join(map(repr, _AFTER_WEB))
        raise ConfigurationError(f"after_web must be one of {choices}, or None, not {approval.after_web!r}")
    if approval.in_doubt not in _IN_DOUBT:
        raise ConfigurationError(
            f"in_doubt must be one of {', '.join(map(repr, _IN_DOUBT))}, not {approval.in_doubt!r}"
        )
    return approval


def check_settings(
    *,
    limits: object,
    interceptors: object,
    observers: object,
    journal: object,
    window: object,
    instructions: object,
    name: object,
    description: object,
    handoffs: object,
    prices: object,
    cassette: object,
    clock: object,
) -> None:
    """Raises ConfigurationError for a setting of an agent that has the wrong type. The message says what is
    expected."""
    # An agent is made in 10 µs: the usual types are not checked further.
    if type(limits) is not Limits or limits != _USUAL_LIMITS:
        check_limits(limits)
    if interceptors != ():
        for each in _as_list(interceptors, "interceptors"):
            if isinstance(each, type):
                raise ConfigurationError(
                    f"interceptors holds the class {each.__name__}; give an instance, {each.__name__}()"
                )
    if observers != ():
        for each in _as_list(observers, "observers"):
            if not callable(each):
                raise ConfigurationError(f"an observer must be a function of one event, not {_describe(each)}")
            if iscoroutinefunction(each):
                remedy = "nothing would await it; read `Run.events()`, or put the event in a queue"
                raise ConfigurationError(f"an observer must not be async, but {_describe(each)} is: {remedy}")
    if journal is not None and not hasattr(journal, "append"):
        remedy = "open one with SqliteJournal(path) or open_journal(url)"
        raise ConfigurationError(f"journal must be a Journal, not {_describe(journal)}; {remedy}")
    if cassette is not None and not hasattr(cassette, "recording"):
        raise ConfigurationError(
            f"cassette must be a Cassette, not {_describe(cassette)}; use Cassette.record(path) or "
            "Cassette.replay(path)"
        )
    if window is not None:
        _is(window, int | Window, "window", "a number of tokens or a Window")
    if type(instructions) is not str and not callable(instructions):
        _is(instructions, str, "instructions", "a string, or a function of the RunContext")
    if type(name) is not str:
        _is(name, str, "name", "a string")
    if type(description) is not str:
        _is(description, str, "description", "a string")
    if handoffs is not None:
        for each in _as_list(handoffs, "handoffs"):
            if not isinstance(each, str) and not hasattr(each, "as_tool"):
                raise ConfigurationError(f"handoffs are Agents, or names of agents, not {_describe(each)}")
    if not callable(clock):
        raise ConfigurationError(f"clock must be a function that returns the Unix time, not {_describe(clock)}")
    if type(prices) is not MappingProxyType or prices:
        _is(cast("object", prices), Mapping, "prices", "a dict of Prices by 'provider:model'")
        for model, price in cast("Mapping[object, object]", prices).items():
            _is(price, Price, f"prices[{model!r}]", "a Price")


def _as_list(value: object, name: str) -> Sequence[object]:
    if not isinstance(value, Sequence):
        raise ConfigurationError(f"{name} must be a list, not {_describe(value)}; write {name}=[it]")
    return cast("Sequence[object]", value)


def checked_choice(choice: str | ToolChoice, tools: Toolset | None) -> ToolChoice:
    """The choice as a ToolChoice; it may name any tool if `tools` is None. Raises UnknownTool for a name that no tool
    has, ConfigurationError for "required" without tools and for a value of the wrong type."""
    if type(choice) is not str and not isinstance(cast("object", choice), ToolChoice):
        raise ConfigurationError(
            f"tool_choice must be 'auto', 'required', 'none', a tool's name or a ToolChoice, not {choice!r}"
        )
    tool_choice = ToolChoice.of(choice) if isinstance(choice, str) else choice
    if tool_choice.mode in ("auto", "none") or tools is None:
        return tool_choice
    names = [spec.name for spec in tools.specs]
    if tool_choice.mode == "specific" and tool_choice.name not in names:
        raise UnknownTool(f"tool_choice: there is no tool {suggest(tool_choice.name or '', names)}")
    if tool_choice.mode == "required" and not names:
        raise ConfigurationError("tool_choice='required' needs a tool")
    return tool_choice


def check_submitted_options(
    choice: ToolChoice,
    tools: Toolset | None,
    limits: Limits,
    prices: Sequence[tuple[str, Price | None]],
) -> None:
    """As `checked_choice` and `check_priced`, for a run that older code or another program submitted: raises
    ProviderError, which ends the run, where they raise ConfigurationError, which leaves it for a better try.

    `prices`: the models that the run may ask, each with its price.
    """
    try:
        checked_choice(choice, tools)
        for model, price in prices:
            check_priced(limits, model, price)
    except ConfigurationError as error:
        raise ProviderError(str(error)) from error


def check_executor(executor: BatchExecutor, choices: Mapping[str, Any], *, adds_tools: bool) -> None:
    """Raises ConfigurationError for a value that is not an executor, for `choices` (settings by name) that a custom
    executor has itself, and if the agent has tools of its own (`adds_tools`), because the executor lacks them."""
    if not hasattr(executor, "run") or isinstance(executor, type):
        raise ConfigurationError(
            f"execution must be an Execution, or an executor with a method `run`, not {_describe(executor)}"
        )
    twice = [name for name, choice in choices.items() if choice]
    if twice:
        raise ConfigurationError(f"{', '.join(twice)}: pass it to the executor, as in Executor(tools, {twice[0]}=…)")
    if adds_tools:
        raise ConfigurationError(
            "the agent answers, or hands off, by a tool that the executor does not have: use "
            "Output(…, mode='prompted'), and an Execution for an agent with handoffs"
        )


def check_deps(tools: Toolset, deps: object, expected: object = None) -> None:
    """Raises ConfigurationError if tools need the run's `deps` and there are none, or if `deps` is not an instance of
    the class `expected` (None: any class)."""
    # A protocol that is not made for it, and a type with parameters, cannot be asked about.
    if deps is not None and type(expected) is type and not isinstance(deps, expected):
        raise ConfigurationError(f"deps is a {type(deps).__name__}, and the agent's deps_type is {expected.__name__}")
    wanting = [each for each in tools if each.deps] if deps is None else ()
    if wanting:
        needs = ", ".join(f"{each.name} ({each.deps})" for each in wanting)
        raise ConfigurationError(
            f"no deps were given, and these tools need them: {needs}. Pass them to the run: agent.run(task, deps=…), "
            "agent.resume(run, deps=…). A tool that can do without them declares RunContext[X | None]"
        )


def _is(value: object, kinds: Any, name: str, expected: str, *, optional: bool = False) -> None:
    if not isinstance(value, kinds) and not (optional and value is None):
        raise ConfigurationError(f"{name} must be {expected}, not {_describe(value)}")


def _describe(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:59] + '…'} ({type(value).__name__})"


def check_priced(limits: Limits, model: str, price: Price | None) -> None:
    """Raises ConfigurationError for a limit in USD on a model whose price is not known."""
    if limits.cost is not None and price is None:
        raise ConfigurationError(
            f"a limit of {limits.cost:g} US dollars cannot be enforced: the price of {model!r} is not known. Give it, "
            f"in USD per million tokens, with Agent(prices={{{model!r}: Price(input=…, output=…)}}) or --prices FILE, "
            "or limit the tokens"
        )
