"""`toolspeak grammar`."""

from __future__ import annotations

import json
from pathlib import Path

import click
import llguidance
import pytest
from click.testing import CliRunner, Result
from command import toolspeak
from llguidance.gbnf_to_lark import gbnf_to_lark

from toolspeak.cli.main import cli
from toolspeak.errors import ConfigurationError

TOOLS = [
    {"name": "scale", "description": "Scales.", "parameters": {"properties": {"n": {"type": "integer"}}}},
    {"type": "function", "function": {"name": "say", "parameters": {"properties": {"text": {"type": "string"}}}}},
]
SCALE, SAY = '[{"name": "scale", "arguments": {"n": 5}}]', '[{"name": "say", "arguments": {"text": "é"}}]'
TEXT = "No calls."
# choice, which of text and the two calls a model may then write
CHOICES = [
    ("auto", {TEXT, SCALE, SAY}),
    ("required", {SCALE, SAY}),
    ("none", {TEXT}),
    ("say", {SAY}),
]
BYTES = llguidance.LLTokenizer("byte")


@pytest.fixture
def tools(tmp_path: Path) -> str:
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    return str(tmp_path / "tools.json")


def grammar(tools: str, *options: str, dialect: str = "xlam", target: str = "lark") -> Result:
    arguments = ["grammar", "--dialect", dialect, "--tools", tools, "--target", target, *options]
    return CliRunner().invoke(cli, arguments, standalone_mode=False)


def accepted_texts(grammar: str, texts: set[str]) -> set[str]:
    def takes(text: str) -> bool:
        matcher = llguidance.LLMatcher(BYTES, grammar)
        assert not matcher.is_error(), matcher.get_error()
        return matcher.try_consume_tokens(list(text.encode())) == len(text.encode()) and matcher.is_accepting()

    return {text for text in texts if takes(text)}


@pytest.mark.parametrize(("choice", "expected_texts"), CHOICES)
@pytest.mark.parametrize("target", ["lark", "gbnf", "json_schema", "json-schema", "regex"])
def test_it_prints_the_grammar_of_a_choice(tools: str, target: str, choice: str, expected_texts: set[str]):
    process = grammar(tools, "--choice", choice, target=target)
    if target not in ("lark", "gbnf") and TEXT in expected_texts:
        assert "use tool choice required or a specific tool" in str(process.exception)
        return
    assert process.exception is None
    compile_target = {
        "lark": llguidance.LLMatcher.grammar_from_lark,
        "gbnf": lambda source: llguidance.LLMatcher.grammar_from_lark(gbnf_to_lark(source)),
        "json_schema": llguidance.LLMatcher.grammar_from_json_schema,
        "regex": lambda source: llguidance.LLMatcher.grammar_from_regex(source.rstrip("\n")),
    }
    assert (
        accepted_texts(compile_target[target.replace("-", "_")](process.stdout), {TEXT, SCALE, SAY}) == expected_texts
    )


def test_a_structural_tag_is_one_line_of_json(tools: str):
    tag = json.loads(grammar(tools, target="xgrammar").stdout)
    assert tag["type"] == "structural_tag"


def test_options_reach_the_grammar(tools: str, tmp_path: Path):
    call = '<tool_call>\n{"name": "say", "arguments": {"text": "a"}}\n</tool_call>'
    bare, thought, open_thought, twice = call, f"<think>So.</think>{call}", f"So.</think>{call}", f"{call}\n{call}"
    texts = {bare, thought, open_thought, twice}
    for options, expected_texts in (
        ((), {bare, thought, twice}),
        (("--no-reasoning",), {bare, twice}),
        (("--starts-in", "reasoning"), {open_thought}),
        (("--max-calls", "1"), {bare, thought}),
    ):
        printed_grammar = grammar(tools, "--choice", "required", *options, dialect="hermes").stdout
        assert accepted_texts(printed_grammar, texts) == expected_texts
    for special in ({"<tool_call>": 151657}, ["<tool_call>"]):
        (tmp_path / "special.json").write_text(json.dumps(special))
        printed_grammar = grammar(tools, "--special-tokens", str(tmp_path / "special.json"), dialect="hermes").stdout
        assert (" <[151657]> " if isinstance(special, dict) else " <tool_call> ") in printed_grammar


# what is wrong, what the message says of it and of the remedy
WRONG = [
    (["--choice", "sya"], {}, ["'sya'", "say"]),
    (["--max-calls", "0"], {}, ["x>=1"]),
    (
        ["--choice", "required"],
        {"dialect": "hermes", "target": "json_schema"},
        ["use the target xgrammar, lark, gbnf"],
    ),
    (["--choice", "required"], {"dialect": "qwen3-coder", "target": "regex"}, ["use the target xgrammar, lark, gbnf"]),
    ([], {"target": "yaml"}, ["'xgrammar', 'lark', 'gbnf', 'json_schema', 'regex'"]),
    ([], {"dialect": "hermez"}, ["hermes"]),
    (["--special-tokens", "TOOLS"], {}, ['["<tool_call>", …]']),
]


@pytest.mark.parametrize(("options", "settings", "phrases"), WRONG)
def test_what_is_wrong_is_said_with_the_remedy(
    tools: str, options: list[str], settings: dict[str, str], phrases: list[str]
):
    options = [tools if option == "TOOLS" else option for option in options]
    problem = grammar(tools, *options, **settings).exception
    assert isinstance(problem, ConfigurationError | click.UsageError)
    message = str(problem)
    assert [part for part in phrases if part not in message] == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no such file"),
        ("{", "not JSON: Expecting property name"),
        ("{}", "expected a JSON array of tools"),
        ('[{"name": 5}]', '[0]: expected a tool: {"name": …'),
        ('[{"name": "a", "parameters": 5}]', "[0].parameters: expected a JSON Schema object"),
    ],
)
def test_a_tools_file_that_is_none_is_named(tmp_path: Path, content: str | None, words: str):
    path = tmp_path / "tools.json"
    if content is not None:
        path.write_text(content)
    problem = grammar(str(path)).exception
    assert isinstance(problem, ConfigurationError)
    assert str(problem).startswith(str(path))
    assert words in str(problem)


@pytest.mark.parametrize(
    "content",
    [
        '[{"name": "f", "input_schema": SCHEMA}]',
        '[{"name": "f", "inputSchema": SCHEMA}]',
        '{"name": "f", "parameters": SCHEMA}',
        '{"model": "m", "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]}',
    ],
)
def test_tools_are_read_in_whatever_form_an_api_has_them(tmp_path: Path, content: str):
    schema = '{"type": "object", "properties": {"only_here": {"type": "integer"}}}'
    path = tmp_path / "tools.json"
    path.write_text(content.replace("SCHEMA", schema))
    assert "only_here" in grammar(str(path)).stdout


def test_errors_end_with_2(tmp_path: Path):
    process = toolspeak("grammar", "--dialect", "hermes", "--target", "lark", "--tools", "none.json", cwd=tmp_path)
    assert (process.returncode, process.stdout) == (2, b"")
    assert process.stderr.startswith(b"toolspeak: none.json: ")
