"""The length of a prompt's part about tools, for each dialect and listing: the table of docs/reference/dialects.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolspeak.data.tools import READ_ANYTHING, ToolSpec
from toolspeak.dialects import DIALECTS, Listing
from toolspeak.tools.builtin import workspace_tools

COUNTS = (3, 12, 50)
LISTINGS: tuple[Listing, ...] = ("trained", "prose", "signatures")


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def _object(properties: dict[str, Any], required_names: Sequence[str] = (), description: str = "") -> dict[str, Any]:
    description_entry = {"description": description} if description else {}
    return {"type": "object", **description_entry, "properties": properties, "required": list(required_names)}


_PERSON = _object(
    {
        "email": _text("The address that invitations and messages go to.", format="email"),
        "name": _text("The name that others see.", maxLength=80),
        "role": _text("What the person may do.", enum=["owner", "editor", "viewer"]),
    },
    ["email"],
)
_PERIOD = _object(
    {
        "start": _text("The first moment, with its time zone.", format="date-time"),
        "end": _text("The first moment after it.", format="date-time"),
    },
    ["start"],
    "A time from start to end; without an end it is open.",
)
_FILTER = _object(
    {
        "text": _text("Words that all have to occur in the title or in the description."),
        "labels": {"type": "array", "items": {"type": "string"}, "maxItems": 10, "description": "All of these."},
        "assignee": {"$ref": "#/$defs/Person", "description": "Who is responsible."},
        "changed": {"$ref": "#/$defs/Period", "description": "When it was changed last."},
    },
    description="Which ones; without a filter all of them.",
)
_DEFINITIONS = {"Person": _PERSON, "Period": _PERIOD}
_OPEN = {"additionalProperties": False, "$defs": _DEFINITIONS}
_THINGS = (
    "issue",
    "pull request",
    "event",
    "document",
    "customer",
    "invoice",
    "ticket",
    "milestone",
    "release",
    "sprint",
)


def _tools_of(thing: str) -> list[ToolSpec]:
    """Four tools as an MCP server has them for one kind of thing."""
    key, plural = thing.replace(" ", "_"), f"{thing}s"
    fields = {
        "title": _text(f"The title of the {thing}, in one line.", minLength=1, maxLength=200),
        "description": _text("What it is about, as Markdown."),
        "labels": {"type": "array", "items": {"type": "string"}, "description": "Names of labels; new ones are made."},
        "priority": _text("How urgent it is.", enum=["low", "normal", "high", "urgent"], default="normal"),
        "assignees": {"type": "array", "items": {"$ref": "#/$defs/Person"}, "description": "Who is responsible."},
        "period": {"$ref": "#/$defs/Period", "description": "When it takes place, or is due."},
    }
    id_of = {"id": {"type": "integer", "minimum": 1, "description": f"The number of the {thing}."}}
    paging = {
        "filter": _FILTER,
        "sort": _text("What comes first.", enum=["created", "updated", "title"], default="updated"),
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20, "description": "How many at most."},
        "cursor": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "Where the last page ended."},
    }
    return [
        ToolSpec(f"list_{key}s", f"List {plural}, a page at a time.", {**_object(paging), **_OPEN}, READ_ANYTHING),
        ToolSpec(f"get_{key}", f"Get one {thing} with all its fields.", _object(id_of, ["id"]), READ_ANYTHING),
        ToolSpec(
            f"create_{key}", f"Create a new {thing} and return its number.", {**_object(fields, ["title"]), **_OPEN}
        ),
        ToolSpec(
            f"update_{key}",
            f"Change fields of a {thing}; those that are left out stay as they are.",
            {**_object({**id_of, **fields}, ["id"]), **_OPEN},
        ),
    ]


def tools(count: int) -> list[ToolSpec]:
    """The built-in tools, and those of servers: of the first three one has a nested schema."""
    own = list(workspace_tools(".").specs)
    others = [spec for thing in _THINGS for spec in _tools_of(thing)]
    return [*own[:2], others[2]] if count == 3 else [*own, *others][:count]


def lines() -> list[str]:
    tools_by_count = {count: tools(count) for count in COUNTS}
    rows: list[str] = []
    for dialect in DIALECTS:
        cells: list[str] = []
        for count in COUNTS:
            sizes = {listing: len(dialect.prompt("", tools_by_count[count], listing).text) for listing in LISTINGS}
            has_template = getattr(dialect, "chat_template", None) is not None
            cells += [f"{sizes[listing]:,}" if has_template or listing != "trained" else "" for listing in LISTINGS]
        rows.append(f"| `{dialect.name}` | {' | '.join(cells)} |")
    heads = [f"{count} {'trained' if i == 0 else LISTINGS[i]}" for count in COUNTS for i in range(len(LISTINGS))]
    return [
        "## What a listing costs",
        "",
        "Characters of the prompt's part about tools, for 3, 12 and 50 tools: the built-in ones, and such as MCP",
        "servers have, with nested schemas (`tests/dialects/listing_sizes.py`). A token is about four characters.",
        "Where there is no figure for `trained`, no template is known, and the default is `prose`.",
        "",
        "Where `trained` is much shorter than `prose` (gpt-oss, GigaChat, Apertus, Functionary 3.2, Seed, Command R+),",
        "the template writes types in its own notation, which leaves out what a `$ref` names, or what is nested. For",
        "tools that need it, take the listing `prose` or `signatures`, which tell everything.",
        "",
        f"| dialect | {' | '.join(heads)} |",
        f"|---|{'---:|' * len(heads)}",
        *rows,
        "",
    ]
