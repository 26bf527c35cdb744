"""Reads a call's JSON arguments strictly, and returns every problem."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, to_json

from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.tools.places import show
from toolspeak.tools.problems import explain, problem
from toolspeak.tools.tool import ArgumentProblem

MAX_DEPTH = 128  # the dialects' cap (docs/design.md 4.1); pydantic's JSON parser stops at 200
MAX_DIGITS = 4300  # Python's own cap on converting between int and text
_TOO_LONG = 10**MAX_DIGITS
_SMALL = 1 << 62

_Trail: TypeAlias = "tuple[_Trail, str | int] | None"


@quick()
class StrictReader:
    """An `ArgumentReader` that accepts only what the JSON Schema `schema` describes.

    "1" and true are not integers, 1 is a number, "2026-01-01" is a date, an enum is written as its value, and an array
    may become a tuple or a set.
    """

    model: type[BaseModel]
    names: tuple[str, ...]
    aliases: Mapping[str, str]
    schema: Mapping[str, JSON]
    as_instance: bool = False
    """Whether the function takes the instance of `model` as its one argument, whose name is in `names`."""

    def __call__(self, arguments: Mapping[str, JSON]) -> Mapping[str, Any] | tuple[ArgumentProblem, ...]:
        """Returns the keyword arguments, including defaults, or the problems. Never raises."""
        try:
            if not _plain(arguments):
                flaws = tuple(flaw for item in arguments.items() if (flaw := find_flaw(*item)))
                if flaws:
                    return flaws
            own_arguments, clashes = arguments, ()
            if self.aliases and not self.aliases.keys().isdisjoint(arguments):
                own_arguments, clashes = self._apply_aliases(arguments)
            values = self._validate(own_arguments)
        except Exception as error:  # noqa: BLE001 - for example, the text of a validator's exception cannot be made
            return (problem((), f"the arguments cannot be read ({type(error).__name__})"),)
        if clashes:
            return clashes + (values if isinstance(values, tuple) else ())
        return values

    def _apply_aliases(self, arguments: Mapping[str, JSON]) -> tuple[dict[str, JSON], tuple[ArgumentProblem, ...]]:
        arguments_by_name = {name: value for name, value in arguments.items() if name not in self.aliases}
        came_as = {name: name for name in arguments_by_name}
        clashes: list[ArgumentProblem] = []
        for alias, name in self.aliases.items():
            if alias not in arguments:
                continue
            if name not in arguments_by_name:
                arguments_by_name[name], came_as[name] = arguments[alias], alias
            elif _text(arguments_by_name[name]) != _text(arguments[alias]):
                both = f"{came_as[name]!r} and {alias!r}"
                clashes.append(problem((name,), f"given twice, as {both}, with different values; give {name!r} only"))
        return arguments_by_name, tuple(clashes)

    def _validate(self, arguments: Mapping[str, JSON]) -> Mapping[str, Any] | tuple[ArgumentProblem, ...]:
        unknown_errors: list[ErrorDetails] = []
        if self.as_instance and self.schema["additionalProperties"] is False:  # pydantic may ignore unknown fields
            properties = cast("Mapping[str, JSON]", self.schema["properties"])
            names = [name for name in arguments if name not in properties]
            unknown_errors = [ErrorDetails(type="extra_forbidden", loc=(name,), msg="", input=None) for name in names]
        try:
            # After `find_flaw`, both JSON writers write the arguments in the same way.
            instance = self.model.__pydantic_validator__.validate_json(to_json(arguments), strict=True)
        except ValidationError as error:
            of_model = error.errors(include_url=False)
            errors = [
                *unknown_errors,
                *(each for each in of_model if not unknown_errors or each["type"] != "extra_forbidden"),
            ]
            return explain(errors, arguments, self.schema, self.aliases)
        except Exception as error:  # noqa: BLE001 - a validator of the tool's author may raise anything
            return (problem(self._raised_at(arguments), f"cannot be used: {type(error).__name__}: {error}"),)
        if unknown_errors:
            return explain(unknown_errors, arguments, self.schema, self.aliases)
        if self.as_instance:
            return {self.names[0]: instance}
        return dict(zip(self.names, instance.__dict__.values(), strict=True))  # pydantic keeps the order of the fields

    def _raised_at(self, arguments: Mapping[str, JSON]) -> tuple[str | int, ...]:
        """The argument whose validator raised something other than a validation error."""
        for name in arguments:
            try:
                self.model.model_validate_json(json.dumps({name: arguments[name]}), strict=True)
            except ValidationError:
                continue
            except Exception:  # noqa: BLE001 - this is the validator that raises
                return (name,)
        return ()


def _text(value: JSON) -> str:
    # As text, because 1, 1.0 and True are equal in Python.
    return json.dumps(value, sort_keys=True)


def _plain(arguments: Mapping[Any, object]) -> bool:
    """Whether a quick check shows that the arguments have no flaw, as for most calls."""
    for name, value in arguments.items():
        if not isinstance(name, str) or not name.isascii():
            return False
        if type(value) is str:
            if not value.isascii():
                return False
        elif type(value) is int:
            if not -_SMALL < value < _SMALL:
                return False
        elif value is not None and type(value) is not bool:
            return False
    return True


def find_flaw(name: object, value: object) -> ArgumentProblem | None:
    """The first flaw that keeps a value from being JSON that every part of the program can write; None without a flaw.

    Does not recurse, so that 100,000 nested arrays are a problem like any other.
    """
    if not isinstance(name, str) or _half_surrogate(name):
        return problem((), f"the argument name {show(name)} is not valid text")
    waiting: list[tuple[_Trail, object, int]] = [((None, name), value, 1)]
    while waiting:
        trail, here, depth = waiting.pop()
        if flaw := _flaw_here(here, depth):
            return problem(_unwind(trail), flaw)
        if isinstance(here, dict):
            members = cast("dict[Any, Any]", here).items()
            waiting.extend(((trail, key), child, depth + 1) for key, child in members)
        elif isinstance(here, list | tuple):
            elements = enumerate(cast("list[Any]", here))
            waiting.extend(((trail, index), child, depth + 1) for index, child in elements)
    return None


def _flaw_here(value: object, depth: int) -> str | None:
    match value:
        case None | bool():
            return None
        case str():
            code = _half_surrogate(value)
            return f"contains U+{code:04X}, half of a character; leave it out" if code else None
        case int():
            return f"an integer of more than {MAX_DIGITS} digits; use fewer" if abs(value) >= _TOO_LONG else None
        case float():
            return None if math.isfinite(value) else f"{value} is not a JSON number; use a finite number"
        case dict():
            if depth > MAX_DEPTH:
                return f"nested more than {MAX_DEPTH} levels deep; make it flatter"
            for key in cast("dict[object, object]", value):
                if not isinstance(key, str) or _half_surrogate(key):
                    return f"the key {show(key)} is not valid text"
            return None
        case list() | tuple():
            return f"nested more than {MAX_DEPTH} levels deep; make it flatter" if depth > MAX_DEPTH else None
        case _:
            return f"a Python {type(value).__name__} is not JSON"


def _half_surrogate(text: str) -> int:
    """The code of the first lone surrogate; 0 without one."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return ord(text[error.start])
    return 0


def _unwind(trail: _Trail) -> tuple[str | int, ...]:
    steps: list[str | int] = []
    here = trail
    while here is not None:
        steps.append(here[1])
        here = here[0]
    return tuple(reversed(steps))
