"""What a tool is to a model (`ToolSpec`), and what it touches (`Effects`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import cast

from msgspec import Struct
from msgspec.structs import force_setattr

from toolspeak.data.messages import JSON, no_extra
from toolspeak.data.values import value
from toolspeak.errors import ConfigurationError

EVERYTHING = "*"
"""The resource key above every other."""

UNVERSIONED = "?"
"""The `Effects.version` of what may change from outside unnoticed. The result cache never answers for it."""

FILES_CHANGED = "files_changed"
"""The key in a result's `extra` that says which files the call changed: their `count`, the first `paths`, and what is
`uncovered`."""

CALLS_WITHIN = "calls_within"
"""The key in a result's `extra` that names the tools that the call has called, and in the `extra` of a program's first
message those that ran before the program. Rules with `after` look for them."""


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
      `UNVERSIONED` for what may change unnoticed.
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
UNDECLARED = Effects(reads={EVERYTHING}, writes={EVERYTHING}, declared=False)


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
    effects: Effects = UNDECLARED
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    command_line: str = ""
    extra: Mapping[str, JSON] = field(default_factory=no_extra)

    @property
    def properties(self) -> Mapping[str, JSON]:
        """The JSON Schema of each parameter by name."""
        properties = self.parameters.get("properties")
        return cast("Mapping[str, JSON]", properties) if isinstance(properties, (dict, Mapping)) else {}
