"""How an editor sees a call: its title, kind, places and change of a file. Pure."""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence

from toolspeak.acp.prompt_content import blocks_of, fence, text_block
from toolspeak.data.messages import JSON, JsonPart, MalformedCall, TextPart, ToolCall, ToolResult
from toolspeak.data.values import quick
from toolspeak.ui.format import argument_lines, one_line, printable, shorten

JsonObject = dict[str, JSON]
"""A JSON object of the protocol."""

_TITLE = 160
"""How many characters of a call its title shows. The raw input holds the whole."""

_KINDS: Mapping[str, str] = {
    "read": "read",
    "list": "read",
    "active_file": "read",
    "read_result": "read",
    "skill": "read",
    "find": "search",
    "recall": "search",
    "write": "edit",
    "append": "edit",
    "edit": "edit",
    "line_edit": "edit",
    "replace": "edit",
    "shell": "execute",
    "todo": "think",
}
"""The protocol's kinds of the built-in tools. Any other tool is `other`."""

_FILE_TOOLS = frozenset({"read", "list", "find", "write", "append", "edit", "line_edit"})
"""The tools whose argument `path` is a path of the workspace."""


@quick()
class FileChange:
    """What a call makes of a file: its text before (None: there is no file) and after."""

    path: str
    before: str | None
    after: str

    def content(self) -> JsonObject:
        """The change as content of a tool call."""
        return {"type": "diff", "path": self.path, "oldText": self.before, "newText": self.after}


def call_fields(call: ToolCall | MalformedCall, folder: str, change: FileChange | None = None) -> JsonObject:
    """The fields of a call that do not change while it runs."""
    if isinstance(call, MalformedCall):
        return {"title": f"{one_line(call.name or 'call')} (cannot be read)", "kind": "other", "rawInput": call.raw}
    fields: JsonObject = {
        "title": call_title(call.name, call.arguments),
        "kind": call_kind(call.name),
        "rawInput": dict(call.arguments),
    }
    if locations := call_locations(call, folder):
        fields["locations"] = locations
    shown_change = change or _change_in_arguments(call, folder)
    if shown_change is not None:
        fields["content"] = [shown_change.content()]
    return fields


def call_kind(name: str) -> str:
    """The kind of a tool's calls, in the words of the protocol."""
    return _KINDS.get(name, "other")


def shown_id(run_id: str, call_id: str) -> str:
    """The id of a call in its session. A run's ids are unique in the run alone.

    A question about a call of a sub-run has the id with the sub-run's own beginning.
    """
    return "/".join(call_id.split("/")[-2:]) if "/" in call_id else f"{run_id[:8]}/{call_id}"


def call_title(name: str, arguments: Mapping[str, JSON]) -> str:
    """The call on one line."""
    if name == "shell" and isinstance(command := arguments.get("command"), str):
        return shorten(one_line(command.strip()), _TITLE) or "shell"
    if name in _FILE_TOOLS and isinstance(path := arguments.get("path"), str):
        return shorten(f"{name} {one_line(path)}", _TITLE)
    return shorten(" ".join([one_line(name), *argument_lines(arguments, 60)]), _TITLE)


def call_locations(call: ToolCall, folder: str) -> list[JsonObject]:
    """The file that the call is about, with the line, for editors that follow the agent."""
    path = call.arguments.get("path")
    if call.name not in _FILE_TOOLS or not isinstance(path, str):
        return []
    location: JsonObject = {"path": os.path.normpath(os.path.join(folder, path))}
    line = call.arguments.get("startLine", call.arguments.get("start"))
    if isinstance(line, int) and line > 0:
        location["line"] = line
    return [location]


def _change_in_arguments(call: ToolCall, folder: str) -> FileChange | None:
    """What the arguments alone say of the change of a file: the piece that is replaced, or the new content."""
    match call.name, dict(call.arguments):
        case "edit", {"path": str(path), "old": str(old), "new": str(new)}:
            return FileChange(os.path.normpath(os.path.join(folder, path)), old, new)
        case "write", {"path": str(path), "content": str(content)}:
            return FileChange(os.path.normpath(os.path.join(folder, path)), None, content)
        case _:
            return None


def result_fields(result: ToolResult, has_content: bool) -> JsonObject:
    """The fields of a call that has its result. `has_content`: the editor shows what a success does already."""
    fields: JsonObject = {"status": "completed" if result.status == "success" else "failed"}
    parts = result.content
    if parts and all(isinstance(part, TextPart | JsonPart) for part in parts):
        fields["rawOutput"] = parts[0].value if len(parts) == 1 and isinstance(parts[0], JsonPart) else result.text
    if not (has_content and result.status == "success"):
        fields["content"] = [content_of(block) for block in _result_blocks(result)]
    return fields


def _result_blocks(result: ToolResult) -> Sequence[JsonObject]:
    match result.content:
        case (JsonPart({"exit_code": exit_code, "output": str(output)} as value),):
            ending = ("" if output else "No output.") if exit_code == 0 else f"exit code {exit_code}"
            notes = "\n".join(str(each) for each in (ending, value.get("timed_out"), value.get("sandbox")) if each)
            return [text_block("\n".join([fence(printable(output), "console") if output else "", notes]).strip())]
        case _:
            return [
                # In a fence nothing that a file or a server says is Markdown, whose pictures would be fetched.
                text_block(fence(printable(block["text"]))) if block["type"] == "text" else block
                for block in blocks_of(result.content)
            ]


def content_of(block: JsonObject) -> JsonObject:
    """A content block as content of a tool call."""
    return {"type": "content", "content": block}
