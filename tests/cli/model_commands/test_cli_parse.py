"""`toolspeak parse`, `dialects` and `tools`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from command import toolspeak

from toolspeak.dialects import DIALECTS, PROTOCOLS

TOOLS = [
    {"name": "scale", "description": "Scales.", "parameters": {"properties": {"n": {"type": "integer"}}}},
    {"type": "function", "function": {"name": "say", "parameters": {"properties": {"text": {"type": "string"}}}}},
]


def parse(reply, cwd, *arguments) -> dict:
    process = toolspeak("parse", *arguments, reply=reply, cwd=cwd)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_it_prints_content_reasoning_calls_malformed_and_ignored(tmp_path):
    reply = (
        '<think>hm</think>Now.<execute>[{"name": "a", "args": {"x": 1}, "id": "q"}, 7]</execute>'
        '<execute>[{"name": "b", "args": {}}]</execute><results>[]</results>'
    )
    answer = parse(reply, tmp_path, "--dialect", "cogency-json")
    assert answer["content"] == "Now."
    assert answer["reasoning"] == "hm"
    assert answer["calls"] == [{"name": "a", "arguments": {"x": 1}, "id": "q"}]
    assert [entry["raw"] for entry in answer["malformed"]] == ["7"]
    assert [entry["name"] for entry in answer["ignored"]] == ["b"]
    assert answer["forged"] == ["[]"]


@pytest.mark.parametrize("command", ["parse", "exec", "translate"])
def test_a_file_is_read_like_standard_input(tmp_path, command):
    options = {
        "parse": ["--model", "qwen3"],
        "exec": ["--dialect", "cogency-json"],
        "translate": ["--from", "hermes", "--to", "glm45"],
    }[command]
    text = '[{"role": "user", "content": "r\\u00e9sum\u00e9"}]' if command == "translate" else "R\u00e9sum\u00e9.\r\n"
    (tmp_path / "reply.txt").write_bytes(text.encode())
    result = toolspeak(command, "reply.txt", *options, cwd=tmp_path)
    pipe_result = toolspeak(command, "-", *options, reply=text, cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (
        pipe_result.returncode,
        pipe_result.stdout,
        pipe_result.stderr,
    )
    assert result.returncode == 0


@pytest.mark.parametrize(("name", "problem"), [("none.txt", b"there is no such file"), (".", b"directory")])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, problem):
    process = toolspeak("parse", name, cwd=tmp_path)
    assert process.returncode == 2
    assert process.stderr.startswith(b"toolspeak: " + name.encode())
    assert problem in process.stderr
    assert process.stdout == b""


def test_a_file_that_is_not_utf8_is_named_with_the_place(tmp_path):
    (tmp_path / "reply.txt").write_bytes(b"ab\xff")
    assert toolspeak("parse", "reply.txt", cwd=tmp_path).stderr == (
        b"toolspeak: reply.txt is not UTF-8: byte 0xff at offset 2; convert it first\n"
    )


def test_lines_are_read_from_a_file_and_a_broken_one_stops_none(tmp_path):
    (tmp_path / "replies.jsonl").write_bytes(b'{"id": 1, "input": "a"}\r\n{broken\r\n{"id": 3, "input": "c"}\r\n')
    process = toolspeak("parse", "--jsonl", "replies.jsonl", cwd=tmp_path)
    rows = [json.loads(line) for line in process.stdout.splitlines()]
    assert process.returncode == 1
    assert [row.get("content") for row in rows] == ["a", None, "c"]
    assert rows[1]["error"].startswith("line 2: not JSON")


def test_repair_marks_what_it_mended_and_shows_what_the_model_wrote(tmp_path):
    reply = '<tool_call>{name: "a", "arguments": {"x": 1,}}</tool_call>'
    answer = parse(reply, tmp_path, "--dialect", "hermes", "--repair")
    raw = '{name: "a", "arguments": {"x": 1,}}'
    assert [(call["name"], call["arguments"]) for call in answer["calls"]] == [("a", {"x": 1})]
    assert (answer["calls"][0]["notes"], answer["calls"][0]["repaired_from"]) == (["repaired"], raw)
    assert answer["malformed"] == []
    assert parse(reply, tmp_path, "--dialect", "hermes", "--repair", "--finish", "length")["calls"] != []
    assert parse(reply[:-14], tmp_path, "--dialect", "hermes", "--repair", "--finish", "length")["calls"] == []


HERMES = '<tool_call>{"name": "a", "arguments": {"x": 1}}</tool_call>'
QWEN = "<tool_call>\n<function=a>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("options", "reply", "dialect"),
    [
        ((), HERMES, "hermes"),
        (("--dialect", "auto"), QWEN, "qwen3-coder"),
        ((), "Hi.", "auto"),
        (("--model", "Qwen/Qwen3-Coder-30B"), QWEN, "qwen3-coder"),
        (("--model", "Qwen/Qwen3-Coder-30B"), "Hi.", "qwen3-coder"),
        (("--model", "Qwen/Qwen3-Coder-30B", "--dialect", "auto"), HERMES, "hermes"),
        (("--model", "Qwen/Qwen3-Coder-30B", "--dialect", "hermes"), HERMES, "hermes"),
    ],
)
def test_auto_says_which_dialect_read_the_calls(options, reply, dialect, tmp_path):
    answer = parse(reply, tmp_path, *options)
    assert (answer["dialect"], [call["name"] for call in answer["calls"]]) == (dialect, ["a"] * (reply != "Hi."))


def test_strict_leaves_a_call_of_an_unknown_tool_as_text(tmp_path):
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    answer = parse(HERMES, tmp_path, "--strict", "--tools", "tools.json")
    assert (answer["content"], answer["calls"], answer["dialect"]) == (HERMES, [], "auto")
    assert parse(HERMES, tmp_path, "--tools", "tools.json")["calls"] != []


def test_repair_with_auto(tmp_path):
    for options in (("--dialect", "auto"), ("--model", "NousResearch/Hermes-3-Llama-3.1-8B")):
        answer = parse(HERMES.replace("{", "{,", 1).replace('{,"name"', "{name"), tmp_path, *options, "--repair")
        assert [(call["name"], call["notes"]) for call in answer["calls"]] == [("a", ["repaired"])]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("parse", "--repair", "--strict"), "strict detection and repair cannot be combined"),
        (("parse", "--repair", "--model", "qwen3-coder"), "qwen3-coder does not write its calls as JSON"),
        (("parse", "--strict", "--dialect", "harmony"), "use it without strict"),
        (("parse", "--model", "nobody-7b"), "No dialect is known for the model 'nobody-7b'"),
        (("dialects", "--model", "nobody-7b"), "No dialect is known for the model 'nobody-7b'"),
    ],
)
def test_what_cannot_be_says_so(arguments, error, tmp_path):
    process = toolspeak(*arguments, cwd=tmp_path)
    assert (process.returncode, error in process.stderr.decode()) == (2, True), process.stderr


def test_dialects_says_which_one_a_model_has(tmp_path):
    assert toolspeak("dialects", "--model", "Qwen/Qwen3-Coder-30B", cwd=tmp_path).stdout == b"qwen3-coder\n"
    output = toolspeak("dialects", "--show", "auto", "--model", "qwen3-coder:30b", cwd=tmp_path).stdout.decode()
    assert "<function=" in output


def test_tools_type_the_values_of_the_xml_dialect(tmp_path):
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    reply = "<execute><scale><n>007</n></scale><scale><n>7</n></scale><say><text>7</text></say></execute>"
    answer = parse(reply, tmp_path, "--dialect", "cogency-xml", "--tools", "tools.json")
    assert [call["arguments"] for call in answer["calls"]] == [{"n": "007"}, {"n": 7}, {"text": "7"}]


def test_starts_in_reasoning(tmp_path):
    answer = parse("deep</think>Hi", tmp_path, "--dialect", "tool-call", "--starts-in", "reasoning")
    assert (answer["reasoning"], answer["content"]) == ("deep", "Hi")


@pytest.mark.parametrize("options", [(), ("--dialect", "tool-call"), ("--dialect", "hermes", "--repair")])
def test_what_stands_before_an_end_of_reasoning_that_nothing_opened_is_reasoning(options, tmp_path):
    reply = 'deep</think>Hi\n<tool_call>\n{"name": "a", "arguments": {}}\n</tool_call>'
    for starts_in in ((), ("--starts-in", "text"), ("--starts-in", "reasoning")):
        answer = parse(reply, tmp_path, *options, *starts_in)
        assert (answer["reasoning"], answer["content"], len(answer["calls"])) == ("deep", "Hi\n", 1)


def test_lone_surrogates_and_nul_leave_as_escapes(tmp_path):
    answer = parse(
        '<tool_call>{"name": "a", "arguments": {"x": "\\ud800\\u0000"}}</tool_call>', tmp_path, "--dialect", "tool-call"
    )
    assert answer["calls"][0]["arguments"] == {"x": "\ud800\0"}


@pytest.mark.parametrize("text", ["{}", "[5]", '[{"name": 5}]', '[{"name": "a", "parameters": 5}]', "["])
def test_a_bad_tools_file_is_named(text, tmp_path):
    (tmp_path / "tools.json").write_text(text)
    process = toolspeak("parse", "--dialect", "tool-call", "--tools", "tools.json", cwd=tmp_path)
    assert process.returncode == 2
    assert "tools.json" in process.stderr.decode()


def test_dialects_lists_them_all(tmp_path):
    listing = toolspeak("dialects", cwd=tmp_path).stdout.decode()
    assert all(dialect.name in listing for dialect in DIALECTS)


@pytest.mark.parametrize("dialect", PROTOCOLS, ids=lambda dialect: dialect.name)
def test_dialects_show_prints_the_instructions_for_the_tools(dialect, tmp_path):
    output = toolspeak("dialects", "--show", dialect.name, cwd=tmp_path).stdout.decode()
    assert "### read(path, " in output
    assert "### shell(command, " in output


def test_tools_lists_them_and_shows_one(tmp_path):
    listing = toolspeak("tools", cwd=tmp_path).stdout.decode()
    assert {"read", "write", "shell", "active_file"} <= {line.split()[0] for line in listing.splitlines()}
    spec = json.loads(toolspeak("tools", "--show", "line_edit", cwd=tmp_path).stdout)
    assert list(spec["parameters"]["properties"]) == ["path", "startLine", "endLine", "newContent"]


def test_help_names_the_exit_codes(tmp_path):
    assert "3 awaiting approval" in " ".join(toolspeak("--help", cwd=tmp_path).stdout.decode().split())


@pytest.mark.over_a_second
def test_a_reader_that_leaves_early_ends_it_quietly(tmp_path):
    line = f"'{sys.executable}' -m toolspeak dialects --show cogency-json | head -n 1"
    process = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert (process.stdout, process.stderr) == ("## Tools\n", "")


def test_tools_are_listed_as_a_prompt_lists_them(tmp_path):
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    for command in (("tools",), ("dialects", "--show", "hermes")):
        process = toolspeak(*command, "--tools", "tools.json", "--listing", "signatures", cwd=tmp_path)
        assert "scale(n?: int)\nScales." in process.stdout.decode()
    process = toolspeak("tools", "--listing", "json_schema", "--show", "read", cwd=tmp_path)
    assert json.loads(process.stdout)["function"]["name"] == "read"
    assert toolspeak("tools", "--listing", "signatures", "--show", "raed", cwd=tmp_path).returncode == 2
