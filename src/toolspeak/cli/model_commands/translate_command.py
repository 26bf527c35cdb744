"""`toolspeak translate`: translates a stored conversation from one dialect into another."""

from __future__ import annotations

import json
from typing import Any, cast, get_args

import click

from toolspeak.cli.options.command_options import file_argument, read_reply, read_tools, write_json
from toolspeak.data.messages import Role, TextMessage
from toolspeak.dialects import get_dialect, translate
from toolspeak.errors import ConfigurationError


@click.command("translate")
@file_argument
@click.option("--from", "source", required=True, metavar="NAME", help="The dialect of the conversation.")
@click.option("--to", "target", required=True, metavar="NAME", help="The dialect to translate it into.")
@click.option(
    "--tools",
    "tools_file",
    metavar="FILE",
    help="The tools as JSON: values get their types from them, and they identify the instructions in a system message.",
)
def translate_command(file: str, source: str, target: str, tools_file: str | None) -> None:
    """Translate a conversation from FILE or standard input into another dialect, so that another model can continue it.

    The conversation is a JSON array of {"role", "content"}, as it was sent to the model's server: calls and results are
    text.
    Standard error lists what could not be translated exactly, with the position of its message.
    """
    dialects = get_dialect(source), get_dialect(target)
    translation = translate(_conversation(read_reply(file)), *dialects, read_tools(tools_file))
    write_json([{"role": message.role, "content": message.text} for message in translation.messages])
    for warning in translation.warnings:
        click.echo(f"toolspeak: {warning}", err=True)


def _conversation(text: str) -> list[TextMessage]:
    try:
        message_list: Any = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"the conversation is not JSON ({error}); write an array of messages") from None
    if not isinstance(message_list, list):
        raise ConfigurationError(
            f'the conversation: expected an array of {{"role", "content"}}, found {type(message_list).__name__}'
        )
    return [_message(entry, i) for i, entry in enumerate(cast("list[Any]", message_list))]


def _message(entry: Any, i: int) -> TextMessage:
    if not isinstance(entry, dict):
        raise ConfigurationError(f'message {i}: expected {{"role", "content"}}, found {json.dumps(entry)[:40]}')
    fields = cast("dict[str, Any]", entry)
    role, content = fields.get("role"), fields.get("content")
    if role not in get_args(Role):
        raise ConfigurationError(
            f'message {i}: "role": expected one of {", ".join(get_args(Role))}, found {json.dumps(role)}'
        )
    if fields.get("tool_calls"):
        raise ConfigurationError(f'message {i}: "tool_calls" are not text; use the text that the model wrote')
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        content = "".join(part["text"] for part in parts) if all(_is_text(part) for part in parts) else None
    if not isinstance(content, str):
        raise ConfigurationError(
            f'message {i}: "content": expected a string, found {json.dumps(fields.get("content"))[:40]}'
        )
    return TextMessage(cast("Role", role), content)


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(cast("dict[str, Any]", part).get("text"), str)
