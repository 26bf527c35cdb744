"""The directives of the reference: the public names of a package, the fields of values, and the help of every command.

Docstrings are Markdown here and reStructuredText to autodoc: `to_restructured` turns the one into the other.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
from types import ModuleType
from typing import Any

import click
import msgspec
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.errors import PycodeError
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata, stringify_annotation

from toolspeak.cli.main import cli

LOGGER = logging.getLogger(__name__)

PACKAGES = (
    "agent",
    "tools",
    "tools.builtin",
    "tools.web",
    "execute",
    "interceptors",
    "dialects",
    "providers",
    "journal",
    "changes",
    "engines",
    "mcp",
    "adapters",
    "testing",
    "ui",
    "telemetry",
    "errors",
)
"""The public packages, where a name that several of them have is described in the first."""


def names_of(package: str) -> list[str]:
    """The public names of a package; of errors.py, which has no `__all__`, its exceptions."""
    module = importlib.import_module(package)
    exports = getattr(module, "__all__", None)
    return sorted(exports or (name for name, each in vars(module).items() if own_class(each, module)))


def own_class(each: Any, module: ModuleType) -> bool:
    return inspect.isclass(each) and each.__module__ == module.__name__


def own_bases(value: type) -> list[type]:
    """The classes of toolspeak that a class inherits from, but for those that give it no member to show."""
    bases = [base for base in value.__mro__[1:] if base.__module__.startswith("toolspeak.agent.")]
    return [base for base in bases if any(not name.startswith("_") for name in vars(base))]


def homes() -> dict[str, str]:
    """Where each public name is described."""
    places: dict[str, str] = {}
    for package in (*(f"toolspeak.{name}" for name in PACKAGES), "toolspeak"):
        for name in names_of(package):
            places.setdefault(name, package)
    return places


def entry(package: str, name: str) -> list[str]:
    """The directive that describes a public name."""
    value, place = getattr(importlib.import_module(package), name), f"{package}.{name}"
    if inspect.isclass(value):
        kind = "exception" if issubclass(value, BaseException) else "class"
        inherits = any(base.__name__ not in homes() for base in own_bases(value))
        options = ["   :inherited-members: Generic"] if inherits else []
        return [f".. auto{kind}:: {place}", "   :members:", *options, ""]
    if inspect.isroutine(value):
        return [f".. autofunction:: {place}", ""]
    options = [f"   :type: {type(value).__name__}"]
    if isinstance(value, str):
        options = [f"   :value: {value!r}"]
    elif not isinstance(value, (tuple, dict)) and type(value).__module__ in ("typing", "types", "collections.abc"):
        options = [f"   :value: {short_types(stringify_annotation(value))}"]
    description = [f"   {line}" for line in to_restructured(description_of(name))]
    return [f".. py:data:: {place}", *options, "", *description, ""]


def short_types(text: str) -> str:
    """Types by the last word of their names."""
    return re.sub(r"~?(?:\w+\.)+(\w+)", r"\1", text)


def is_described(package: str, name: str) -> bool:
    value = getattr(importlib.import_module(package), name)
    description = inspect.getdoc(value) if inspect.isclass(value) or inspect.isroutine(value) else description_of(name)
    return bool(description)


def description_of(name: str) -> list[str]:
    """The text under the assignment of a name, in whichever module assigns it."""
    for module in [module for module in sys.modules if module.startswith("toolspeak")]:
        try:
            texts = ModuleAnalyzer.for_module(module).find_attr_docs()
        except PycodeError:
            continue
        if ("", name) in texts:
            return texts["", name]
    return []


def to_restructured(lines: list[str]) -> list[str]:
    """A docstring in reStructuredText: code in double backticks, no other mark-up, indented blocks as they stand."""
    result: list[str] = []
    for block in re.split(r"\n\s*\n", "\n".join(lines)):
        if block.startswith("    ") or "──" in block:
            result += ["::", "", *(f"    {line}" for line in block.splitlines()), ""]
            continue
        parts = re.split(r"`([^`]+)`", block)
        parts[::2] = [re.sub(r"([*|\\]|_(?!\w))", r"\\\1", text) for text in parts[::2]]
        # The mark behind it ends a code span that a letter follows, as in "`Rule`s".
        parts[1::2] = [f"``{code}``\\ " for code in parts[1::2]]
        result += [*re.sub(r"(?<!\A)^(?=- )", "\n", "".join(parts), flags=re.MULTILINE).splitlines(), ""]
    return result


class PublicNames(SphinxDirective):
    """`.. public-names:: PACKAGE`: describes each public name of a package, or links to where it is described."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        package = self.arguments[0]
        places, names = homes(), names_of(package)
        introduction = importlib.import_module(package).__doc__ or ""
        lines = [f".. py:module:: {package}", "", *to_restructured(introduction.splitlines()), ""]
        elsewhere = [name for name in names if places[name] != package]
        lines += [f"- :py:obj:`{name} <{places[name]}.{name}>`" for name in elsewhere]
        for name in names:
            if places[name] == package:
                lines += ["", *entry(package, name)]
                if not is_described(package, name):
                    LOGGER.warning(
                        "%s.%s: a public name needs a docstring", package, name, location=self.get_location()
                    )
        return self.parse_text_to_nodes(StringList(lines, package))


_FIELDS = re.compile(r"^- ((?:`\w+`(?:, )?)+): (.*(?:\n  .*)*)", re.MULTILINE)


def described_fields(value: type) -> tuple[str, dict[str, str]]:
    """What a value's docstring says of the whole, and of each field: "- `name`: …", or a text under the field."""
    text = inspect.cleandoc(value.__doc__ or "")
    descriptions = {
        name: " ".join(match[2].split())
        for match in _FIELDS.finditer(text)
        for name in re.findall(r"`(\w+)`", match[1])
    }
    attributes = ModuleAnalyzer.for_module(value.__module__).find_attr_docs()
    descriptions |= {
        name: " ".join(lines).strip() for (owner, name), lines in attributes.items() if owner == value.__qualname__
    }
    return _FIELDS.sub("", text).strip(), descriptions


class ValueFields(SphinxDirective):
    """`.. value-fields:: MODULE NAME …`: describes values, with a row for each field except `extra`."""

    required_arguments = 2
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        module, names = self.arguments[0], self.arguments[1].split()
        lines: list[str] = []
        for name in names:
            value = getattr(importlib.import_module(module), name)
            summary, descriptions = described_fields(value)
            lines += ["", f".. py:class:: {module}.{name}", ""]
            lines += [f"   {line}" for line in to_restructured(summary.splitlines())]
            fields = [field for field in dataclasses.fields(value) if field.name != "extra"]
            if fields:
                lines += ["   .. list-table::", "      :header-rows: 1", "      :widths: 20 25 55", ""]
                lines += ["      * - field", "        - type", "        - meaning"]
            for field in fields:
                meaning = " ".join(to_restructured([descriptions.get(field.name, "")])).strip()
                kind = str(field.type).replace("|", " | ").replace("  ", " ")
                lines += [f"      * - ``{field.name}``", f"        - ``{kind}``", f"        - {meaning}"]
                if not meaning:
                    LOGGER.warning(
                        "%s.%s: describe the field %s", module, name, field.name, location=self.get_location()
                    )
        return self.parse_text_to_nodes(StringList([*lines, ""], module))


class CommandHelp(SphinxDirective):
    """`.. command-help::`: what each command prints for `--help`."""

    def run(self) -> list[nodes.Node]:
        lines = self.help_lines(cli, "toolspeak", None)
        return self.parse_text_to_nodes(StringList(lines, "toolspeak"), allow_section_headings=True)

    def help_lines(self, command: click.Command, name: str, parent: click.Context | None) -> list[str]:
        context = click.Context(command, parent, name, terminal_width=100, max_content_width=100)
        text = [f"   {line}".rstrip() for line in command.get_help(context).splitlines()]
        title = f"``{context.command_path}``"
        lines = [title, "-" * len(title), "", ".. code-block:: text", "", *text, ""]
        if isinstance(command, click.Group):
            for each in command.list_commands(context):
                inner = command.get_command(context, each)
                lines += self.help_lines(inner, each, context) if inner else []
        return lines


def process_docstring(_app: Sphinx, _what: str, _name: str, _value: object, _options: object, lines: list[str]) -> None:
    lines[:] = to_restructured(lines)


def process_signature(
    _app: Sphinx, what: str, _name: str, value: Any, _options: object, signature: str | None, result: str | None
) -> tuple[str | None, str | None]:
    """Signatures of classes that are made at run time: types by their last word, the values of defaults."""
    if what != "class" or signature is None:
        return signature, result
    if signature == "(*args, **kwargs)":
        return "", result
    signature = re.sub(r"~(?:\w+\.)+(\w+)", r"\1", signature)
    # What a struct notes for the codec beside the type that its class states (`toolspeak.data.values`).
    signature = signature.replace(" | UntaggedStruct", "").replace(": Unread", ": Mapping[str, JSON]")
    # A struct holds an unhashable or shared default as a factory, in the order of its fields.
    for field in msgspec.structs.fields(value) if issubclass(value, msgspec.Struct) else ():
        if field.default_factory is not msgspec.NODEFAULT:
            default = repr(field.default_factory())
            signature = signature.replace("<factory>", "…" if default.startswith("<") else default, 1)
    return signature, result


def setup(app: Sphinx) -> ExtensionMetadata:
    app.setup_extension("sphinx.ext.autodoc")
    app.add_directive("public-names", PublicNames)
    app.add_directive("value-fields", ValueFields)
    app.add_directive("command-help", CommandHelp)
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("autodoc-process-signature", process_signature)
    return {"version": "1", "parallel_read_safe": True}
