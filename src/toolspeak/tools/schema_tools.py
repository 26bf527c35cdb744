"""Tools whose parameters a JSON Schema describes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.errors import ToolDefinitionError
from toolspeak.tools.decorator import build_tool, check_function, check_options
from toolspeak.tools.places import show
from toolspeak.tools.problems import problem
from toolspeak.tools.schema_checks import ARGUMENTS, SchemaReader, UnusableSchema, checks_of
from toolspeak.tools.signature import NO_DEFAULT, FunctionSignature, read_signature
from toolspeak.tools.tool import ArgumentProblem, Tool
from toolspeak.tools.tool_options import ToolOptions

_COMBINING_KEYWORDS = frozenset({"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "patternProperties"})
"""Keywords that may describe parameters which are not in `properties`."""


def tool_from_schema(
    function: Callable[..., Any],
    name: str | None,
    description: str | None,
    parameters: Mapping[str, JSON],
    options: ToolOptions,
) -> Tool:
    """See `Tool.from_schema`."""
    tool_name = check_function(function, name, "Tool.from_schema")
    where = f"tool {tool_name!r}"
    check_options(options, where)
    signature = read_signature(function, where, has_schema=True)
    schema = _check_schema(parameters, where)
    properties = cast("Mapping[str, Any]", schema["properties"])
    if schema.keys().isdisjoint(_COMBINING_KEYWORDS):
        _check_function_fits(signature, schema, where)
    names = [parameter.name for parameter in signature.parameters]
    try:
        checks = checks_of(schema)
    except UnusableSchema as error:
        raise ToolDefinitionError(f"{where}: its schema cannot be used: {error}") from None
    parts = {name: cast("Mapping[str, JSON]", part) for name, part in properties.items() if isinstance(part, dict)}
    defaults = {name: part["default"] for name, part in parts.items() if "default" in part}
    reader = KeywordReader(SchemaReader(checks), defaults, None if signature.takes_any else tuple(names))
    text = signature.description if description is None else description
    option_names = [*properties, *(each for each in names if each not in properties)]
    return build_tool(function, tool_name, text, signature, schema, reader, option_names, options)


def tool_from_openai(function: Callable[..., Any], definition: Mapping[str, JSON], options: ToolOptions) -> Tool:
    """See `Tool.from_openai`."""
    inner: object = definition.get("function", definition) if isinstance(cast("object", definition), Mapping) else None
    if not isinstance(inner, Mapping) or definition.get("type", "function") != "function":
        expected = '{"type": "function", "function": {"name": …, "parameters": {…}}}'
        raise ToolDefinitionError(f"Tool.from_openai needs a definition such as {expected}, not {show(definition)}")
    fields = cast("Mapping[str, Any]", inner)
    name = fields.get("name")
    if not isinstance(name, str):
        raise ToolDefinitionError(f"Tool.from_openai: the definition has no name: {show(dict(fields))}")
    parameters = cast("Mapping[str, JSON]", fields.get("parameters") or {})
    return tool_from_schema(function, name, str(fields.get("description") or ""), parameters, options)


@quick()
class KeywordReader:
    """An `ArgumentReader` that checks the arguments against a schema and passes each by its name.

    - `defaults`: those of the schema, for arguments that are left out.
    - `names`: the arguments that the function takes; None: any.
    """

    reader: SchemaReader
    defaults: Mapping[str, JSON]
    names: tuple[str, ...] | None

    def __call__(self, arguments: Mapping[str, JSON]) -> Mapping[str, Any] | tuple[ArgumentProblem, ...]:
        """All arguments by name, or their problems. Never raises."""
        reading = self.reader(arguments)
        if isinstance(reading, tuple):
            return reading
        values: Mapping[str, JSON] = reading[ARGUMENTS]
        unknown_names = [] if self.names is None else [name for name in values if name not in self.names]
        if unknown_names:
            name_list = ", ".join(self.names or ()) or "none"
            return tuple([problem((name,), f"unknown argument; known: {name_list}") for name in unknown_names])
        return {**copy.deepcopy(self.defaults), **values}


def _check_schema(parameters: object, where: str) -> dict[str, JSON]:
    """A copy of the schema, with the keys that model APIs require and without `$schema`, which some refuse."""
    if not isinstance(parameters, Mapping):
        raise ToolDefinitionError(f"{where}: parameters must be a JSON Schema as a dict, not {show(parameters)}")
    try:
        plain: dict[str, JSON] = json.loads(json.dumps(dict(cast("Mapping[str, Any]", parameters))))
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolDefinitionError(f"{where}: its schema is not JSON: {error}") from None
    schema: dict[str, JSON] = {"type": "object", "properties": {}, **plain}
    schema.pop("$schema", None)
    if schema["type"] != "object" or not isinstance(schema["properties"], dict):
        raise ToolDefinitionError(
            f"{where}: parameters must be the schema of an object, whose properties are the parameters: "
            '{"type": "object", "properties": {…}, "required": […]}'
        )
    return schema


def _check_function_fits(signature: FunctionSignature, schema: Mapping[str, JSON], where: str) -> None:
    """Raises ToolDefinitionError if arguments that fit the schema could not be passed to the function."""
    properties, required_names = cast("dict[str, Any]", schema["properties"]), schema.get("required", ())
    parameters = {parameter.name: parameter for parameter in signature.parameters}
    for name, part in properties.items():
        if name in signature.injected_kinds:
            raise ToolDefinitionError(
                f"{where}: the schema has a property {name!r}, and the function's parameter of that name gets the "
                f"run's {signature.injected_kinds[name]}; rename the parameter"
            )
        if name in parameters:
            has_default = parameters[name].default is not NO_DEFAULT or (isinstance(part, dict) and "default" in part)
            if not has_default and name not in required_names:
                raise ToolDefinitionError(
                    f"{where}: the schema does not require {name!r}, and the function's parameter has no default; give "
                    "it one, or require it"
                )
        elif not signature.takes_any:
            raise ToolDefinitionError(
                f"{where}: the schema has a property {name!r} and the function no such parameter; add it, or take "
                "**arguments"
            )
    for name, parameter in parameters.items():
        if name not in properties and parameter.default is NO_DEFAULT:
            property_names = ", ".join(properties) or "none"
            raise ToolDefinitionError(
                f"{where}: the function needs {name!r}, and the schema's properties are: {property_names}"
            )
