"""A tool's declaration of effects: an upper bound, and a function that returns the effects of one call."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from toolspeak.data.tools import EVERYTHING, READ_ANYTHING, UNDECLARED_EFFECTS, Effects, covers
from toolspeak.data.values import quick
from toolspeak.errors import ToolDefinitionError
from toolspeak.tools.crashes import log_crash
from toolspeak.tools.signature import signature_of

_LOG = logging.getLogger("toolspeak.tools")


@quick()
class Declaration:
    """The options of `@tool` about effects."""

    effects: Effects | Callable[..., Effects] | None = None
    effects_bound: Effects | None = None
    read_only: bool = False
    external: bool = False
    idempotent: bool = False
    destructive: bool = True
    polls: bool = False

    def check(self, where: str) -> None:
        """Raise ToolDefinitionError for options that contradict each other."""
        if self.effects is not None and not isinstance(self.effects, Effects) and not callable(self.effects):
            raise ToolDefinitionError(f"{where}: effects must be Effects(…) or a function that returns one")
        if self.effects_bound is not None and self.effects is None:
            raise ToolDefinitionError(f"{where}: effects_bound goes with an effects function; use effects instead")
        match (self.effects, self.effects_bound):
            case (Effects() as effects, Effects() as bound) if not within(effects, bound):
                raise ToolDefinitionError(f"{where}: effects go beyond effects_bound; widen it or leave it out")
            case _:
                pass
        for flag in ("read_only", "external", "idempotent", "destructive", "polls"):
            if not isinstance(value := getattr(self, flag), bool):  # "false" is a true value
                raise ToolDefinitionError(f"{where}: {flag}={value!r} must be True or False")
        for option in ("effects", "effects_bound"):
            option_value = getattr(self, option)
            if self.read_only and isinstance(option_value, Effects) and option_value.writes:
                keys = ", ".join(sorted(option_value.writes))
                raise ToolDefinitionError(
                    f"{where}: read_only=True, but {option} writes {keys}; remove read_only or the writes"
                )

    @property
    def bound(self) -> Effects:
        """The most effects of a call. An effects function without `effects_bound` does not limit them."""
        if isinstance(self.effects, Effects):
            return self._with_flags(self.effects)
        if self.effects_bound is not None:
            return self._with_flags(self.effects_bound)
        if self.read_only:
            return self._with_flags(READ_ANYTHING)
        return self._with_flags(replace(UNDECLARED_EFFECTS, declared=self.effects is not None))

    def _with_flags(self, effects: Effects) -> Effects:
        """The effects with the decorator's flags added."""
        return replace(
            effects,
            external=effects.external or self.external,
            idempotent=effects.idempotent or self.idempotent or self.read_only,
            destructive=effects.destructive and self.destructive and not self.read_only,
            polls=effects.polls or self.polls,
        )

    def per_call(self, parameters: Sequence[str], where: str) -> Callable[[Mapping[str, Any]], Effects]:
        """The effects of one call from its validated arguments.

        A declaration that fails, or goes beyond the bound, counts as undeclared. Raises ToolDefinitionError for one
        that gives anything but Effects: no call can be meant by that.
        """
        bound = self.bound
        if self.effects is None or isinstance(self.effects, Effects):
            return lambda _arguments: bound
        declared_effects = by_name(self.effects, parameters, f"{where}: effects")
        has_no_bound = self.effects_bound is None and not self.read_only

        def effects_of(arguments: Mapping[str, Any]) -> Effects:
            try:
                effects = declared_effects(arguments)
            except Exception as error:  # noqa: BLE001 - the author's code; undeclared is the careful answer
                log_crash(_LOG, f"{where}: effects failed, so the call counts as one that may touch everything", error)
                return replace(UNDECLARED_EFFECTS, external=bound.external)
            if not isinstance(cast("object", effects), Effects):
                raise ToolDefinitionError(
                    f"{where}: effects returned a {type(effects).__name__}, not Effects, such as "
                    "Effects(reads={path}) or Effects(writes={path})"
                )
            effects = self._with_flags(effects)
            if has_no_bound or within(effects, bound):
                return effects
            return replace(UNDECLARED_EFFECTS, external=bound.external or effects.external)

        return effects_of


def within(effects: Effects, bound: Effects) -> bool:
    """Whether the effects touch nothing that the bound does not."""
    readable = {EVERYTHING} if EVERYTHING in bound.reads else bound.reads | bound.writes
    return (
        all(any(covers(upper, key) for upper in bound.writes) for key in effects.writes)
        and all(any(covers(upper, key) for upper in readable) for key in effects.reads)
        and effects.external <= bound.external
    )


def by_name(
    function: Callable[..., Any], parameters: Sequence[str], where: str, *, may_be_async: bool = False
) -> Callable[[Mapping[str, Any]], Any]:
    """Call `function` with those of a tool's arguments that its parameters name.

    Raises ToolDefinitionError for a parameter that the tool does not have.
    """
    try:
        signature_parameters = signature_of(function).parameters.values()
    except (ValueError, TypeError, NameError) as error:
        raise ToolDefinitionError(f"{where}: its signature cannot be read ({error}); use a lambda") from error
    if inspect.iscoroutinefunction(function) and not may_be_async:
        raise ToolDefinitionError(f"{where}: must not be async; write it as a plain function")
    for parameter in signature_parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ToolDefinitionError(f"{where}: parameter '{parameter}' must be named; the tool has: {parameters}")
        if parameter.name not in parameters:
            names = ", ".join(parameters) or "(none)"
            raise ToolDefinitionError(
                f"{where}: parameter {parameter.name!r} does not belong to the tool; its parameters: {names}"
            )
    names = [parameter.name for parameter in signature_parameters]
    # An argument that a schema leaves to the function's default is not there.
    return lambda arguments: function(**{name: arguments[name] for name in names if name in arguments})
