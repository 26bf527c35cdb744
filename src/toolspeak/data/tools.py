"""What a tool is to a model (`ToolSpec`), what it touches (`Effects`), and what results say of tools and sources."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import cast

from msgspec import Struct
from msgspec.structs import force_setattr

from toolspeak.data.messages import JSON, Message, ToolChoice, ToolResult, no_extra
from toolspeak.data.values import value
from toolspeak.errors import ConfigurationError

EVERYTHING = "*"
"""The resource key above every other."""

NO_VERSION = "?"
"""The `Effects.version` of what may change from outside unnoticed. The result cache never answers for it."""

FILES_CHANGED = "files_changed"
"""The key in a result's `extra` that says which files the call changed: their `count`, the first `paths`, and what is
`uncovered`."""

CALLS_WITHIN = "calls_within"
"""The key in a result's `extra` that names the tools that the call has called, and in the `extra` of a program's first
message those that ran before the program. Rules with `after` look for them."""

FOUND_TOOLS = "found_tools"
"""The key in a result's `extra` that names the tools that its call found: a model may read the names alone of many
tools, and find their definitions (`tools.deferred_tools`)."""

MOST_FOUND = 64
"""How many tools that were found a model reads. The oldest leave first, and can be found again."""

WEB = "web:"
"""The resource key above every host of the web: `web:example.com`. What a call reads there was written by strangers."""

SOURCES = "sources"
"""The key in the `extra` of a result, a message and RunStarted that lists the sources."""

URLS = "urls"
"""The key in the `extra` of RunStarted that lists the URLs of a sub-run's task which its parent's model did not make
up. It is there if the parent has read the web."""

_MOST_SOURCES = 50


def covers(upper: str, lower: str) -> bool:
    """Whether resource `lower` is `upper` or lies below it: `file:src/a.py` lies under `file:src` and `file:`."""
    if upper in (EVERYTHING, lower):
        return True
    return lower.startswith(upper if upper.endswith((":", "/")) else upper + "/")


class _SortedKeys(frozenset[str]):
    """Several keys, in the order in which they are written."""

    __slots__ = ()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(super().__iter__()))


_NO_KEYS: frozenset[str] = frozenset()


@value()
class Effects:
    """What one call reads and writes, as hierarchical resource keys.

    - `reads`, `writes`: the keys.
    - `external`: the call leaves the machine (MCP's openWorldHint).
    - `idempotent`: a second run with the same arguments changes nothing more. External calls that are not idempotent
      keep their order.
    - `destructive`: a write may remove or replace what was there.
    - `declared`: False for a tool that declares nothing. It counts as a write of everything.
    - `polls`: the call asks for the current state of something. So the same call again is not a repetition, and the
      result cache does not answer it.
    - `version`: a token of the state of what is read, such as a file's time and size. An earlier result of the same
      call holds as long as the token stays and the run changes nothing there. "" is for what only the run changes,
      `NO_VERSION` for what may change unnoticed.
    - `approval`: a person approves each call, whatever it touches.
    - `delegates`: the call touches nothing but by calls that it makes, and each of those is approved by itself.

    Raises ConfigurationError for a key that is not a string, and for a flag that is not a bool.
    """

    reads: frozenset[str] = _NO_KEYS
    writes: frozenset[str] = _NO_KEYS
    external: bool = False
    idempotent: bool = False
    destructive: bool = True
    declared: bool = True
    polls: bool = False
    version: str = ""
    approval: bool = False
    delegates: bool = False

    def __init__(
        self,
        reads: Iterable[str] = (),
        writes: Iterable[str] = (),
        *,
        external: bool = False,
        idempotent: bool = False,
        destructive: bool = True,
        declared: bool = True,
        polls: bool = False,
        version: str = "",
        approval: bool = False,
        delegates: bool = False,
    ) -> None: ...

    def __post_init__(self) -> None:
        # A string is a true value: "false" for a flag could let a call run without a question.
        flags = (self.external, self.idempotent, self.destructive, self.declared, self.polls)
        for flag in (*flags, self.approval, self.delegates):
            if flag is not True and flag is not False:
                raise ConfigurationError(f"Effects: flags such as external must be True or False, not {flag!r}")
        key_sets: tuple[tuple[str, Iterable[str]], ...] = (("reads", self.reads), ("writes", self.writes))
        for name, names in key_sets:
            if names is _NO_KEYS:
                continue
            keys = frozenset([names]) if isinstance(names, str) else frozenset(names)
            for key in keys:
                if not isinstance(cast("object", key), str):
                    raise ConfigurationError(
                        f"Effects({name}=…): expected a string as key, such as 'file:/srv/a.txt', not {key!r}"
                    )
            force_setattr(cast("Struct", self), name, _SortedKeys(keys) if len(keys) > 1 else keys or _NO_KEYS)

    @property
    def read_only(self) -> bool:
        """Whether the call writes nothing on this machine. An `external` call may still change something elsewhere."""
        return not self.writes

    @property
    def may_run_twice(self) -> bool:
        """Whether a second run does no harm: the call is `idempotent`, or it declares that it writes nothing and stays
        on this machine."""
        return self.idempotent or (self.declared and not self.writes and not self.external)

    @property
    def needs_approval(self) -> bool:
        """Whether the call waits for approval by default: it writes, leaves the machine, does not say, or must."""
        if self.delegates:
            return self.approval
        return not self.declared or bool(self.writes) or self.external or self.approval


READ_ANYTHING = Effects(reads={EVERYTHING}, idempotent=True, destructive=False)
UNDECLARED_EFFECTS = Effects(reads={EVERYTHING}, writes={EVERYTHING}, declared=False)


@value()
class ToolSpec:
    """A tool as a model sees it.

    - `parameters`: a JSON Schema of type object.
    - `effects`: the upper bound over all arguments.
    - `aliases`: other names that a model may use for a parameter, each with the real name.
    - `command_line`: the parameter that /bin/sh runs, "" without one.
    """

    name: str
    description: str
    parameters: Mapping[str, JSON]
    effects: Effects = UNDECLARED_EFFECTS
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    command_line: str = ""
    extra: Mapping[str, JSON] = field(default_factory=no_extra)

    @property
    def properties(self) -> Mapping[str, JSON]:
        """The JSON Schema of each parameter by name."""
        properties = self.parameters.get("properties")
        return cast("Mapping[str, JSON]", properties) if isinstance(properties, (dict, Mapping)) else {}


# --- what results carry in `extra`: the tools that a call found, and the places on the web that a text comes from. So
# every process that goes on with the run knows them.


def found_in(result: ToolResult) -> Sequence[str]:
    """The names of the tools that the result's call found."""
    if not result.extra:
        return ()
    names: JSON = result.extra.get(FOUND_TOOLS)
    entries = cast("Sequence[JSON]", names) if isinstance(names, list | tuple) else ()
    return [name for name in entries if isinstance(name, str)]


def found_in_messages(messages: Iterable[Message]) -> tuple[str, ...]:
    """The names of the tools that calls of a conversation found, in the order in which they were found."""
    names: tuple[str, ...] = ()
    for message in messages:
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult) and (more := found_in(part)):
                    names = with_more(names, more)
    return names


def with_more(names: Sequence[str], more: Iterable[str]) -> tuple[str, ...]:
    """The names with those of `more` that are not among them at the end, at most `MOST_FOUND`: a list of tools that
    only grows at its end keeps a server's prompt cache valid."""
    return tuple(dict.fromkeys((*names, *more)))[-MOST_FOUND:]


def with_choice(names: tuple[str, ...], choice: ToolChoice) -> tuple[str, ...]:
    """The names with the tool that the model must call, which may be a deferred one."""
    return with_more(names, (choice.name,)) if choice.mode == "specific" and choice.name else names


def sources_in(extra: Mapping[str, JSON]) -> Collection[str]:
    """The sources that the `extra` of a value lists."""
    entries = extra.get(SOURCES)
    if not isinstance(entries, list | tuple):
        return ()
    return [each for each in cast("list[JSON]", entries) if isinstance(each, str)]


def urls_in(extra: Mapping[str, JSON]) -> tuple[str, ...] | None:
    """The URLs that the `extra` of RunStarted lists; None if it lists none and all count."""
    urls = extra.get(URLS)
    return (
        tuple(each for each in cast("list[JSON]", urls) if isinstance(each, str))
        if isinstance(urls, list | tuple)
        else None
    )


def sources_of(messages: Iterable[Message]) -> frozenset[str]:
    """The sources of the text of these messages."""
    sources: set[str] = set()
    for message in messages:
        if message.extra:
            sources.update(sources_in(message.extra))
        if message.role == "tool":
            for result in message.results:
                if result.extra:
                    sources.update(sources_in(result.extra))
    return frozenset(sources)


def with_sources(extra: Mapping[str, JSON], sources: Collection[str]) -> Mapping[str, JSON]:
    """The `extra` with these sources besides its own; many become one, the web."""
    if not sources:
        return extra
    all_sources = sorted({*sources_in(extra), *sources})
    return {**extra, SOURCES: all_sources if len(all_sources) <= _MOST_SOURCES else [WEB]}
