"""A server's JSON Schema, as what is demanded of a call's arguments and of its structured result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Never

import jsonschema_rs

from toolspeak.data.messages import JSON
from toolspeak.tools.problems import MAX_PROBLEMS, problem
from toolspeak.tools.reader import find_flaw
from toolspeak.tools.tool import ArgumentProblem

ARGUMENTS = "arguments"
"""The one keyword argument a server's tool takes here: the names in its schema are anybody's, `self` among them."""

_SHOWN = 300  # characters of a problem: the library shows the value that is wrong, however long


class UnusableSchema(Exception):
    """A schema that cannot be checked against; the message says why."""


def validator(schema: Mapping[str, Any]) -> jsonschema_rs.Validator:
    """Checks against the schema. Raises UnusableSchema."""
    asked: list[str] = []

    def refuse(uri: str) -> Never:
        # The library would fetch it, from whatever address a server names.
        asked.append(uri)
        raise LookupError(uri)

    try:
        return jsonschema_rs.validator_for(dict(schema), retriever=refuse)
    except (jsonschema_rs.ReferencingError, ValueError, TypeError) as error:
        told = f"it refers to {asked[0]}, and nothing is fetched for a schema" if asked else _first_line(str(error))
        raise UnusableSchema(told) from None


@dataclass(frozen=True, slots=True)
class SchemaReader:
    """An `ArgumentReader` for arguments that somebody else will read: they are checked, and handed on as they are."""

    checks: jsonschema_rs.Validator

    def __call__(self, arguments: Mapping[str, JSON]) -> Mapping[str, Any] | tuple[ArgumentProblem, ...]:
        """All arguments under the name `ARGUMENTS`, or what is wrong with them. Never raises."""
        flaws = tuple(flaw for item in arguments.items() if (flaw := find_flaw(*item)))
        if flaws:
            return flaws
        given = dict(arguments)
        found = tuple(islice(self.checks.iter_errors(given), MAX_PROBLEMS))
        if found:
            return tuple(problem(tuple(error.instance_path), _first_line(error.message)) for error in found)
        return {ARGUMENTS: given}


def mismatch(checks: jsonschema_rs.Validator, value: JSON) -> str:
    """The first thing in which a value does not fit the schema, "" if it does."""
    found = next(iter(checks.iter_errors(value)), None)
    return "" if found is None else problem(tuple(found.instance_path), _first_line(found.message)).message


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "…"
