"""A server's JSON Schema, as what is demanded of a call's arguments and of its structured result.

How long a check takes is the schema's to say: one of 2 KB can take hours, or all memory, for a value of 50 bytes, where
its references lead to the same place in many ways. Whatever may take long is checked in a process that is ended.
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
from toolspeak.mcp import schema_worker
from toolspeak.tools.argument_reader import find_flaw
from toolspeak.tools.problems import MAX_PROBLEMS, problem
from toolspeak.tools.tool import ArgumentProblem

ARGUMENTS = "arguments"
"""The one keyword argument a server's tool takes here: the names in its schema are anybody's, `self` among them."""

_MESSAGE_CHARACTERS = 300  # characters of a problem: the library shows the value that is wrong, however long

_SEPARATE = bool(sys.executable) and not getattr(sys, "frozen", False)
_SECONDS = 3.0
_MEMORY = 1024 * 1024 * 1024
"""What a check in a process of its own may take; bytes of memory where the system takes such a limit."""

# In units of one subschema that looks at one value.
_AT_ONCE = 10_000  # with all that is wrong, where such a unit takes a tenth of a millisecond
_LOOKED_AT = 1_000_000  # whether something is wrong, where it takes a thousandth of that
_ENDLESS = 1_000_000_000

# An expression that looks around itself, or back, is tried in many ways: tens of milliseconds, then it is given up.
_SLOW_PATTERN = re.compile(r"\(\?<?[=!>]|\\[1-9k]")
_SLOW = 10_000


class UnusableSchema(Exception):
    """A schema that cannot be checked against; the message says why."""


@dataclass(frozen=True, slots=True)
class Checks:
    """A schema to check values against. `weight` is how many subschemas look at one value at the most."""

    schema: Mapping[str, Any]
    validator: jsonschema_rs.Validator
    weight: int

    def flaws(self, value: JSON, wanted: int = MAX_PROBLEMS) -> tuple[ArgumentProblem, ...]:
        """What is wrong with the value. Takes a few seconds at the most."""
        cost = self.weight * _size(value)
        if _AT_ONCE < cost <= _LOOKED_AT and self.validator.is_valid(value):
            return ()
        if cost <= _AT_ONCE or not _SEPARATE:
            pairs = schema_worker.flaws_of(self.validator, value, wanted)
        else:
            pairs = self._flaws_elsewhere(value, wanted)
        return tuple(problem(tuple(path), _first_line(message)) for path, message in pairs)

    def _flaws_elsewhere(self, value: JSON, wanted: int) -> list[tuple[list[str | int], str]]:
        request = {
            "schema": self.schema,
            "value": value,
            "wanted": wanted,
            "library": str(Path(jsonschema_rs.__file__).parent.parent),
            "seconds": int(_SECONDS),
            "memory": _MEMORY,
        }
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", str(Path(schema_worker.__file__))],
                input=json.dumps(request).encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_SECONDS,
                check=True,
            )
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
            known = (error.stdout or b"").startswith(b"false")
            what = "it does not fit the schema, and where" if known else "whether it fits the schema"
            return [([], f"{what} takes too long to find out: nest less, or send less at once")]
        return json.loads(done.stdout.partition(b"\n")[2])


def checks_of(schema: Mapping[str, Any]) -> Checks:
    """Checks against the schema. Raises UnusableSchema."""
    references: list[str] = []

    def refuse(uri: str) -> Never:
        references.append(uri)
        schema_worker.refuse(uri)

    try:
        validator = jsonschema_rs.validator_for(dict(schema), retriever=refuse)
    except (jsonschema_rs.ReferencingError, ValueError, TypeError) as error:
        foreign = f"it refers to {references[0]}, and nothing is fetched for a schema" if references else ""
        raise UnusableSchema(foreign or _first_line(str(error))) from None
    try:
        return Checks(schema, validator, _weight(schema, schema, {}))
    except RecursionError:  # a chain of a thousand references
        return Checks(schema, validator, _ENDLESS)


def _weight(node: Any, schema: Mapping[str, Any], known: dict[int, int]) -> int:
    """How many subschemas stand in a part of the schema, counted again wherever it is referred to; `_ENDLESS` where it
    refers to itself, or to what is not looked up here."""
    if not isinstance(node, dict | list):
        return 0
    part = cast("dict[str, Any] | list[Any]", node)
    if id(part) in known:
        return known[id(part)]
    known[id(part)] = _ENDLESS  # until it is known: who comes here again came from here
    members = part.values() if isinstance(part, dict) else part
    weight = 1 + sum(_weight(each, schema, known) for each in members)
    if isinstance(part, dict):
        reference = part.get("$ref")
        if isinstance(reference, str):
            weight += _weight(_place(schema, reference), schema, known)
        if "$dynamicRef" in part or "$recursiveRef" in part:
            weight += _ENDLESS
        patterns = [part.get("pattern"), *(part.get("patternProperties") or ())]
        weight += sum(_SLOW for each in patterns if isinstance(each, str) and _SLOW_PATTERN.search(each))
    known[id(part)] = weight = min(weight, _ENDLESS)
    return weight


def _place(schema: Mapping[str, Any], reference: str) -> Any:
    """The part of the schema that a reference names by its place; another is taken to be endless, as the whole is."""
    if not reference.startswith("#/") or "%" in reference:
        return schema
    here: Any = schema
    for part in reference.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        here = cast("dict[str, Any]", here).get(key, schema) if isinstance(here, dict) else schema
    return here


def _size(value: JSON) -> int:
    """How many values there are in it, itself and the names of members included."""
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
    """An `ArgumentReader` for arguments that somebody else will read: they are checked, and handed on as they are."""

    checks: Checks

    def __call__(self, arguments: Mapping[str, JSON]) -> Mapping[str, Any] | tuple[ArgumentProblem, ...]:
        """All arguments under the name `ARGUMENTS`, or what is wrong with them. Never raises."""
        flaws = tuple(flaw for item in arguments.items() if (flaw := find_flaw(*item)))
        if flaws:
            return flaws
        plain = dict(arguments)
        return self.checks.flaws(plain) or {ARGUMENTS: plain}


def mismatch(checks: Checks, value: JSON) -> str:
    """The first thing in which a value does not fit the schema, "" if it does."""
    flaws = checks.flaws(value, 1)
    return flaws[0].message if flaws else ""


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _MESSAGE_CHARACTERS else line[:_MESSAGE_CHARACTERS] + "…"
