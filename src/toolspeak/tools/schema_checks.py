"""Checks values against a JSON Schema that someone else wrote: the arguments of a call, a structured result.

The schema decides how long a check takes: with 2 KB of schema whose references reach the same place in many ways, a
value of 50 bytes can take hours, or all memory. A check that may take long runs in a process that can be ended.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never, cast

import jsonschema_rs

from toolspeak.data.messages import JSON
from toolspeak.tools import schema_worker
from toolspeak.tools.argument_reader import find_flaw
from toolspeak.tools.problems import MAX_PROBLEMS, problem
from toolspeak.tools.tool import ArgumentProblem

ARGUMENTS = "arguments"
"""The only keyword argument of a tool of an MCP server: its schema may have any names, even `self`."""

_MESSAGE_CHARACTERS = 300  # the most characters of a problem: the library quotes the whole value

_SEPARATE = bool(sys.executable) and not getattr(sys, "frozen", False)
_SECONDS = 3.0
_MEMORY = 1024 * 1024 * 1024
"""The limits of a check in a separate process; the memory, in bytes, where the system supports it."""

# The highest costs of checks in this process. The unit is one subschema that is applied to one value.
_FLAWS_COST = 10_000  # listing all flaws takes up to a tenth of a millisecond for a unit
_VALID_COST = 1_000_000  # finding whether there is a flaw takes a thousandth of that
_ENDLESS = 1_000_000_000

# A pattern with lookaround or backreferences can take tens of milliseconds until the library gives up.
_SLOW_PATTERN = re.compile(r"\(\?<?[=!>]|\\[1-9k]")
_SLOW = 10_000


class UnusableSchema(Exception):
    """A schema that cannot be used for checks; the message says why."""


@dataclass(frozen=True, slots=True)
class Checks:
    """A schema to check values against."""

    schema: Mapping[str, Any]
    validator: jsonschema_rs.Validator
    weight: int
    """The most subschemas that are applied to one value."""

    def flaws(self, value: JSON, limit: int = MAX_PROBLEMS) -> tuple[ArgumentProblem, ...]:
        """At most `limit` flaws of the value. Takes at most a few seconds."""
        cost = self.weight * _size(value)
        if _FLAWS_COST < cost <= _VALID_COST and self.validator.is_valid(value):
            return ()
        if cost <= _FLAWS_COST or not _SEPARATE:
            pairs = schema_worker.flaws_of(self.validator, value, limit)
        else:
            pairs = self._flaws_in_process(value, limit)
        return tuple(problem(tuple(path), _first_line(message)) for path, message in pairs)

    def _flaws_in_process(self, value: JSON, limit: int) -> list[tuple[list[str | int], str]]:
        request = {
            "schema": self.schema,
            "value": value,
            "wanted": limit,
            "library": str(Path(jsonschema_rs.__file__).parent.parent),
            "seconds": int(_SECONDS),
            "memory": _MEMORY,
        }
        try:
            worker = subprocess.run(
                [sys.executable, "-I", "-S", str(Path(schema_worker.__file__))],
                input=json.dumps(request).encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_SECONDS,
                check=True,
            )
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
            was_read = (error.stdout or b"").startswith(b"false")
            what = "it does not match the schema; finding where" if was_read else "checking it against the schema"
            return [([], f"{what} takes too long: nest less, or send less at once")]
        return json.loads(worker.stdout.partition(b"\n")[2])


def checks_of(schema: Mapping[str, Any]) -> Checks:
    """The checks for a schema. Raises UnusableSchema."""
    references: list[str] = []

    def refuse(uri: str) -> Never:
        references.append(uri)
        schema_worker.refuse(uri)

    try:
        validator = jsonschema_rs.validator_for(dict(schema), retriever=refuse)
    except (jsonschema_rs.ReferencingError, ValueError, TypeError) as error:
        foreign = f"it refers to {references[0]}, which toolspeak does not fetch" if references else ""
        raise UnusableSchema(foreign or _first_line(str(error))) from None
    try:
        return Checks(schema, validator, _weight(schema, schema, {}))
    except RecursionError:  # a chain of a thousand references
        return Checks(schema, validator, _ENDLESS)


def _weight(node: Any, schema: Mapping[str, Any], weights: dict[int, int]) -> int:
    """The number of subschemas in a part of the schema. The target of a reference counts once for each reference.
    `_ENDLESS` for a part that refers to itself or to a place that this function does not resolve."""
    if not isinstance(node, dict | list):
        return 0
    part = cast("dict[str, Any] | list[Any]", node)
    if id(part) in weights:
        return weights[id(part)]
    weights[id(part)] = _ENDLESS  # while it is being counted, a reference to it is a cycle
    members = part.values() if isinstance(part, dict) else part
    weight = 1 + sum(_weight(each, schema, weights) for each in members)
    if isinstance(part, dict):
        reference = part.get("$ref")
        if isinstance(reference, str):
            weight += _weight(_place(schema, reference), schema, weights)
        if "$dynamicRef" in part or "$recursiveRef" in part:
            weight += _ENDLESS
        patterns = [part.get("pattern"), *(part.get("patternProperties") or ())]
        weight += sum(_SLOW for each in patterns if isinstance(each, str) and _SLOW_PATTERN.search(each))
    weights[id(part)] = weight = min(weight, _ENDLESS)
    return weight


def _place(schema: Mapping[str, Any], reference: str) -> Any:
    """The part of the schema at a JSON pointer. For another kind of reference it is the whole schema, whose weight is
    then endless."""
    if not reference.startswith("#/") or "%" in reference:
        return schema
    here: Any = schema
    for part in reference.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        here = cast("dict[str, Any]", here).get(key, schema) if isinstance(here, dict) else schema
    return here


def _size(value: JSON) -> int:
    """The number of values in a value, including itself and the names of members."""
    number, todo = 0, [value]
    while todo:
        number += len(todo)
        todo = [
            member
            for each in todo
            if isinstance(each, dict | list)
            for member in cast("list[Any]", [*each.values(), *each] if isinstance(each, dict) else each)
        ]
    return number


@dataclass(frozen=True, slots=True)
class SchemaReader:
    """An `ArgumentReader` that checks the arguments and passes them on unchanged, for the server to read."""

    checks: Checks

    def __call__(self, arguments: Mapping[str, JSON]) -> Mapping[str, Any] | tuple[ArgumentProblem, ...]:
        """All arguments under the name `ARGUMENTS`, or their problems. Never raises."""
        flaws = tuple(flaw for item in arguments.items() if (flaw := find_flaw(*item)))
        if flaws:
            return flaws
        plain = dict(arguments)
        return self.checks.flaws(plain) or {ARGUMENTS: plain}


def mismatch(checks: Checks, value: JSON) -> str:
    """The first flaw of a value; "" if it matches the schema."""
    flaws = checks.flaws(value, 1)
    return flaws[0].message if flaws else ""


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _MESSAGE_CHARACTERS else line[:_MESSAGE_CHARACTERS] + "…"
