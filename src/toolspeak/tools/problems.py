"""The problems of a call's arguments, in words that a model can act on."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic_core import ErrorDetails

from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.tools.places import VALUE_CHARACTERS, Path, place_of, show
from toolspeak.tools.tool import ArgumentProblem

MAX_PROBLEMS = 20  # more than a model repairs in one go
_MOST_LIST_CHARACTERS = 600  # the most characters of a list of allowed values

EXPECTED = {
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a number that a 64-bit float can hold",
    "string_type": "a string",
    "bytes_type": "a string",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "none_required": "null",
    "list_type": "an array",
    "tuple_type": "an array",
    "set_type": "an array",
    "frozen_set_type": "an array",
    "dict_type": "an object",
    "mapping_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dataclass_type": "an object",
    "date_type": 'a date such as "2026-01-31"',
    "date_parsing": 'a date such as "2026-01-31"',
    "date_from_datetime_parsing": 'a date such as "2026-01-31"',
    "datetime_type": 'a date and time such as "2026-01-31T12:00:00Z"',
    "datetime_parsing": 'a date and time such as "2026-01-31T12:00:00Z"',
    "datetime_from_date_parsing": 'a date and time such as "2026-01-31T12:00:00Z"',
    "time_type": 'a time such as "12:30:00"',
    "time_parsing": 'a time such as "12:30:00"',
    "time_delta_type": 'a duration such as "PT1H30M"',
    "time_delta_parsing": 'a duration such as "PT1H30M"',
    "uuid_type": "a UUID",
    "uuid_parsing": "a UUID",
    "url_type": "a URL",
    "url_parsing": "a URL",
    "path_type": "a path",
    "decimal_type": "a decimal number",
    "decimal_parsing": "a decimal number",
}
"""The expected type, in JSON's words, for each of pydantic's error types about a wrong type."""


def problem(path: Path, text: str) -> ArgumentProblem:
    """The problem at a place. Its message begins with the place. The empty path is the call as a whole."""
    place = place_of(path)
    return ArgumentProblem(place, f"{place}: {text}" if place else text)


def describe(value: object) -> str:
    """`"1" (string)`: a value with its JSON type."""
    match value:
        case None:
            return "null"
        case bool():
            kind = "boolean"
        case str():
            kind = "string"
        case int():
            kind = "integer"
        case float():
            kind = "number"
        case dict():
            kind = "object"
        case list() | tuple():
            kind = "array"
        case _:
            kind = type(value).__name__
    return f"{show(cast('object', value))} ({kind})"


@quick()
class _Fault:
    """An error of pydantic's, whose location is split into the path and the union branches."""

    path: Path
    error: ErrorDetails
    union: Path | None = None
    branch: str = ""


def explain(
    errors: Sequence[ErrorDetails],
    arguments: Mapping[str, JSON],
    schema: Mapping[str, JSON],
    aliases: Mapping[str, str],
) -> tuple[ArgumentProblem, ...]:
    """Pydantic's errors as problems, one for each place; at most MAX_PROBLEMS and a count of the rest."""
    by_place: dict[Path, list[_Fault]] = {}
    for fault in _likely_branches([_locate(error, arguments) for error in errors]):
        by_place.setdefault(fault.path, []).append(fault)
    problems = [problem(path, _text(path, faults, schema, aliases)) for path, faults in by_place.items()]
    if len(problems) > MAX_PROBLEMS:
        problems[MAX_PROBLEMS:] = [ArgumentProblem("", f"… and {len(problems) - MAX_PROBLEMS} more problems")]
    return tuple(problems)


def _locate(error: ErrorDetails, arguments: Mapping[str, JSON]) -> _Fault:
    """Follows pydantic's location through the arguments. A step that they do not have names a union's branch."""
    path: list[str | int] = []
    union: Path | None = None
    branch = ""
    here: Any = arguments
    location = error["loc"]
    for index, step in enumerate(location):
        last = index == len(location) - 1
        if isinstance(here, dict) and step in here:
            here = cast("dict[Any, Any]", here)[step]
            path.append(step)
        elif isinstance(here, list) and isinstance(step, int) and step < len(cast("list[Any]", here)):
            here = cast("list[Any]", here)[step]
            path.append(step)
        elif last and error["type"] == "missing":
            path.append(step)
        elif union is None and step != "[key]":
            union, branch = tuple(path), str(step)
    return _Fault(tuple(path), error, union, branch)


def _likely_branches(faults: Sequence[_Fault]) -> Iterator[_Fault]:
    """Keeps the branch of a union whose outer shape fits, if there is one: the model must repair its inner faults."""
    unions: dict[Path, dict[str, list[_Fault]]] = {}
    for fault in faults:
        if fault.union is not None:
            unions.setdefault(fault.union, {}).setdefault(fault.branch, []).append(fault)
    branch_of_union: dict[Path, str] = {}
    for union, branches in unions.items():
        fitting = [name for name, inner in branches.items() if all(len(fault.path) > len(union) for fault in inner)]
        if fitting:
            branch_of_union[union] = min(fitting, key=lambda name: len(branches[name]))
    for fault in faults:
        if fault.union is None or branch_of_union.get(fault.union, fault.branch) == fault.branch:
            yield fault


def _text(path: Path, faults: Sequence[_Fault], schema: Mapping[str, JSON], aliases: Mapping[str, str]) -> str:
    """The text of the problem at one place. Several faults there belong to the branches of a union."""
    first = faults[0].error
    if first["type"] == "missing":
        kind = _kind(_schema_at(schema, path), schema)
        return f"required ({kind})" if kind else "required"
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return _unknown_argument(path, schema, aliases)
    options = list(_options(_schema_at(schema, path), schema))
    expected = [_expected(fault.error, options) for fault in faults]
    # A fault that is not about the type comes from the branch with the right type.
    for fault, noun in zip(faults, expected, strict=True):
        if noun is None:
            return _other(fault.error, path)
    nouns = list(dict.fromkeys(noun for noun in expected if noun))
    return f"expected {_either(nouns)}, got {describe(first['input'])}"


def _expected(error: ErrorDetails, options: Sequence[Mapping[str, JSON]]) -> str | None:
    if error["type"] not in ("enum", "literal_error"):
        return EXPECTED.get(error["type"])
    literal_options = [option for option in options if "const" in option or "enum" in option]
    if len(literal_options) != 1:  # two enums in one union: the schema does not say which of them this error is about
        return "one of " + _cut(str(error.get("ctx", {}).get("expected")), _MOST_LIST_CHARACTERS)
    if "const" in literal_options[0]:
        return show(literal_options[0]["const"])
    return "one of " + _cut(", ".join(map(show, literal_options[0]["enum"])), _MOST_LIST_CHARACTERS)


def _other(error: ErrorDetails, path: Path) -> str:
    """The text of any other error: pydantic's own text, or the message of the author's validator."""
    context: Mapping[str, Any] = error.get("ctx", {})
    match error["type"]:
        case "union_tag_not_found":
            return f"the field {context['discriminator']} is required: it says which kind of object this is"
        case "union_tag_invalid":
            return f"the field {context['discriminator']} must be one of {context['expected_tags']}"
        case _:
            text = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
            text = _cut(re.sub("^Input should", "should", text).rstrip("."), _MOST_LIST_CHARACTERS)
            return f"{text}, got {describe(error['input'])}" if path else text


def _unknown_argument(path: Path, schema: Mapping[str, JSON], aliases: Mapping[str, str]) -> str:
    noun, holder = ("argument", "the tool") if len(path) == 1 else ("field", "the object")
    property_names = list(_properties(_schema_at(schema, path[:-1]), schema))
    if not property_names:
        return f"unknown {noun}; {holder} takes none"
    names = {name: name for name in property_names}
    if len(path) == 1:
        names |= aliases
    close = difflib.get_close_matches(str(path[-1])[:VALUE_CHARACTERS], names, n=1, cutoff=0.5)
    hint = f". Did you mean {names[close[0]]}?" if close else ""
    return f"unknown {noun}; known: {_cut(', '.join(property_names), _MOST_LIST_CHARACTERS)}{hint}"


def _either(nouns: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(nouns[:-1]), nouns[-1]]))


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + "…"


def _options(schema: JSON, root: Mapping[str, JSON]) -> Iterable[Mapping[str, JSON]]:
    """The schema with its reference followed, then the options of its unions."""
    references: set[str] = set()
    waiting = [schema]
    while waiting:
        here = waiting.pop(0)
        if not isinstance(here, Mapping):
            continue
        node = cast("Mapping[str, JSON]", here)
        reference = node.get("$ref")
        if isinstance(reference, str) and reference not in references:
            references.add(reference)
            waiting.insert(0, root.get("$defs", {}).get(reference.removeprefix("#/$defs/")))
        yield node
        for key in ("anyOf", "oneOf", "allOf"):
            waiting.extend(node.get(key, ()))


def _properties(schema: Mapping[str, JSON], root: Mapping[str, JSON]) -> Mapping[str, JSON]:
    for option in _options(schema, root):
        if option.get("properties"):
            return option["properties"]
    return {}


def _schema_at(root: Mapping[str, JSON], path: Path) -> Mapping[str, JSON]:
    """The schema of a place; empty if it is unknown."""
    here = root
    nothing: Mapping[str, JSON] = {}
    for step in path:
        here = next(filter(None, (_child(option, step) for option in _options(here, root))), nothing)
    return next((option for option in _options(here, root) if "$ref" not in option), here)


def _child(schema: Mapping[str, JSON], step: str | int) -> Mapping[str, JSON] | None:
    if isinstance(step, str):
        child = schema.get("properties", {}).get(step) or schema.get("additionalProperties")
    else:
        first = schema.get("prefixItems", ())
        child = first[step] if step < len(first) else schema.get("items")
    return cast("Mapping[str, JSON]", child) if isinstance(child, Mapping) else None


def _kind(schema: Mapping[str, JSON], root: Mapping[str, JSON]) -> str:
    """A schema in a few words: `string`, `integer or null`, `one of "a", "b"`; "" if that is impossible."""
    kinds: list[str] = []
    for option in _options(schema, root):
        if "const" in option:
            kinds.append(show(option["const"]))
        elif "enum" in option:
            kinds.append(_cut("one of " + ", ".join(map(show, option["enum"])), _MOST_LIST_CHARACTERS))
        elif isinstance(option.get("type"), str):
            kinds.append(option["type"])
    return " or ".join(dict.fromkeys(kinds))
