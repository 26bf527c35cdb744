"""One call in JSON: how a dialect writes it, what was read of it so far, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from functools import cache

from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.text.scan import Problem, shorten
from toolspeak.dialects.text.typed_text import properties_of, says_types

LENIENT_ARGUMENTS = ("args", "arguments", "parameters")
# What most calls begin with, whole in one chunk: a key, and a name, without escapes.
PLAIN_KEY = re.compile(r'"([^"\\\x00-\x1f]*+)"[ \t\n\r]*+:[ \t\n\r]*+')
PLAIN_STRING = re.compile(r'"([^"\\\x00-\x1f]*+)"')


@cache
def head_of(name_key: str, arguments_key: str, id_key: str = "") -> re.Pattern[str]:
    """What most calls begin with, whole: the name and the key of the arguments, which follow; in front of them the id,
    if it has a key. The last group is the name."""
    text = r'"([^"\\\x00-\x1f]++)"'
    own_id = (f'"{id_key}"', ":", text, ",") if id_key else ()
    parts = (r"\{", *own_id, f'"{name_key}"', ":", text, ",", f'"{arguments_key}"', ":", r"(?=\{)")
    return re.compile(r"[ \t\n\r]*+".join(parts))


@quick()
class CallShape:
    """How a dialect writes a call in JSON.

    `array`: calls stand in an array (else one object). `arguments_required`: a call without the
    arguments key is no call (else it has none). `arguments_text`: an object that was written as a JSON string is
    accepted. `keyed`: a call is an object of one key, the name, whose value are the arguments.
    `alone`: a call that cannot be read fails alone where its end is certain, and a call may be the `function` of an
    object around it, as in OpenAI's API; else a block is strict JSON or none. `no_calls` are names that say that no
    tool is needed.
    """

    arguments_key: str
    array: bool
    arguments_required: bool
    name_key: str = "name"
    id_key: str = "id"
    arguments_text: bool = False
    keyed: bool = False
    alone: bool = False
    no_calls: tuple[str, ...] = ()

    @property
    def wraps(self) -> bool:
        """Whether a call may be the `function` of an object."""
        return self.alone and not self.keyed and self.name_key == "name"

    @property
    def example(self) -> str:
        call = '{"…": {…}}' if self.keyed else f'{{"{self.name_key}": "…", "{self.arguments_key}": {{…}}}}'
        return f"[{call}]" if self.array else call


@quick(frozen=False)
class JsonCall:
    """The call being read. `arguments` is set once their key was seen."""

    offset: int = 0
    name: str | None = None
    id: str | None = None
    arguments_key: str | None = None
    arguments: Mapping[str, JSON] | None = None
    held: list[str] = field(default_factory=list[str])
    started: bool = False
    problem: Problem | None = None
    quoted: bool = False  # the arguments are a JSON string that holds the object, or null: they are told when read
    null: bool = False
    nested: bool = False  # inside the `function` of the call
    keys: set[str] = field(default_factory=set[str])
    notes: list[str] = field(default_factory=list[str])
    unknown: list[str] = field(default_factory=list[str])  # keys that mean nothing to us

    def take_key(self, key: str, shape: CallShape) -> None:
        """Takes note of a key of the call, but not of its value."""
        if key in self.keys and self.problem is None:
            self.problem = Problem("duplicate_key", f"the key {shorten(key)!r} appears twice in one call")
        self.keys.add(key)
        if key in LENIENT_ARGUMENTS or key == shape.arguments_key:
            if self.arguments_key not in (None, key) and self.problem is None:
                both = f'both "{self.arguments_key}" and "{key}"'
                self.problem = Problem("duplicate_key", f"{both} are there; write one of them")
            self.arguments_key = key
            if key != shape.arguments_key:
                self.notes.append(f"arguments_key:{key}")
        elif key not in (shape.name_key, shape.id_key) and not (key == "function" and shape.wraps):
            self.notes.append(f"extra_key:{shorten(key)}")
            if key != "type":  # "type": "function" stands in many models' calls
                self.unknown.append(key)

    def check(self, shape: CallShape, tools: Mapping[str, ToolSpec]) -> Problem | None:
        """What is wrong with a call that was read to its end."""
        arguments = self.arguments
        if self.name is None:
            key = "of the tool's name" if shape.keyed else f'"{shape.name_key}"'
            return Problem("no_name", f"the key {key} is missing; write {shape.example}")
        spec = tools.get(self.name)
        if self.unknown:
            known = properties_of(spec)
            beside = next((key for key in self.unknown if key in known or arguments is None), None)
            if beside is not None:
                # Never an executable {} in place of arguments that stand elsewhere, nor a call without one of them.
                what = "is an argument" if beside in known else "is not known"
                where = f'put the arguments into "{shape.arguments_key}": {shape.example}'
                return Problem("no_arguments", f'"{shorten(beside)}" {what}; {where}')
        if arguments is not None:
            return says_types(arguments, spec) if "type" in arguments else None
        if shape.arguments_required:
            return Problem("no_arguments", f'the key "{shape.arguments_key}" is missing; write {shape.example}')
        if self.null and spec and spec.parameters.get("required"):
            # Null for a tool that needs nothing says just that; for another one it may be all that is left of them.
            reason = f'"{self.arguments_key}" is null, and {self.name} needs arguments: {shape.example}'
            return Problem("arguments_not_object", reason)
        return None
