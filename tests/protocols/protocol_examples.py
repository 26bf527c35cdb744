"""Every example of the protocol documents whose calls the built-in tools can run, and what they show as results.

Run as a script it writes docs/reference/protocol-examples.md anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "protocol-examples.md"
JSON_DOC, XML_DOC, CALL_DOC = "Cogency JSON protocol", "Cogency XML protocol", "`<tool_call>` protocol"


@dataclass(frozen=True, eq=False)
class Reply:
    """One model reply and the results the document shows for it (None where it shows none)."""

    text: str
    output: Any = None
    deviation: str = ""


@dataclass(frozen=True, eq=False)
class Example:
    """`files` is the workspace the example takes for granted. The replies are one conversation."""

    document: str
    title: str
    dialect: str
    replies: tuple[Reply, ...]
    files: dict[str, str] = field(default_factory=dict)


TEXT_NOT_OBJECT = "`read` returns the file's text; the document shows it parsed."
OWN_WORDS = "The status is the same. toolspeak's message says what to do."
REAL_BYTES = "`bytes` is the real size; the document's 22 is not that of its own content (18)."
CONFIG = '{"api": "old.com"}'
NEW_CONFIG = '{"api": "new.com"}'


def ok(tool: str, content: Any) -> dict[str, Any]:
    return {"tool": tool, "status": "success", "content": content}


def bad(tool: str, content: str) -> dict[str, Any]:
    return {"tool": tool, "status": "failure", "content": content}


EXAMPLES: tuple[Example, ...] = (
    Example(
        JSON_DOC,
        "Single tool; results: success",
        "cogency-json",
        (
            Reply(
                '<execute>\n[\n  {"name": "read", "args": {"file": "config.json"}}\n]\n</execute>',
                [ok("read", "file contents")],
            ),
        ),
        {"config.json": "file contents"},
    ),
    Example(
        JSON_DOC,
        "Results: failure",
        "cogency-json",
        (
            Reply(
                '<execute>\n[\n  {"name": "read", "args": {"file": "config.json"}}\n]\n</execute>',
                [bad("read", "File not found: config.json")],
                OWN_WORDS,
            ),
        ),
    ),
    Example(
        JSON_DOC,
        "Multiple tools; batched results",
        "cogency-json",
        (
            Reply(
                '<execute>\n[\n  {"name": "read", "args": {"file": "a.txt"}},\n'
                '  {"name": "write", "args": {"file": "b.txt", "content": "updated"}},\n'
                '  {"name": "read", "args": {"file": "b.txt"}}\n]\n</execute>',
                [ok("read", "a contents"), ok("write", {"bytes": 22}), ok("read", "b updated")],
                "`bytes` is the real size. All three calls run at once, as the document says, so the last `read` may "
                "see the old or the new text. Here b.txt has its new content already, and the write reports that it "
                "changed nothing. `--schedule serializable` orders the calls.",
            ),
        ),
        {"a.txt": "a contents", "b.txt": "updated"},
    ),
    Example(
        JSON_DOC,
        "HTML in args",
        "cogency-json",
        (
            Reply(
                '<execute>\n[\n  {"name": "write", "args": {"file": "index.html", '
                '"content": "<html><body>Hello</body></html>"}}\n]\n</execute>'
            ),
        ),
    ),
    Example(
        JSON_DOC,
        "Closing tags in args",
        "cogency-json",
        (
            Reply(
                '<execute>\n[\n  {"name": "write", "args": {"content": "Hello </write> world"}}\n]\n</execute>',
                None,
                "toolspeak reads one call with its content intact. It fails because the example has no file, which "
                "`write` requires, here and in the document.",
            ),
        ),
    ),
    Example(
        JSON_DOC,
        "Mixed quotes",
        "cogency-json",
        (
            Reply(
                '<execute>\n[\n  {"name": "shell", "args": '
                '{"cmd": "echo \\"hello\\" && echo \'world\'"}}\n]\n</execute>'
            ),
        ),
    ),
    Example(
        JSON_DOC,
        "Mixed success/failure",
        "cogency-json",
        (
            Reply(
                '<execute>\n[\n  {"name": "read", "args": {"file": "a.txt"}},\n'
                '  {"name": "write", "args": {"file": "kept.txt", "content": "new"}},\n'
                '  {"name": "read", "args": {"file": "a.txt"}}\n]\n</execute>',
                [ok("read", "data"), bad("write", "Permission denied"), ok("read", "data")],
                "The document shows only the results; these calls produce them. " + OWN_WORDS,
            ),
        ),
        {"a.txt": "data", "kept.txt": "old"},
    ),
    Example(
        JSON_DOC,
        "Complete example",
        "cogency-json",
        (
            Reply(
                "<think>Need to read config, update it, verify the change</think>\n\n"
                '<execute>\n[\n  {"name": "read", "args": {"file": "config.json"}}\n]\n</execute>',
                [ok("read", {"api": "old.com"})],
                TEXT_NOT_OBJECT,
            ),
            Reply(
                "<think>API is old.com, need to update to new.com</think>\n\n"
                '<execute>\n[\n  {"name": "write", "args": {"file": "config.json", "content": '
                '"{\\"api\\": \\"new.com\\"}"}},\n  {"name": "read", "args": {"file": "config.json"}}\n]\n</execute>',
                [ok("write", {"bytes": 22}), ok("read", {"api": "new.com"})],
                f"{REAL_BYTES} {TEXT_NOT_OBJECT} The two calls run at once, so the `read` may still see the old text.",
            ),
            Reply(
                "Configuration updated successfully. API endpoint changed from old.com to new.com and verified.",
            ),
        ),
        {"config.json": CONFIG},
    ),
    Example(
        XML_DOC,
        "Sequential by default",
        "cogency-xml",
        (
            Reply(
                "<execute>\n  <write><file>a.txt</file><content>x</content></write>\n"
                "  <read><file>a.txt</file></read>\n</execute>"
            ),
        ),
    ),
    Example(
        XML_DOC,
        "Duplicate tools (order-preserved)",
        "cogency-xml",
        (
            Reply(
                "<execute>\n  <read><file>a.txt</file></read>\n  <read><file>b.txt</file></read>\n"
                "  <read><file>c.txt</file></read>\n</execute>",
                [ok("read", "a"), ok("read", "b"), ok("read", "c")],
            ),
        ),
        {"a.txt": "a", "b.txt": "b", "c.txt": "c"},
    ),
    Example(
        XML_DOC,
        "Mixed success/failure",
        "cogency-xml",
        (
            Reply(
                "<execute>\n  <read><file>a.txt</file></read>\n"
                "  <write><file>kept.txt</file><content>new</content></write>\n"
                "  <read><file>a.txt</file></read>\n</execute>",
                [ok("read", "data"), bad("write", "Permission denied"), ok("read", "data")],
                "The document shows only the results; these calls produce them. " + OWN_WORDS,
            ),
        ),
        {"a.txt": "data", "kept.txt": "old"},
    ),
    Example(
        XML_DOC,
        "Complete example",
        "cogency-xml",
        (
            Reply(
                "<think>read config, update endpoint, verify</think>\n\n"
                "<execute>\n  <read><file>config.json</file></read>\n</execute>",
                [ok("read", {"api": "old.com"})],
                TEXT_NOT_OBJECT,
            ),
            Reply(
                "<think>writing updated config and verifying in one batch</think>\n\n"
                f"<execute>\n  <write><file>config.json</file><content>{NEW_CONFIG}</content></write>\n"
                "  <read><file>config.json</file></read>\n</execute>",
                [ok("write", {"bytes": 22}), ok("read", {"api": "new.com"})],
                f"{REAL_BYTES} {TEXT_NOT_OBJECT}",
            ),
            Reply("Config updated and verified."),
        ),
        {"config.json": CONFIG},
    ),
    Example(
        CALL_DOC,
        "Tool call format",
        "tool-call",
        (Reply('<tool_call>\n{"name": "read", "arguments": {"path": "file.md"}}\n</tool_call>'),),
        {"file.md": "# A file\n"},
    ),
    Example(
        CALL_DOC,
        "List files",
        "tool-call",
        (Reply('<tool_call>\n{"name": "list", "arguments": {"prefix": "AstraCodex/"}}\n</tool_call>'),),
        {"AstraCodex/Memory.md": "- likes tea\n", "AstraCodex/Rules/one.md": "1\n"},
    ),
    Example(
        CALL_DOC,
        "Read a file",
        "tool-call",
        (Reply('<tool_call>\n{"name": "read", "arguments": {"path": "AstraCodex/Memory.md"}}\n</tool_call>'),),
        {"AstraCodex/Memory.md": "- likes tea\n"},
    ),
    Example(
        CALL_DOC,
        "Write a file (requires confirmation)",
        "tool-call",
        (
            Reply(
                '<tool_call>\n{"name": "write", "arguments": {"path": "notes/new.md", '
                '"content": "# New Note\\n\\nContent here."}}\n</tool_call>'
            ),
        ),
    ),
    Example(
        CALL_DOC,
        "Example flow",
        "tool-call",
        (
            Reply(
                '<tool_call>{"name": "list", "arguments": {"prefix": "notes"}}</tool_call>',
                ["notes/daily.md", "notes/weekly.md"],
            ),
            Reply("The notes folder contains daily.md and weekly.md."),
        ),
        {"notes/daily.md": "", "notes/weekly.md": ""},
    ),
    Example(
        CALL_DOC,
        "Error handling",
        "tool-call",
        (
            Reply(
                '<tool_call>{"name": "read", "arguments": {"path": "missing.md"}}</tool_call>',
                None,
                "The document says that a tool returns `ERROR:`; it shows no example.",
            ),
        ),
    ),
)


CommandResult = subprocess.CompletedProcess[bytes]


def run_command(arguments: Sequence[str], reply: bytes) -> CommandResult:
    command = [sys.executable, "-m", "toolspeak", *arguments]
    return subprocess.run(command, input=reply, capture_output=True, timeout=60, check=False)


def run_example(example: Example, run: Callable[[Sequence[str], bytes], CommandResult] = run_command) -> list[str]:
    """What `toolspeak exec` prints for each reply, in a fresh workspace; one conversation."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder, "workspace")
        for name, text in example.files.items():
            path = workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        workspace.mkdir(exist_ok=True)
        return [run_exec(run, reply.text, example.dialect, workspace) for reply in example.replies]


def run_exec(run: Callable[[Sequence[str], bytes], CommandResult], reply: str, dialect: str, workspace: Path) -> str:
    reads = workspace.with_name("reads")
    arguments = ["exec", "--dialect", dialect, "--workspace", str(workspace), "--approve", "all", "--reads", str(reads)]
    process = run(arguments, reply.encode())
    assert process.returncode == 0, process.stderr.decode()
    return process.stdout.decode()


def page(outputs: dict[Example, list[str]]) -> str:
    """docs/reference/protocol-examples.md."""
    lines = [
        "# The examples of the protocol documents",
        "",
        "This page runs every example of the three protocol documents whose calls the built-in tools can run, with",
        "`toolspeak exec --approve all` in a new workspace (`--reads` joins the replies of one conversation).",
        "`python tests/protocols/protocol_examples.py` generates it, and a test keeps it current.",
        "",
        "| document | example | dialect | output | deviation and reason |",
        "|---|---|---|---|---|",
    ]
    for example, example_outputs in outputs.items():
        for number, (reply, output) in enumerate(zip(example.replies, example_outputs, strict=True), 1):
            title = example.title if len(example.replies) == 1 else f"{example.title}, reply {number}"
            result = cell(output) if output else "(no calls: the reply is the answer)"
            deviation = reply.deviation or "none"
            lines.append(f"| {example.document} | {title} | {example.dialect} | {result} | {deviation} |")
    return "\n".join(lines) + "\n"


def cell(output: str) -> str:
    text = output.rstrip("\n").replace("|", "\\|")
    return "<br>".join(f"`{line}`" for line in text.split("\n"))


def shape(value: Any) -> Any:
    """The structure of a results block: names, order, status, and the JSON type of each content."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [(row["tool"], row["status"]) for row in value]
    return value


if __name__ == "__main__":
    PAGE.write_text(page({example: run_example(example) for example in EXAMPLES}), "utf-8")
    print(json.dumps({"written": PAGE.name, "examples": len(EXAMPLES)}))
