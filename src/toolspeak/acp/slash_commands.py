"""The commands that a user types as a prompt, such as `/model`. The model does not see them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from toolspeak.acp.call_presentation import JsonObject
from toolspeak.acp.editor_session import EditorSession
from toolspeak.data.messages import Message, TextPart
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.ui.format import money, printable


@quick()
class SlashCommand:
    """- `hint`: what may follow the name; "" if nothing."""

    description: str
    run: Callable[[EditorSession, str], Awaitable[str]]
    hint: str = ""


def command_in(message: Message) -> tuple[str, str] | None:
    """The name and the rest of a command; None for a message to the model."""
    first = message.parts[0]
    if not isinstance(first, TextPart) or not first.text.startswith("/"):
        return None
    name, _, rest = message.text[1:].partition(" ")
    return (name.strip(), rest.strip()) if name.strip() in COMMANDS else None


async def run_slash_command(session: EditorSession, name: str, rest: str) -> JsonObject:
    """Runs a command, shows what it says, and returns the answer to the prompt."""
    try:
        text = await COMMANDS[name].run(session, rest)
    except ConfigurationError as error:
        text = str(error)
    await session.say(text)
    return {"stopReason": "end_turn"}


async def _model(session: EditorSession, name: str) -> str:
    if not name:
        known = "\n".join(f"- {each}" for each in session.models)
        return f"The model is `{session.setup.model}`. `/model NAME` changes it.\n\n{known}"
    await session.set_model(name)
    return f"The model is now `{printable(session.setup.model)}`."


async def _tools(session: EditorSession, _rest: str) -> str:
    tools = await session.tools()
    return "\n".join(f"- `{printable(each.name)}`: {printable(each.description.partition('.')[0])}." for each in tools)


async def _usage(session: EditorSession, _rest: str) -> str:
    totals = await session.totals()
    tokens = f"{'~' if totals.estimated else ''}{totals.tokens:,} tokens"
    cost = "the price of the model is not known" if totals.cost is None else money(totals.cost, totals.estimated)
    return f"This session has used {tokens}, {cost}."


COMMANDS: Mapping[str, SlashCommand] = {
    "model": SlashCommand("Show or change the model", _model, "NAME"),
    "tools": SlashCommand("List the tools", _tools),
    "usage": SlashCommand("Show the tokens and the cost of this session", _usage),
}
