"""Makes a JSON Schema and an `ArgumentReader` from a signature, with pydantic."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Optional, TypeAlias, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError

from toolspeak.data.messages import JSON
from toolspeak.errors import ToolDefinitionError
from toolspeak.tools.argument_reader import StrictReader
from toolspeak.tools.signature import NO_DEFAULT, FunctionSignature, Parameter

Schema: TypeAlias = dict[str, JSON]

_DEFS = "#/$defs/"
_SMALL = 200  # characters of JSON: weak models read an enum of this length more easily inline than as a $ref
_MAPS = ("properties", "patternProperties", "$defs", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = ("items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else")


def describe_parameters(
    signature: FunctionSignature, aliases: Mapping[str, str], where: str
) -> tuple[Schema, StrictReader]:
    """The JSON Schema of the parameters, and the reader that enforces it.

    Raises ToolDefinitionError for a type that JSON cannot express and for an alias of an unknown parameter.
    """
    names = [parameter.name for parameter in signature.parameters]
    _check_aliases(aliases, names, signature.injected_kinds, where)
    model, raw = _model_and_schema(signature.parameters, where)
    for name, text in signature.documentation.items():
        if name in names:
            raw["properties"][name].setdefault("description", text)
    schema = _normal_form(raw)
    return schema, StrictReader(model, tuple(names), dict(aliases), schema)


def describe_model(parameter: str, model: type[BaseModel], where: str) -> tuple[Schema, StrictReader]:
    """The JSON Schema of a model's fields, and the reader that makes an instance of it for the parameter.

    Raises ToolDefinitionError for a model that is not a JSON object, or that JSON cannot express.
    """
    try:
        raw = model.model_json_schema(schema_generator=_Generator)
    except Exception as error:  # as in `_model_and_schema`
        raise ToolDefinitionError(
            f"{where}: the model {model.__name__} cannot be described to a model: {_first_line(error)}. Use fields "
            "that JSON can hold"
        ) from error
    schema = _normal_form(raw)
    if "properties" not in raw and raw.get("type") != "object":
        raise ToolDefinitionError(f"{where}: the model {model.__name__} is not a JSON object; give it fields")
    return schema, StrictReader(model, (parameter,), {}, schema, as_instance=True)


def _normal_form(raw: Schema) -> Schema:
    schema = _inline(_plain(raw))
    return {
        "type": "object",
        "properties": schema.get("properties", {}),
        **({"required": schema["required"]} if schema.get("required") else {}),
        "additionalProperties": schema.get("additionalProperties", False),
        **({"$defs": schema["$defs"]} if schema.get("$defs") else {}),
    }


def _check_aliases(
    aliases: Mapping[str, str], names: Sequence[str], injected_names: Collection[str], where: str
) -> None:
    for alias, name in aliases.items():
        if name not in names:
            name_list = ", ".join(names) or "(none)"
            raise ToolDefinitionError(
                f"{where}: alias {alias!r} stands for {name!r}, which is no parameter: {name_list}"
            )
        if alias in names or alias in injected_names:
            raise ToolDefinitionError(f"{where}: alias {alias!r} is itself a parameter; remove it from aliases")


def _model_and_schema(parameters: Sequence[Parameter], where: str) -> tuple[type[BaseModel], Schema]:
    for parameter in parameters:
        _check_field(parameter, where)
    try:
        return _attempt(parameters)
    except Exception as error:  # noqa: BLE001 - pydantic and the hooks of the author's types raise many kinds
        culprit, cause = _culprit(parameters, error)
        raise ToolDefinitionError(
            f"{where}: {culprit} cannot be described to a model: {_first_line(cause)}. Use a type that JSON can hold"
            " (str, int, float, bool, list, dict, Literal, an enum, a dataclass, a pydantic model, a TypedDict)"
        ) from cause


def _attempt(parameters: Sequence[Parameter]) -> tuple[type[BaseModel], Schema]:
    # The fields are called p0, p1, …: a parameter may have a name that a pydantic field may not (_x, copy, json).
    # Dataclasses and TypedDicts inherit this configuration, so they refuse unknown fields too.
    config = ConfigDict(extra="forbid", allow_inf_nan=False)
    fields: dict[str, Any] = {f"p{index}": _field(parameter) for index, parameter in enumerate(parameters)}
    model = create_model("Arguments", __config__=config, **fields)
    return model, model.model_json_schema(schema_generator=_Generator)


def _culprit(parameters: Sequence[Parameter], error: Exception) -> tuple[str, Exception]:
    for parameter in parameters:
        try:
            _attempt([parameter])
        except Exception as culprit:  # noqa: BLE001 - as in _model_and_schema
            return f"parameter {parameter.name!r} (annotated {parameter.annotation!r})", culprit
    return "its parameters together", error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")


def _check_field(parameter: Parameter, where: str) -> None:
    annotation_infos = [*get_args(parameter.annotation)[1:]] if get_origin(parameter.annotation) is Annotated else []
    for info in [*annotation_infos, parameter.default]:
        if isinstance(info, FieldInfo) and (info.alias or info.validation_alias):
            raise ToolDefinitionError(
                f"{where}: parameter {parameter.name!r} has a Field alias; rename the parameter, or use"
                f" @tool(aliases={{'…': {parameter.name!r}}}) for other names a model may use"
            )


def _field(parameter: Parameter) -> Any:
    """The parameter as a field for `create_model`."""
    # The default in `n: int = None` shows that None is allowed.
    annotation = _optional(parameter.annotation) if parameter.default is None else parameter.annotation
    aliased_annotation = Annotated[annotation, Field(alias=parameter.name)]
    return aliased_annotation if parameter.default is NO_DEFAULT else (aliased_annotation, parameter.default)


def _optional(annotation: Any) -> Any:
    base, metadata = annotation, ()
    if get_origin(annotation) is Annotated:
        base, *metadata = get_args(annotation)
    if base in (Any, object, None, NoneType):
        return annotation
    if get_origin(base) in (Union, UnionType, Literal) and (NoneType in get_args(base) or None in get_args(base)):
        return annotation
    # `|` does not accept forward references and special forms.
    optional: Any = Optional[base]  # noqa: UP045
    for info in metadata:
        optional = Annotated[optional, info]
    return optional


class _Generator(GenerateJsonSchema):
    """Leaves out a default that JSON cannot express, without a warning."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as pydantic declares it

    def encode_default(self, dft: Any) -> Any:
        try:
            value = super().encode_default(dft)
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise PydanticSerializationError(str(error)) from error
        return value


def _rebuild(schema: Any, change: Callable[[Schema], Schema]) -> Any:
    """A copy of the schema with `change` applied to every schema in it, innermost first.

    Only schemas are visited, so that a property or a default called "title" stays.
    """
    if not isinstance(schema, dict):
        return schema
    copy: Schema = dict(cast("Schema", schema))
    for key in copy:
        if key in _MAPS:
            copy[key] = {name: _rebuild(child, change) for name, child in copy[key].items()}
        elif key in _LISTS:
            copy[key] = [_rebuild(child, change) for child in copy[key]]
        elif key in _SINGLES:
            copy[key] = _rebuild(copy[key], change)
    return change(copy)


def _plain(schema: Schema) -> Schema:
    """Without titles (pydantic derives them from names) and without OpenAPI's `discriminator`."""
    return _rebuild(schema, lambda part: {k: v for k, v in part.items() if k not in ("title", "discriminator")})


def _references(schema: Schema) -> Iterator[str]:
    references: list[str] = []

    def note(part: Schema) -> Schema:
        if isinstance(part.get("$ref"), str):
            references.append(part["$ref"].removeprefix(_DEFS))
        return part

    _rebuild(schema, note)
    return iter(references)


def _inline(schema: Schema) -> Schema:
    """Inlines definitions that are used once or are small. Recursive definitions stay in `$defs`."""
    definitions: dict[str, Schema] = schema.get("$defs", {})
    uses = Counter(_references(schema))
    targets = {name: set(_references(definition)) for name, definition in definitions.items()}
    recursive = {
        name
        for name, definition in definitions.items()
        if name in _reachable(targets[name], targets)
        or (uses[name] > 1 and (targets[name] or len(json.dumps(definition, default=str)) > _SMALL))
    }

    def put(part: Schema) -> Schema:
        name = str(part.get("$ref", "")).removeprefix(_DEFS)
        if name not in definitions or name in recursive:
            return part
        siblings = {key: value for key, value in part.items() if key != "$ref"}
        return {**_rebuild(definitions[name], put), **siblings}

    outer = {key: value for key, value in schema.items() if key != "$defs"}
    result: Schema = _rebuild(outer, put)
    if recursive:
        result["$defs"] = {name: _rebuild(definitions[name], put) for name in definitions if name in recursive}
    return result


def _reachable(start: Iterable[str], targets: Mapping[str, set[str]]) -> set[str]:
    reachable: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name not in reachable:
            reachable.add(name)
            waiting.extend(targets.get(name, ()))
    return reachable
