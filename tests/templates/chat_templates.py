"""Chat templates, rendered as Hugging Face's transformers renders them (`utils/chat_template_utils.py` there)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime(2026, 1, 2, 3, 4, 5)
TOKENS = {"bos_token": "<BOS>", "eos_token": "<EOS>"}


class SettingsGeneration(Extension):
    """`{% generation %}`, which marks what a model is trained on: in a prompt it says nothing."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Some templates of llama.cpp hand over a generator, which its own engine takes for a list.
    value = value if isinstance(value, Mapping | str | list | tuple | int | float | None) else list(value)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise TemplateError(message)


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[SettingsGeneration, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    # As llama.cpp's engine has it: jinja2's makes a Markup, which escapes all that is joined to it (`&#34;`), although
    # nothing is HTML here. Transformers does that to Functionary's tools; the model's own code does not.
    environment.filters["safe"] = str
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = NOW.strftime
    return environment


def folder() -> Path:
    return Path(os.environ["CHAT_TEMPLATES"])


@cache
def _template(name: str) -> Any:
    return _environment().from_string((folder() / f"{name}.jinja").read_text("utf-8"))


def prompt_of(
    name: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
) -> str:
    """The prompt for a reply. Without tools, the template is not given any. Raises whatever the template raises."""
    arguments: dict[str, Any] = {} if tools is None else {"tools": list(tools)}
    return _template(name).render(messages=list(messages), add_generation_prompt=True, **TOKENS, **arguments)
