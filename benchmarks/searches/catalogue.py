"""1,000 made-up tools with schemas like those of BFCL: services with objects and verbs, and functions that stand alone.

All names and descriptions are written for this benchmark. Three styles of names, and three sentences for each verb, so
that neighbours differ as the tools of different authors do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolspeak.data.tools import Effects, ToolSpec

FOLDER = Path(__file__).parent

VERBS: tuple[tuple[str, str, tuple[str, str, str], tuple[str, ...]], ...] = (
    (
        "create",
        "add",
        (
            "Creates {a} {name}: {gloss}.",
            "Adds a new {name} ({gloss}).",
            "Make {a} {name}, {gloss}, with these values.",
        ),
        ("title", "details"),
    ),
    (
        "get",
        "fetch",
        (
            "Returns one {name}: {gloss}.",
            "Reads {a} {name} ({gloss}) by its id.",
            "Look up {a} {name}, {gloss}.",
        ),
        ("id",),
    ),
    (
        "list",
        "search",
        (
            "Lists every {name}: {gloss}.",
            "Finds {name} entries ({gloss}) that match a filter.",
            "Search all {name} records, {gloss}.",
        ),
        ("filter", "limit"),
    ),
    (
        "update",
        "modify",
        (
            "Changes {a} {name}: {gloss}.",
            "Updates fields of {a} {name} ({gloss}).",
            "Modify {a} existing {name}, {gloss}.",
        ),
        ("id", "changes"),
    ),
    (
        "delete",
        "remove",
        (
            "Deletes {a} {name}: {gloss}.",
            "Removes {a} {name} ({gloss}) for good.",
            "Erase {a} {name}, {gloss}.",
        ),
        ("id",),
    ),
)
"""Each verb with its other word, its sentences by style, and its parameters."""


def specs() -> list[ToolSpec]:
    """The tools."""
    tools: list[ToolSpec] = []
    for line in (FOLDER / "functions.txt").read_text("utf-8").splitlines():
        head, _, description = line.partition("): ")
        name, _, parameters = head.partition("(")
        tools.append(_tool(name, description, parameters.split(", ")))
    for number, line in enumerate((FOLDER / "services.txt").read_text("utf-8").splitlines()):
        service, _, entries = line.partition(": ")
        for entry in entries.split("; "):
            name, _, gloss = entry.partition(" = ")
            for verb, other, sentences, parameters in VERBS:
                words = name.replace("_", " ")
                article = "an" if words[0] in "aeiou" else "a"
                sentence = sentences[(number + len(name)) % 3].format(name=words, gloss=gloss, a=article)
                tools.append(_tool(tool_name(service, name, verb, other), sentence, [*parameters]))
    return tools


def tool_name(service: str, name: str, verb: str, other: str) -> str:
    """The name of a service's tool, in the style of its service."""
    style = len(service) % 3
    if style == 0:
        return f"{service}__{verb}_{name}"
    if style == 1:
        return f"{service}.{other}" + "".join(part.capitalize() for part in name.split("_"))
    return f"{service}_{name}_{verb}"


def name_of(target: str) -> str:
    """The tool that `service/object/verb` names; any other target is a name itself."""
    if "/" not in target:
        return target
    service, name, verb = target.split("/")
    other = next(each[1] for each in VERBS if each[0] == verb)
    return tool_name(service, name, verb, other)


def _tool(name: str, description: str, parameters: list[str]) -> ToolSpec:
    properties: dict[str, Any] = {
        each: {"type": "string", "description": f"The {each.replace('_', ' ')}."} for each in parameters
    }
    schema = {"type": "object", "properties": properties, "required": parameters[:1]}
    return ToolSpec(name, description, schema, Effects(reads={"*"}))
