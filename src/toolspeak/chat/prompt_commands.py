"""The commands about prompts of MCP servers: which there are, and how to use one."""

from __future__ import annotations

import shlex

from toolspeak import mcp
from toolspeak.chat.chat import Chat
from toolspeak.chat.display.styled_text import wrap
from toolspeak.data.messages import Message, Part, TextPart
from toolspeak.errors import ConfigurationError, suggest
from toolspeak.tools.files.text_format import visible
from toolspeak.ui.format import one_line

MARK = "__"
"""What is in the name of each such command: `/server__prompt`."""


async def list_prompts(chat: Chat) -> None:
    """Lists the prompts with their fields."""
    prompts = (await chat.servers_of(chat.setup)).prompts
    for each in prompts:
        fields = " ".join(f"{field.name}=…" if field.required else f"[{field.name}=…]" for field in each.fields)
        name = [("class:call", one_line(f"/{each.command}")), ("", one_line(f" {fields}" if fields else ""))]
        chat.front.print(wrap([*name, ("class:note", f"  {one_line(each.description)}")], chat.front.columns))
    if not prompts:
        chat.transcript.note("· the MCP servers of this conversation have no prompts")


async def use_prompt(chat: Chat, command: str, text: str) -> None:
    """Sends a prompt of a server as the person's message.

    `text`: its fields, as `name=text`; a prompt of one field takes the whole.

    Raises ConfigurationError for an unknown prompt or field, McpError if the server does not give it.
    """
    prompts = {prompt.command: (prompt, group) for prompt, group in (await chat.servers_of(chat.setup)).prompts.items()}
    if command not in prompts:
        raise ConfigurationError(f"there is no command /{suggest(command, list(prompts))}; /prompts lists prompts")
    prompt, group = prompts[command]
    messages = await group.prompt_messages(prompt, _fields(prompt, text))
    parts: list[Part] = []
    for message in messages:
        parts += [TextPart(f"[{message.role}]\n")] if message.role != "user" else []
        parts += message.parts
    # Not read as a message that the person writes: `@file` in a server's text attaches nothing.
    await chat.turn(visible("\n".join(message.text for message in messages)), Message("user", tuple(parts)))


def _fields(prompt: mcp.ServerPrompt, text: str) -> dict[str, str]:
    names, fields = [field.name for field in prompt.fields], dict[str, str]()
    if len(names) == 1 and not text.startswith(f"{names[0]}="):
        fields = {names[0]: text} if text else {}
    else:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ConfigurationError(f"/{prompt.command}: {error}; write name='some text'") from None
        fields = {name: value for name, _, value in (word.partition("=") for word in words)}
    wrong = [name for name in fields if name not in names]
    missing = [field.name for field in prompt.fields if field.required and field.name not in fields]
    if wrong or missing:
        needs = " ".join(f"{name}=…" for name in names) or "no fields"
        problem = f"it has no field {visible(wrong[0])}" if wrong else f"{visible(missing[0])} is missing"
        raise ConfigurationError(f"/{prompt.command}: {problem}; it takes {visible(needs)}")
    return fields
