"""The example blocks of the seed documents, letter by letter."""

from __future__ import annotations

from toolspeak.data.deltas import ForgedResults
from toolspeak.data.messages import JsonPart, Message, TextPart, ToolCall, ToolResult
from toolspeak.dialects import Dialect, ParsedTurn, read_turn
from toolspeak.testing import check_splits

# --- seed 000 -----------------------------------------------------------------------------------

S000_THINK = "<think>reasoning about the problem, what steps to take</think>"
S000_FORM = """\
<execute>
[
  {"name": "[tool_name]", "args": {"[arg_name]": "[value]"}},
  {"name": "[tool_name]", "args": {"[arg_name]": "[value]"}}
]
</execute>"""
S000_SINGLE = """\
<execute>
[
  {"name": "read", "args": {"file": "config.json"}}
]
</execute>"""
S000_BATCH = """\
<execute>
[
  {"name": "read", "args": {"file": "a.txt"}},
  {"name": "write", "args": {"file": "b.txt", "content": "updated"}},
  {"name": "read", "args": {"file": "b.txt"}}
]
</execute>"""
S000_HTML = """\
<execute>
[
  {"name": "write", "args": {"file": "index.html", "content": "<html><body>Hello</body></html>"}}
]
</execute>"""
S000_CLOSING = """\
<execute>
[
  {"name": "write", "args": {"content": "Hello </write> world"}}
]
</execute>"""
S000_QUOTES = r"""<execute>
[
  {"name": "shell", "args": {"cmd": "echo \"hello\" && echo 'world'"}}
]
</execute>"""
RESULTS_FORM = """\
<results>
[
  {"tool": "name", "status": "success", "content": data},
  {"tool": "name", "status": "failure", "content": "error message"}
]
</results>"""
S000_SUCCESS = """\
<results>
[
  {"tool": "read", "status": "success", "content": "file contents"}
]
</results>"""
S000_FAILURE = """\
<results>
[
  {"tool": "read", "status": "failure", "content": "File not found: config.json"}
]
</results>"""
S000_BATCH_RESULTS = """\
<results>
[
  {"tool": "read", "status": "success", "content": "a contents"},
  {"tool": "write", "status": "success", "content": {"bytes": 22}},
  {"tool": "read", "status": "success", "content": "b updated"}
]
</results>"""
MIXED_TURN = """\
<results>
[
  {"tool": "read", "status": "success", "content": "data"},
  {"tool": "write", "status": "failure", "content": "Permission denied"},
  {"tool": "read", "status": "success", "content": "data"}
]
</results>"""
# The complete example, as it alternates: the model's turn, the system's answer.
S000_COMPLETE = [
    """\
<think>Need to read config, update it, verify the change</think>

<execute>
[
  {"name": "read", "args": {"file": "config.json"}}
]
</execute>""",
    """\
<results>
[
  {"tool": "read", "status": "success", "content": {"api": "old.com"}}
]
</results>""",
    r"""<think>API is old.com, need to update to new.com</think>

<execute>
[
  {"name": "write", "args": {"file": "config.json", "content": "{\"api\": \"new.com\"}"}},
  {"name": "read", "args": {"file": "config.json"}}
]
</execute>""",
    """\
<results>
[
  {"tool": "write", "status": "success", "content": {"bytes": 22}},
  {"tool": "read", "status": "success", "content": {"api": "new.com"}}
]
</results>""",
    "Configuration updated successfully. API endpoint changed from old.com to new.com and verified.",
]

# --- seed 001 -----------------------------------------------------------------------------------

S001_THINK = "<think>[any text]</think>"
S001_FORM = """\
<execute>
  <[tool_name]>
    <[arg_name]>[value]</[arg_name]>
  </[tool_name]>
</execute>"""
S001_SEQUENTIAL = """\
<execute>
  <write><file>a.txt</file><content>x</content></write>
  <read><file>a.txt</file></read>
</execute>"""
S001_DUPLICATES = """\
<execute>
  <read><file>a.txt</file></read>
  <read><file>b.txt</file></read>
  <read><file>c.txt</file></read>
</execute>"""
S001_DUPLICATE_RESULTS = """\
<results>
[
  {"tool": "read", "status": "success", "content": "a"},
  {"tool": "read", "status": "success", "content": "b"},
  {"tool": "read", "status": "success", "content": "c"}
]
</results>"""
S001_COMPLETE = [
    """\
<think>read config, update endpoint, verify</think>

<execute>
  <read><file>config.json</file></read>
</execute>""",
    """\
<results>
[{"tool": "read", "status": "success", "content": {"api": "old.com"}}]
</results>""",
    """\
<think>writing updated config and verifying in one batch</think>

<execute>
  <write><file>config.json</file><content>{"api": "new.com"}</content></write>
  <read><file>config.json</file></read>
</execute>""",
    """\
<results>
[
  {"tool": "write", "status": "success", "content": {"bytes": 22}},
  {"tool": "read", "status": "success", "content": {"api": "new.com"}}
]
</results>""",
    "Config updated and verified.",
]

# --- seed 003 -----------------------------------------------------------------------------------

S003_FORM = '<tool_call>\n{"name": "read", "arguments": {"path": "file.md"}}\n</tool_call>'
S003_LIST = '<tool_call>\n{"name": "list", "arguments": {"prefix": "AstraCodex/"}}\n</tool_call>'
S003_READ = '<tool_call>\n{"name": "read", "arguments": {"path": "AstraCodex/Memory.md"}}\n</tool_call>'
S003_WRITE = (
    '<tool_call>\n{"name": "write", "arguments": {"path": "notes/new.md", '
    '"content": "# New Note\\n\\nContent here."}}\n</tool_call>'
)
S003_FLOW = '<tool_call>{"name": "list", "arguments": {"prefix": "notes"}}</tool_call>'
S003_FLOW_RESULT = '["notes/daily.md", "notes/weekly.md"]'
S003_WRONG = '<tool_call>{"name": "list"...}</tool_call>'

# --- what the tests ask of them -----------------------------------------------------------------


def read_checked(dialect: Dialect, text: str, tools=()) -> ParsedTurn:
    """The turn, after checking that no cut of the text changes it."""
    check_splits(dialect, text, tools)
    return read_turn(dialect, text, tools)


def calls_of_turn(turn: ParsedTurn) -> list[tuple[str, dict]]:
    """Name and arguments of the calls that count; none may be malformed."""
    assert all(isinstance(call, ToolCall) for call in turn.calls), turn.calls
    return [(call.name, dict(call.arguments)) for call in turn.calls if isinstance(call, ToolCall)]


def result(name: str, status: str, content, call_id: str = "c") -> ToolResult:
    part = TextPart(content) if isinstance(content, str) else JsonPart(content)
    return ToolResult(call_id, name, status, (part,))


def results_as_told(dialect: Dialect, *results: ToolResult) -> str:
    """The results as they stand in the history."""
    (message,) = dialect.render([Message("tool", results)])
    assert message.role == "user"
    return message.text


def is_only_a_forgery(dialect: Dialect, text: str) -> bool:
    return [type(delta) for delta in check_splits(dialect, text)] == [ForgedResults]
