"""One call in JSON: how a dialect writes it, what was read so far, and its problem."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from functools import cache

from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.text.scan import Problem, shorten
from toolspeak.dialects.text.typed_text import properties_of, schema_problem

LENIENT_ARGUMENTS = ("args", "arguments", "parameters")
# Most keys and names have no escapes and are whole in one chunk.
PLAIN_KEY = re.compile(r'"([^"\\\x00-\x1f]*+)"[ \t\n\r]*+:[ \t\n\r]*+')
PLAIN_STRING = re.compile(r'"([^"\\\x00-\x1f]*+)"')


@cache
def head_of(name_key: str, arguments_key: str, id_key: str = "") -> re.Pattern[str]:
    """The pattern of the beginning of most calls, up to the arguments: the id if it has a key, the name, and the key of
    the arguments. The last group is the name."""
    text = r'"([^"\\\x00-\x1f]++)"'
    own_id = (f'"{id_key}"', ":", text, ",") if id_key else ()
    parts = (r"\{", *own_id, f'"{name_key}"', ":", text, ",", f'"{arguments_key}"', ":", r"(?=\{)")
    return re.compile(r"[ \t\n\r]*+".join(parts))


@quick()
class CallShape:
    """How a dialect writes a call in JSON."""

    arguments_key: str
    array: bool
    """Whether calls are in an array; otherwise there is one object."""
    arguments_required: bool
    """Whether a call without the arguments key is malformed; otherwise it has no arguments."""
    name_key: str = "name"
    id_key: str = "id"
    arguments_text: bool = False
    """Arguments that are a JSON string with the object in it are accepted."""
    keyed: bool = False
    """A call is an object of one key, the name, whose value is the arguments."""
    alone: bool = False
    """An unreadable call fails alone if its end is certain, and a call may be the `function` of an object around it, as
    in OpenAI's API. Otherwise a block that is not strict JSON fails as a whole."""
    no_calls: tuple[str, ...] = ()
    """Names by which a model says that it needs no tool."""

    @property
    def wraps(self) -> bool:
        """Whether a call may be the `function` of an object around it."""
        return self.alone and not self.keyed and self.name_key == "name"

    @property
    def example(self) -> str:
        call = '{"…": {…}}' if self.keyed else f'{{"{self.name_key}": "…", "{self.arguments_key}": {{…}}}}'
        return f"[{call}]" if self.array else call


@quick(frozen=False)
class JsonCall:
    """The open call. `arguments` is None until their value was read."""

    offset: int = 0
    name: str | None = None
    id: str | None = None
    arguments_key: str | None = None
    arguments: Mapping[str, JSON] | None = None
    pending: list[str] = field(default_factory=list[str])
    has_started: bool = False
    problem: Problem | None = None
    is_buffered: bool = (
        False  # the arguments are null, or a JSON string with the object in it, and are sent when complete
    )
    null: bool = False
    in_function: bool = False  # the reader is inside the `function` of an object around the call
    keys: set[str] = field(default_factory=set[str])
    notes: list[str] = field(default_factory=list[str])
    other_keys: list[str] = field(default_factory=list[str])  # keys without a meaning here

    def take_key(self, key: str, shape: CallShape) -> None:
        """Records a key of the call."""
        if key in self.keys and self.problem is None:
            self.problem = Problem("duplicate_key", f"the key {shorten(key)!r} appears twice in one call")
        self.keys.add(key)
        if key in LENIENT_ARGUMENTS or key == shape.arguments_key:
            if self.arguments_key not in (None, key) and self.problem is None:
                both = f'both "{self.arguments_key}" and "{key}"'
                self.problem = Problem("duplicate_key", f"the call has {both}; write one of them")
            self.arguments_key = key
            if key != shape.arguments_key:
                self.notes.append(f"arguments_key:{key}")
        elif key not in (shape.name_key, shape.id_key) and not (key == "function" and shape.wraps):
            self.notes.append(f"extra_key:{shorten(key)}")
            if key != "type":  # many models write "type": "function" in calls
                self.other_keys.append(key)

    def check(self, shape: CallShape, tools: Mapping[str, ToolSpec]) -> Problem | None:
        """The problem of a call that was read to its end, or None."""
        arguments = self.arguments
        if self.name is None:
            key = "of the tool's name" if shape.keyed else f'"{shape.name_key}"'
            return Problem("no_name", f"the key {key} is missing; write {shape.example}")
        spec = tools.get(self.name)
        if self.other_keys:
            properties = properties_of(spec)
            beside = next((key for key in self.other_keys if key in properties or arguments is None), None)
            if beside is not None:
                # Never an executable {} instead of arguments in another place, nor a call without one of them.
                what = "is an argument" if beside in properties else "is not known"
                where = f'put the arguments into "{shape.arguments_key}": {shape.example}'
                return Problem("no_arguments", f'"{shorten(beside)}" {what}; {where}')
        if arguments is not None:
            return schema_problem(arguments, spec) if "type" in arguments else None
        if shape.arguments_required:
            return Problem("no_arguments", f'the key "{shape.arguments_key}" is missing; write {shape.example}')
        if self.null and spec and spec.parameters.get("required"):
            # Without required arguments null means no arguments. For another tool the arguments may be lost.
            reason = f'"{self.arguments_key}" is null, and {self.name} needs arguments: {shape.example}'
            return Problem("arguments_not_object", reason)
        return None
