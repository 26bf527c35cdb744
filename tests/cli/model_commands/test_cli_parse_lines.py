"""`toolspeak parse --jsonl`: many replies, a line each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command import toolspeak

from toolspeak.data.messages import MalformedCall, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import get_dialect, read_turn, section_of_reply

SAMPLES = Path(__file__).parents[2] / "samples"
REPLY = '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'


def answers(rows, cwd, *arguments, code=0) -> list[dict]:
    """The answers to rows: values, or lines as they are."""
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    process = toolspeak("parse", "--jsonl", *arguments, reply=b"\n".join(lines), cwd=cwd)
    assert (process.returncode, process.stderr) == (code, b"")
    return [json.loads(line) for line in process.stdout.splitlines()]


@pytest.mark.over_a_second
def test_every_sample_is_read_as_by_read_turn_whole_and_in_chunks(tmp_path):
    files = [file for file in sorted(SAMPLES.glob("*.jsonl")) if file.stem != "render-templates"]
    rows = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    whole = answers(rows, tmp_path)
    assert answers([{**row, "chunk": 4} for row in rows], tmp_path) == whole
    for row, answer in zip(rows, whole, strict=True):
        dialect = get_dialect(row["dialect"])
        tools = [(tool.get("function", tool)) for tool in row["tools"]]
        specs = [ToolSpec(tool["name"], "", tool.get("parameters") or {"type": "object"}) for tool in tools]
        finish = "length" if row.get("partial") else "stop"
        starts_in = row.get("starts_in")
        if starts_in is None and not row.get("prompt_tail"):
            starts_in = section_of_reply(dialect, row["input"], specs)
        turn = read_turn(dialect, row["input"], specs, finish=finish, starts_in=starts_in or "text")
        assert (answer["id"], answer["dialect"]) == (row["id"], dialect.name)
        assert (answer["content"], answer["reasoning"]) == (turn.text, turn.reasoning)
        assert answer["calls"] == [
            {"name": call.name, "arguments": call.arguments, "id": call.provider_id or call.id}
            | ({"notes": list(call.notes)} if call.notes else {})
            for call in turn.calls
            if isinstance(call, ToolCall)
        ]
        raw_calls = [call.raw for call in turn.calls if isinstance(call, MalformedCall)]
        assert [call["raw"] for call in answer["malformed"]] == raw_calls


@pytest.mark.parametrize("name", ["kimi_k2", "Kimi-K2", "DEEPSEEK_V3.2", "qwen3_reasoning"])
def test_names_may_be_spelled_in_several_ways(name, tmp_path):
    (answer,) = answers([{"id": 1, "dialect": name, "input": "hi"}], tmp_path)
    assert (answer["content"], answer["dialect"]) == ("hi", get_dialect(name).name)


def test_a_line_may_leave_its_dialect_open_or_say_its_model(tmp_path):
    qwen = "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"
    rows = [
        {"input": REPLY, "dialect": "auto"},
        {"input": qwen, "dialect": "auto"},
        {"input": qwen, "model": "Qwen/Qwen3-8B"},
        {"input": "Hi", "model": "Qwen/Qwen3-8B"},
        {"input": "Hi", "dialect": "auto"},
        {"input": "Hi"},
    ]
    results = answers(rows, tmp_path, "--dialect", "kimi-k2")
    assert [answer["dialect"] for answer in results] == [
        "hermes",
        "qwen3-coder",
        "qwen3-coder",
        "hermes",
        "auto",
        "kimi-k2",
    ]
    assert [len(answer["calls"]) for answer in results] == [1, 1, 1, 0, 0, 0]
    (answer,) = answers([rows[5]], tmp_path, "--model", "Qwen/Qwen3-8B")
    assert answer["dialect"] == "hermes"


def test_tools_in_every_form_and_the_options_for_what_a_line_leaves_open(tmp_path):
    text = "<tool_call><function=f><parameter=x>5</parameter></function></tool_call>"
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    forms = [
        [{"name": "f", "parameters": schema}],
        [{"type": "function", "function": {"name": "f", "description": None, "parameters": schema}}],
        [{"name": "f", "parameters": None}],
        [{"type": "function", "function": {"name": "f"}}],
        [],
        None,
    ]
    (tmp_path / "tools.json").write_text(json.dumps(forms[0]), "utf-8-sig")
    rows = [{"input": text, "tools": form} for form in forms]
    results = answers(rows, tmp_path, "--dialect", "qwen3-coder", "--tools", "tools.json")
    assert [answer["calls"][0]["arguments"]["x"] for answer in results] == [5, 5, "5", "5", "5", 5]


@pytest.mark.parametrize(
    ("dialect", "tail", "text", "reasoning", "content"),
    [
        ("hermes", "<|im_start|>assistant\n<think>\n", "deep</think>Hi", "deep", "Hi"),
        ("hermes", "<|im_start|>assistant\n<think>\n\n</think>\n\n", "Hi", "", "Hi"),
        ("harmony", "<|start|>assistant", "<|channel|>analysis<|message|>a<|end|>", "a", ""),
        ("harmony", "<|start|>assistant<|channel|>analysis<|message|>", "a<|end|>", "a", ""),
        ("kimi_k3", "<|open|>think<|sep|>", "a", "a", ""),
        ("functionary_v32", "<|end_header_id|>\n\n>>>", "all\nHi", "", "Hi"),
    ],
)
def test_a_turn_starts_where_the_prompt_ended(dialect, tail, text, reasoning, content, tmp_path):
    (answer,) = answers([{"dialect": dialect, "input": text, "prompt_tail": tail, "chunk": 1}], tmp_path)
    assert (answer["reasoning"], answer["content"], answer["calls"]) == (reasoning, content, [])


@pytest.mark.parametrize("chunk", [None, 1])
def test_an_end_of_reasoning_that_nothing_opened_ends_it_wherever_the_reply_began(chunk, tmp_path):
    row = {"dialect": "hermes", "input": "deep</think>Hi", "chunk": chunk}
    settings = [{}, {"starts_in": "text"}, {"prompt_tail": "<think>\n\n</think>\n"}, {"reasoning_off": True}]
    pairs = [(each["reasoning"], each["content"]) for each in answers([{**row, **more} for more in settings], tmp_path)]
    assert pairs == [*[("deep", "Hi")] * 3, ("", "deep</think>Hi")]


@pytest.mark.parametrize(
    ("dialect", "tail", "text"),
    [
        ("hermes", 'assistant\n<tool_call>\n{"name": "f", "arguments": ', '{"x": 1}}\n</tool_call>'),
        ("harmony", "<|start|>assistant<|channel|>commentary to=functions.f<|message|>", '{"x": 1}<|call|>'),
        ("mistral-v11", "[TOOL_CALLS]f", '{"x": 1}'),
        ("qwen3-coder", "<tool_call>\n<function=f>\n", "<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"),
    ],
)
@pytest.mark.parametrize("chunk", [None, 1])
def test_a_call_that_the_prompt_began_goes_on(dialect, tail, text, chunk, tmp_path):
    tools = [{"name": "f", "parameters": {"properties": {"x": {"type": "integer"}}}}]
    row = {"dialect": dialect, "input": text, "prompt_tail": tail, "tools": tools, "chunk": chunk}
    (answer,) = answers([row], tmp_path)
    assert answer["content"] == ""
    assert [(call["name"], call["arguments"]) for call in answer["calls"]] == [("f", {"x": 1})]


@pytest.mark.parametrize(
    ("dialect", "start", "thought"),
    [
        ("hermes", "text", "<think>a <b> `c`\n</think>\n"),
        ("hermes", "reasoning", "a</think>\n"),
        ("hermes", "reasoning", "<think>a</think>"),
        ("gemma4", "text", "<|channel>thought\na<channel|>"),
        ("harmony", "text", "<|channel|>analysis<|message|>a<|end|>"),
        ("muse", "text", " to=self<|message|>a<|eom|>"),
        ("functionary_v32", "text", "<think>a</think>"),
    ],
)
def test_reasoning_stays_in_the_text_where_it_is_off(dialect, start, thought, tmp_path):
    row = {"dialect": dialect, "input": thought + "Hi", "starts_in": start, "reasoning_off": True}
    for answer in answers([row, {**row, "chunk": 1}], tmp_path):
        assert (answer["content"], answer["reasoning"]) == (thought + "Hi", "")


def test_a_call_inside_reasoning_that_stays_in_the_text_does_not_run(tmp_path):
    row = {"dialect": "hermes", "input": f"<think>{REPLY}</think>", "reasoning_off": True}
    (answer,) = answers([row], tmp_path)
    assert (answer["content"], answer["calls"]) == (row["input"], [])


def test_a_call_that_was_cut_off_shows_how_far_it_came(tmp_path):
    row = {
        "dialect": "kimi_k2",
        "input": "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{",
        "partial": True,
    }
    (answer,) = answers([row], tmp_path)
    (cut,) = answer["malformed"]
    assert (cut["code"], cut["name"], cut["arguments"], cut["id"]) == ("truncated", "f", "{", "functions.f:0")


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (b"{", "not JSON"),
        (b'"\xff"', "not UTF-8 at byte 2"),
        (b"[" * 100_000, "not JSON"),
        ([], "expected an object"),
        ({"id": 7}, '"input" is missing'),
        ({"id": 7, "input": 5}, '"input": expected a string, found 5'),
        ({"id": 7, "input": "", "dialect": "hermez"}, "Did you mean 'hermes'?"),
        ({"id": 7, "input": "", "model": 5}, '"model": expected a string'),
        ({"id": 7, "input": "", "model": "nobody"}, "No dialect is known for the model 'nobody'"),
        ({"id": 7, "input": "", "dialect": 5}, '"dialect": expected a string'),
        ({"id": 7, "input": "", "chunk": 0}, '"chunk": expected at least one'),
        ({"id": 7, "input": "", "chunk": True}, '"chunk": expected a number'),
        ({"id": 7, "input": "", "starts_in": "middle"}, '"starts_in": expected "text" or "reasoning"'),
        ({"id": 7, "input": "", "reasoning_off": "no"}, '"reasoning_off": expected true or false'),
        ({"id": 7, "input": "", "tools": {}}, "tools: expected a JSON array"),
        ({"id": 7, "input": "", "tools": [{"name": 5}]}, "tools[0]: expected a tool"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_line_that_cannot_be_read_says_so_and_the_others_are_read(row, error, tmp_path):
    good = {"id": "good", "input": REPLY}
    first, bad, last = answers([good, row, good], tmp_path, "--dialect", "hermes", code=1)
    assert first == last
    assert first["calls"] == [{"name": "f", "arguments": {"x": 1}, "id": "call_0"}]
    assert list(bad) == ["id", "error"]
    assert bad["id"] == (7 if isinstance(row, dict) else None)
    assert bad["error"].startswith("line 2: ")
    assert error in bad["error"]


def test_a_byte_order_mark_line_ends_empty_lines_and_lone_surrogates(tmp_path):
    lines = [b"\xef\xbb\xbf" + json.dumps({"id": 1, "input": "\ud800\0 \u2028"}).encode() + b"\r", b"", b" \r"]
    results = answers([*lines, {"id": 2, "input": ""}], tmp_path, "--dialect", "tool-call")
    assert [(answer["id"], answer["content"]) for answer in results] == [(1, "\ud800\0 \u2028"), (2, "")]


@pytest.mark.parametrize("schema", [{"enum": None}, {"anyOf": 5}, {"allOf": 5}, {"type": None}, {"$ref": 5}, 5, []])
def test_a_schema_that_is_none_types_nothing(schema, tmp_path):
    tools = [{"name": "f", "parameters": {"properties": {"x": schema}}}]
    text = "<tool_call><function=f><parameter=x>a</parameter></function></tool_call>"
    (answer,) = answers([{"dialect": "qwen3_coder", "input": text, "tools": tools}], tmp_path)
    assert answer["calls"][0]["arguments"] == {"x": "a"}


def test_each_answer_comes_before_the_next_line_is_asked():
    command = [sys.executable, "-m", "toolspeak", "parse", "--jsonl", "--dialect", "hermes"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        for number in range(2):
            process.stdin.write(json.dumps({"id": number, "input": "hi"}).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == number
        process.stdin.close()
        assert process.wait(60) == 0
