"""Tools as the functions of a program: their names, their signatures, and the arguments of a call.

    async def search(query: str, limit: int = 10, area: Box | None = ...) -> list[str]:
        '''Find things.

        query: What to look for.
        '''

There are two stubs of each. The one that the model reads says all that the schema says of types. The one that programs
are checked against asks for less where a checker could refuse what is right: `Sequence` for `list`, plain types for
literals, `Mapping` for objects.
"""

from __future__ import annotations

import builtins
import json
import keyword
import re
import typing
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.tools.returned_values import Unserialisable, jsonable
from toolspeak.tools.tool import Tool

_ODD = re.compile(r"\W")
_PLAIN_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_RETURN_TYPES = {str: "str", int: "int", float: "float", bool: "bool", NoneType: "None", Any: "Any"}
_MODULES = frozenset(
    {
        *("asyncio", "json", "re", "math", "datetime", "collections", "itertools", "functools", "random", "time", "os"),
        *("csv", "base64", "hashlib", "decimal", "dataclasses", "typing", "sys", "pathlib"),
    }
)
_DEEPEST = 6
"""The levels of types that are written out; what is deeper is `Any`."""


@quick()
class ToolFunction:
    """A tool as a function of a program.

    - `name`: the function's name; the tool's, unless that is not a free name of Python.
    - `parameters`: the tool's parameter of each of the function's, in order.
    - `required_parameters`: the parameters that a call must have.
    - `nullable`: the tool's parameters that take None. For others None is as good as leaving them out.
    """

    tool: str
    name: str
    parameters: Mapping[str, str]
    required_parameters: frozenset[str]
    nullable: frozenset[str]
    takes_others: bool

    def arguments(self, values: Sequence[object], keywords: Mapping[str, object]) -> dict[str, JSON]:
        """The tool's arguments of a call in a program. Raises TypeError, in Python's words, for arguments that the
        function does not take, and for a value that is not JSON."""
        if len(values) > len(self.parameters):
            raise TypeError(f"{self.name}() takes {len(self.parameters)} arguments but {len(values)} were given")
        values_by_name: dict[str, object] = dict(zip(self.parameters, values, strict=False))
        for name, value in keywords.items():
            if name in values_by_name:
                raise TypeError(f"{self.name}() got multiple values for argument {name!r}")
            if name not in self.parameters and not self.takes_others:
                names = ", ".join(self.parameters) or "no arguments"
                raise TypeError(f"{self.name}() got an unexpected argument {name!r}; it takes {names}")
            values_by_name[name] = value
        missing = [name for name in self.required_parameters if name not in values_by_name]
        if missing:
            raise TypeError(f"{self.name}() is missing the argument {', '.join(map(repr, sorted(missing)))}")
        arguments: dict[str, JSON] = {}
        for name, value in values_by_name.items():
            parameter = self.parameters.get(name, name)
            if value is None and name not in self.required_parameters and parameter not in self.nullable:
                continue
            try:
                arguments[parameter] = jsonable(value)
            except Unserialisable:
                raise TypeError(
                    f"{self.name}({name}=…): a {type(value).__name__} cannot be an argument; pass text, numbers, lists"
                    " or dicts"
                ) from None
        return arguments


class ToolFunctions:
    """The functions of a program: those of these tools, by their names in Python.

    `return_types`: what tools return, as Python types, by the tool's name.
    """

    def __init__(self, specs: Iterable[ToolSpec], return_types: Mapping[str, str]) -> None:
        self.by_name: dict[str, ToolFunction] = {}
        self.of_tool: dict[str, ToolFunction] = {}
        self._specs = tuple(specs)
        self._return_types = return_types
        for spec in self._specs:
            name = _free_name(spec.name, self.by_name)
            parameters: dict[str, str] = {}
            for parameter in spec.properties:
                parameters[_free_name(parameter, parameters, shadows=False)] = parameter
            required_names = cast("Sequence[str]", spec.parameters.get("required") or ())
            function = ToolFunction(
                spec.name,
                name,
                parameters,
                frozenset(each for each, parameter in parameters.items() if parameter in required_names),
                frozenset(each for each, schema in spec.properties.items() if _takes_null(schema)),
                spec.parameters.get("additionalProperties") not in (None, False),
            )
            self.by_name[name] = self.of_tool[spec.name] = function

    def stubs_for_model(self) -> str:
        """The stubs that a model reads."""
        types = _Types(for_model=True)
        functions = [self._function(spec, types) for spec in self._specs]
        return "\n".join([*types.classes, *functions])

    def stubs_for_check(self) -> str:
        """The stubs that a program is checked against."""
        types = _Types(for_model=False)
        functions = [self._function(spec, types) for spec in self._specs]
        return "\n".join(["from collections.abc import Mapping, Sequence", "from typing import Any", *functions])

    def _function(self, spec: ToolSpec, types: _Types) -> str:
        function, notes = self.of_tool[spec.name], list[str]()
        required_parameters: list[str] = []
        optional: list[str] = []
        for name, parameter in function.parameters.items():
            schema = cast("Mapping[str, JSON]", spec.properties[parameter] or {})
            kind = types.of(schema, spec.parameters, f"{spec.name}_{parameter}")
            if name in function.required_parameters:
                required_parameters.append(f"{name}: {kind}")
            elif types.for_model:
                default = schema.get("default")
                ellipsis = "..." if default is None else _literal(default)
                optional.append(f"{name}: {kind} = {ellipsis}")
            else:
                optional.append(f"{name}: {kind if kind.endswith('None') else f'{kind} | None'} = ...")
            description = " ".join(str(schema.get("description") or "").split())
            if types.for_model and description:
                notes.append(f"{name}: {description}")
        # Python wants the required ones first. A call by position follows the tool's own order, so that is kept.
        in_order = [*required_parameters, *optional]
        if [each.partition(":")[0] for each in in_order] != list(function.parameters):
            in_order = ["*", *in_order]
        others = ["**others: Any"] if function.takes_others else []
        return_type = self._return_types.get(spec.name, "Any")
        head = f"async def {function.name}({', '.join([*in_order, *others])}) -> {return_type}:"
        if not types.for_model:
            return f"{head} ..."
        description = "\n    ".join(line.rstrip() for line in spec.description.strip().splitlines())
        lines = [description, *notes]
        text = "\n    ".join(line for line in lines if line).replace('"""', "'''").replace("\\", "\\\\")
        return f'{head}\n    """{text}"""' if text else f"{head} ..."


def type_returned_by(tool: Tool) -> str:
    """What the tool's function returns, as a type of a program's; "Any" if its annotation is none of JSON's types."""
    try:
        return _type_name(get_type_hints(tool.function).get("return", Any))
    except Exception:  # noqa: BLE001 - annotations are the author's code
        return "Any"


def _type_name(kind: Any) -> str:
    if kind in _RETURN_TYPES:
        return _RETURN_TYPES[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (list, Sequence, tuple) and (len(arguments) == 1 or arguments[1:] == (...,)):
        return f"list[{_type_name(arguments[0])}]"
    if origin in (dict, Mapping) and len(arguments) == 2 and arguments[0] is str:
        return f"dict[str, {_type_name(arguments[1])}]"
    if origin in (typing.Union, UnionType):
        names = list(dict.fromkeys(map(_type_name, arguments)))
        return "Any" if "Any" in names else " | ".join(names)
    return "Any"


class _Types:
    """Writes schemas as Python types. `classes`: the named types of objects that they use."""

    def __init__(self, *, for_model: bool) -> None:
        self.for_model = for_model
        self.classes: list[str] = []
        self._names: set[str] = set()
        self._classes_of: dict[str, str] = {}

    def of(self, schema: JSON, root: Mapping[str, JSON], path: str, depth: int = 0) -> str:
        if not isinstance(schema, Mapping) or not schema or depth > _DEEPEST:
            return "Any"
        mapping = cast("Mapping[str, JSON]", schema)
        reference = mapping.get("$ref")
        if isinstance(reference, str):
            return self.of(_target(reference, root), root, reference.rpartition("/")[2], depth + 1)
        if "const" in mapping or mapping.get("enum"):
            return self._literals(cast("Sequence[JSON]", mapping.get("enum") or [mapping["const"]]))
        branches = cast("Sequence[JSON]", mapping.get("anyOf") or mapping.get("oneOf") or ())
        if branches:
            return _union(self.of(branch, root, path, depth + 1) for branch in branches)
        kinds = mapping.get("type") or ("object" if "properties" in mapping else "")
        kinds = [*cast("Sequence[str]", kinds)] if isinstance(kinds, list | tuple) else [cast("str", kinds)]
        if mapping.get("nullable") is True:
            kinds.append("null")
        return _union(self._plain(kind, mapping, root, path, depth) for kind in kinds)

    def _plain(self, kind: str, mapping: Mapping[str, JSON], root: Mapping[str, JSON], path: str, depth: int) -> str:
        if kind == "array":
            item = self.of(mapping.get("items"), root, path, depth + 1)
            return f"list[{item}]" if self.for_model else f"Sequence[{item}]"
        if kind != "object":
            return _PLAIN_TYPES.get(kind, "Any")
        if not self.for_model:
            return "Mapping[str, Any]"
        properties = mapping.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            return f"dict[str, {self.of(mapping.get('additionalProperties'), root, path, depth + 1)}]"
        return self._object(cast("Mapping[str, JSON]", properties), mapping, root, path, depth)

    def _object(
        self,
        properties: Mapping[str, JSON],
        mapping: Mapping[str, JSON],
        root: Mapping[str, JSON],
        path: str,
        depth: int,
    ) -> str:
        required_names = cast("Sequence[str]", mapping.get("required") or ())
        entries: list[str] = []
        for name, schema in properties.items():
            kind = self.of(schema, root, f"{path}_{name}", depth + 1)
            entries.append(f"{json.dumps(name)}: {kind if name in required_names else f'NotRequired[{kind}]'}")
        text = ", ".join(entries)
        if text not in self._classes_of:
            name = _free_name("".join(part.capitalize() for part in _ODD.sub("_", path).split("_")), self._names)
            self._names.add(name)
            self._classes_of[text] = name
            self.classes.append(f'{name} = TypedDict("{name}", {{{text}}})')
        return self._classes_of[text]

    def _literals(self, values: Sequence[JSON]) -> str:
        if self.for_model:
            return f"Literal[{', '.join(map(_literal, values))}]"
        names = {True: "bool", False: "bool"}
        return _union(
            "None" if value is None else names[value] if isinstance(value, bool) else type(value).__name__
            for value in values
        )


def _union(kinds: Iterable[str]) -> str:
    names = list(dict.fromkeys(kinds))
    return "Any" if "Any" in names or not names else " | ".join(names)


def _literal(value: JSON) -> str:
    return repr(value) if not isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _target(reference: str, root: Mapping[str, JSON]) -> JSON:
    place: JSON = cast("JSON", root)
    for key in reference.removeprefix("#/").split("/"):
        if not isinstance(place, Mapping):
            return None
        place = cast("Mapping[str, JSON]", place).get(key.replace("~1", "/").replace("~0", "~"))
    return place


def _takes_null(schema: JSON) -> bool:
    if not isinstance(schema, Mapping):
        return True
    mapping = cast("Mapping[str, JSON]", schema)
    kinds = mapping.get("type")
    if mapping.get("nullable") is True or kinds == "null" or (isinstance(kinds, list | tuple) and "null" in kinds):
        return True
    branches = cast("Sequence[JSON]", mapping.get("anyOf") or mapping.get("oneOf") or ())
    values = cast("Sequence[JSON]", mapping.get("enum") or ())
    return not mapping or None in values or any(_takes_null(branch) for branch in branches)


def _free_name(name: str, names: Iterable[str], *, shadows: bool = True) -> str:
    """The name as an identifier that is not in `names`, no keyword, and with `shadows` no name of Python's own."""
    plain = unicodedata.normalize("NFKC", name)  # as Python reads names
    free = "".join(each if f"a{each}".isidentifier() else "_" for each in plain) or "_"
    free = free if free.isidentifier() else f"_{free}"
    if keyword.iskeyword(free) or (shadows and (hasattr(builtins, free) or free in _MODULES)):
        free += "_"
    others = set(names)
    number = 2
    candidate = free
    while candidate in others:
        candidate, number = f"{free}_{number}", number + 1
    return candidate
