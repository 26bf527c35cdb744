"""The `/` commands of the conversation: their names, arguments and one line of help for each."""

from __future__ import annotations

from toolspeak.chat.display.styled_text import StyledLine

COMMANDS: dict[str, tuple[str, str]] = {
    "help": ("", "show the commands and keys"),
    "model": ("[NAME]", "list the server's models, or continue with another one (openai:NAME, ollama:NAME, …)"),
    "dialect": ("[NAME]", "show how the model writes calls, or choose it (auto: by the model)"),
    "approve": ("[ask|all|all+repaired|none]", "show or choose who decides about calls that change something"),
    "tools": ("", "list the tools of the model"),
    "prompts": ("", "list the prompts of MCP servers; /SERVER__PROMPT field=text uses one"),
    "undo": ("[CALL]", "take back the changes of files of the last turn, or back to a call"),
    "diff": ("", "show what the conversation changed in files"),
    "cost": ("", "show tokens and cost of the conversation"),
    "sessions": ("[NUMBER|ID]", "list the conversations of this folder, or continue one"),
    "compact": ("", "summarise the conversation, to make room in the model's window"),
    "export": ("[FILE.md|FILE.json]", "write the conversation to a file"),
    "new": ("", "begin a new conversation; this one stays in `/sessions`"),
    "thoughts": ("", "show or hide the model's thoughts (Ctrl-T)"),
    "quit": ("", "leave; `toolspeak chat -c` continues (Ctrl-D)"),
}
"""Each command's arguments and its help."""

SYNONYMS = {"clear": "new", "exit": "quit", "q": "quit", "?": "help"}

KEYS: dict[str, str] = {
    "Enter": "send; while the model works the message waits for its next step",
    "Alt-Enter, Ctrl-J": "begin a new line",
    "Tab": "complete a command or a path; with an open question: the keys go to the other input",
    "Up, Down": "earlier messages; Up takes a queued message back",
    "Ctrl-R": "search earlier messages",
    "Esc": "interrupt the model; what was said stays",
    "Ctrl-T": "show or hide thoughts",
    "Ctrl-C": "empty the line, or interrupt; twice: leave",
    "Ctrl-D": "leave",
    "Ctrl-G": "write the message in $EDITOR",
    "Ctrl-Z": "back to the shell; `fg` continues",
    "!command": "run a command of the shell; the model reads it and its output with your next message",
    "@file, @file:10-20": 'attach a file, some of its lines, an image, or the names in a folder; @"a file" with spaces',
}


HINTS = (
    "Ask or tell the model something · / commands · @ files · Ctrl-D leaves",
    "Your message · /help · Ctrl-D leaves",
    "Your message",
)
BUSY_HINTS = (
    "What you send now the model reads at its next step · Esc interrupts",
    "The model reads it next · Esc interrupts",
    "Esc interrupts",
)
"""What the empty input says: the first that fits."""


def help_lines() -> list[StyledLine]:
    """The commands and keys, for `/help`."""
    lines: list[StyledLine] = []
    for name, (arguments, text) in COMMANDS.items():
        lines += [[("class:call", f"/{name}"), ("", f" {arguments}" if arguments else ""), ("class:note", f"  {text}")]]
    lines.append([])
    lines += [[("class:strong", key), ("class:note", f"  {text}")] for key, text in KEYS.items()]
    return lines
