"""Types of answers, and what APIs refuse of a schema that a model is held to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


class Town(BaseModel):
    """Where people live."""

    model_config = ConfigDict(regex_engine="python-re")
    name: str = Field(min_length=1, pattern=r"^(?=\w)", description="As on the sign.")
    people: int = Field(ge=0, le=10**8)
    twin: Town | None = None
    tags: list[str] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    good: bool = True


class Zoo(BaseModel):
    model_config = ConfigDict(extra="forbid")
    animals: list[Annotated[Cat | Dog, Field(discriminator="kind")]] = Field(max_length=3, min_length=2)
    mood: Mood = Mood.GOOD
    founding_day: date
    id: UUID | None = Field(default=None, description="If it has one.")
    town: Town = Field(description="Where it is.", examples=[{"name": "Ulm"}])
    code: Annotated[str, Field(json_schema_extra={"format": "binary"})] = "x"


class Empty(BaseModel):
    pass


STRICT: tuple[Any, ...] = (Town, Cat, Zoo, Empty)
"""Models to which any API can hold a model."""


class Loose(BaseModel):
    counts: dict[str, int]


class Whatever(BaseModel):
    value: Any


class Pair(BaseModel):
    both: tuple[int, str]


class Bare(BaseModel):
    many: list  # type: ignore[type-arg]


OPEN: tuple[Any, ...] = (Loose, Whatever, Pair, Bare)
"""Those that let more through than OpenAI's strict schemas can say."""


def nodes(schema: Any) -> Iterator[Mapping[str, Any]]:
    """The schema and every schema in it."""
    if not isinstance(schema, Mapping):
        return
    yield schema
    for keyword in ("properties", "$defs", "definitions"):
        for each in schema.get(keyword, {}).values():
            yield from nodes(each)
    for keyword in ("anyOf", "allOf", "oneOf", "prefixItems"):
        for each in schema.get(keyword, ()):
            yield from nodes(each)
    yield from nodes(schema.get("items"))


def refused_by_openai(schema: Any) -> list[str]:
    """What the API's documentation says it refuses, and its package takes care of."""
    faults: list[str] = []
    for node in nodes(schema):
        if node.get("type") == "object":
            if node.get("additionalProperties") is not False:
                faults.append("open")
            if set(node.get("required", ())) != set(node["properties"]):
                faults.append("optional")
        if "$ref" in node and node.keys() - {"$ref", "$defs"}:
            faults.append("beside a reference")
        faults += [keyword for keyword in ("minLength", "uniqueItems", "oneOf", "default") if keyword in node]
        if "(?=" in node.get("pattern", "") or node.get("format") == "binary":
            faults.append("text")
    return faults


def refused_by_anthropic(schema: Any) -> list[str]:
    faults: list[str] = []
    for node in nodes(schema):
        if node.get("type") == "object" and node.get("additionalProperties") is not False:
            faults.append("open")
        bounds = ("minimum", "maximum", "minLength", "maxLength", "pattern", "maxItems", "multipleOf", "oneOf")
        faults += [keyword for keyword in bounds if keyword in node]
        if node.get("minItems", 0) > 1 or node.get("format") == "binary":
            faults.append("beyond")
    return faults
