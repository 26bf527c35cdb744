"""What the model says to command-line agents, by heart: a command, an edit, the answer."""

from __future__ import annotations

from typing import Any

PROGRAM_ANSWER = "Both files are there. 😀"
NOTES = "one\ntwo\n"
PATCHED_NOTES = 'one\nzwei "<b>" 😀\n'
NEW_FILE_TEXT = 'zwei "<b>" 😀\n\t{"tool": </tool_call>}\n'

Calls = list[tuple[str, dict[str, Any]]]

_PATCH = '*** Begin Patch\n*** Update File: notes.txt\n@@\n one\n-two\n+zwei "<b>" 😀\n*** End Patch\n'
_WRITE = "printf 'one\\ntwo\\n' > notes.txt && cat notes.txt"

PROGRAM_CALLS: dict[str, list[Calls]] = {
    "#codex": [[("exec_command", {"cmd": _WRITE})], [("apply_patch", {"input": _PATCH})]],
    "#claude": [
        [("Bash", {"command": _WRITE, "description": "Write notes"}), ("Bash", {"command": "echo ä '<b>'"})],
        [("Write", {"file_path": "more.txt", "content": NEW_FILE_TEXT})],
    ],
}
# The tools of `toolspeak mcp serve`, in native mode alone.
_THROUGH_MCP: list[Calls] = [
    [("mcp__toolspeak__write", {"path": "notes.txt", "content": NOTES})],
    [("mcp__toolspeak__read", {"path": "notes.txt"}), ("mcp__toolspeak__shell", {"command": "cat notes.txt | wc -l"})],
]
PROGRAM_CALLS |= {"#mcp": _THROUGH_MCP}
PROGRAM_TURNS: dict[str, dict[str, list[str]]] = {
    "hermes": {
        "#codex": [
            (
                'I write the file.\n<tool_call>\n{"name": "exec_command", "arguments": {"cmd": '
                "\"printf 'one\\\\ntwo\\\\n' > notes.txt && cat notes.txt\"}}\n</tool_call>"
            ),
            (
                '<tool_call>\n{"name": "apply_patch", "arguments": {"input": "*** Begin Patch\\n'
                '*** Update File: notes.txt\\n@@\\n one\\n-two\\n+zwei \\"<b>\\" 😀\\n*** End Patch\\n"}}\n</tool_call>'
            ),
            PROGRAM_ANSWER,
        ],
        "#claude": [
            (
                '<tool_call>\n{"name": "Bash", "arguments": {"command": "printf \'one\\\\ntwo\\\\n\' > notes.txt && '
                'cat notes.txt", "description": "Write notes"}}\n</tool_call>\n<tool_call>\n'
                '{"name": "Bash", "arguments": {"command": "echo ä \'<b>\'"}}\n</tool_call>'
            ),
            (
                'Now the other.\n<tool_call>\n{"name": "Write", "arguments": {"file_path": "more.txt", "content": '
                '"zwei \\"<b>\\" 😀\\n\\t{\\"tool\\": </tool_call>}\\n"}}\n</tool_call>'
            ),
            PROGRAM_ANSWER,
        ],
    },
    "qwen3-coder": {
        "#codex": [
            (
                "I write the file.\n\n<tool_call>\n<function=exec_command>\n<parameter=cmd>\n"
                f"{_WRITE}\n</parameter>\n</function>\n</tool_call>"
            ),
            f"<tool_call>\n<function=apply_patch>\n<parameter=input>\n{_PATCH}\n</parameter>\n</function>\n</tool_call>",
            PROGRAM_ANSWER,
        ],
        "#claude": [
            (
                f"<tool_call>\n<function=Bash>\n<parameter=command>\n{_WRITE}\n</parameter>\n<parameter=description>\n"
                "Write notes\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=Bash>\n"
                "<parameter=command>\necho ä '<b>'\n</parameter>\n</function>\n</tool_call>"
            ),
            (
                "Now the other.\n\n<tool_call>\n<function=Write>\n<parameter=file_path>\nmore.txt\n</parameter>\n"
                f"<parameter=content>\n{NEW_FILE_TEXT}\n</parameter>\n</function>\n</tool_call>"
            ),
            PROGRAM_ANSWER,
        ],
    },
}
