"""The configuration of the user and of the project: what counts, and where it comes from."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from configured_folder import ConfiguredFolder
from hypothesis import given
from hypothesis import strategies as st

from toolspeak.data.messages import Message, ToolCall
from toolspeak.data.values import evolve
from toolspeak.dialects import get_dialect
from toolspeak.errors import ConfigurationError
from toolspeak.project.configuration.config import read_config
from toolspeak.project.configuration.config_table import ConfigTable
from toolspeak.project.configuration.configured_setup import configured_setup
from toolspeak.project.run_setup import Setup

USER = """\
model = "slow"   # a comment, [not a table]
instructions = \"\"\"
I am
[the user]
\"\"\"

[aliases]
slow = "ollama:big"
fast = "ollama:small"

[limits]
steps = 7
"""

PROJECT = """\
model = "fast"
window = 9000
instructions = "Be brief."
env = ["SHOP_TOKEN"]

[aliases]
fast = "ollama:tiny"
"""


@pytest.fixture
def folder(tmp_path):
    return ConfiguredFolder(tmp_path)


def test_the_later_source_counts_and_each_value_names_its_line(folder):
    folder.user(USER)
    folder.project(PROJECT, trusted=True)
    values = folder.values()
    assert (values["model"], values["window"], values["approve"]) == ("fast", 9000, "ask")
    assert values["instructions"] == "I am\n[the user]\n\nBe brief."
    assert (values["aliases.fast"], values["aliases.slow"]) == ("ollama:tiny", "ollama:big")
    assert (values["limits.steps"], values["env"]) == (7, ["SHOP_TOKEN"])
    user, project = ".config/toolspeak/config.toml", "code/shop/.toolspeak/config.toml"
    assert folder.places("model") == [f"{project}:1", f"{user}:1"]
    assert folder.places("aliases.fast") == [f"{project}:7", f"{user}:9"]
    assert folder.places("limits.steps") == [f"{user}:12"]
    assert folder.places("instructions") == [f"{project}:3", f"{user}:2"]
    assert folder.places("approve") == ["default"]
    assert folder.places("model", TOOLSPEAK_MODEL="openai:x") == ["TOOLSPEAK_MODEL", f"{project}:1", f"{user}:1"]


def test_a_person_reads_what_a_value_overrides(folder):
    folder.user(USER)
    folder.project(PROJECT, trusted=True)
    text = folder.toolspeak("config").stdout
    assert 'model = "fast"  (= ollama:tiny)  # ' in text
    assert '    overrides "slow"  # ' in text
    assert "limits.steps = 7  # " in text


@pytest.mark.over_a_second
def test_the_configuration_decides_a_run_and_the_command_line_comes_first(folder):
    fast, slow = folder.plays("fast", "I am fast."), folder.plays("slow", "I am slow.")
    folder.user(f'model = "fast"\n[aliases]\nfast = "{fast}"\nslow = "{slow}"\n')
    assert folder.toolspeak("run", "a task").stdout == "I am fast.\n"
    assert folder.toolspeak("run", "a task", "--model", "slow").stdout == "I am slow.\n"
    assert folder.toolspeak("run", "a task", TOOLSPEAK_MODEL="slow").stdout == "I am slow.\n"
    folder.project('model = "slow"', trusted=True)
    assert folder.toolspeak("run", "a task").stdout == "I am slow.\n"
    below = folder.work / "src" / "deep"
    below.mkdir(parents=True)
    assert folder.toolspeak("run", "a task", cwd=below).stdout == "I am slow.\n"
    assert folder.toolspeak("run", "a task", cwd=folder.home).stdout == "I am fast.\n"


def test_another_file_of_the_user_by_its_variable(folder):
    folder.user('model = "ollama:usual"')
    other = folder.home / "other.toml"
    other.write_text('model = "ollama:other"', encoding="utf-8")
    assert folder.values(TOOLSPEAK_CONFIG=str(other))["model"] == "ollama:other"
    process = folder.toolspeak("config", TOOLSPEAK_CONFIG=str(folder.home / "missing.toml"))
    assert process.returncode == 2
    assert "TOOLSPEAK_CONFIG: there is no file" in process.stderr


def test_the_model_reads_the_instructions_and_the_limit_ends_the_run(folder):
    call = get_dialect("cogency-json").render([Message("assistant", (ToolCall("", "list", {}),))])[0].text
    model = folder.plays("loop", call, "{{find:like a p\\w+}}", "The end.")
    folder.user(f'model = "{model}"\ninstructions = "Speak like a pirate."\n[limits]\nsteps = 1\n')
    records = [json.loads(line) for line in folder.toolspeak("run", "a task", "--json").stdout.splitlines()]
    assert records[0]["event"]["limits"]["steps"] == 1
    assert (records[-1]["event"]["reason"], records[-1]["event"]["answer"]) == ("steps", "like a pirate")
    more = folder.toolspeak("run", "a task", "--json", "--max-steps", "5").stdout.splitlines()
    assert json.loads(more[0])["event"]["limits"]["steps"] == 5


def test_a_run_goes_on_from_another_folder_and_after_the_file_has_changed(folder):
    call = get_dialect("cogency-json").render(
        [Message("assistant", (ToolCall("", "write", {"path": "a", "content": "b"}),))]
    )
    model = folder.plays("writer", call[0].text, "Written.")
    folder.project(f'model = "writer"\ninstructions = "Be brief."\n[aliases]\nwriter = "{model}"\n', trusted=True)
    assert folder.toolspeak("run", "write a").returncode == 3
    folder.project("this is not TOML")
    process = folder.toolspeak("resume", "--approve", "all", cwd=folder.home)
    assert (process.returncode, process.stdout) == (0, "Written.\n"), process.stderr
    assert (folder.work / "a").read_text() == "b"


MISTAKES = [
    ('model = "x"\nmodle = "y"\n', "config.toml:2: modle: unknown key 'modle'. Did you mean 'model'?"),
    ("[limits]\n\nstpes = 3\n", "config.toml:3: limits.stpes: unknown key 'stpes'. Did you mean 'steps'?"),
    ("[limits]\nsteps = 0\n", "config.toml:2: limits.steps: expected a number above 0, found 0"),
    ("[limits]\nsteps = 1.5\n", "config.toml:2: limits.steps: expected a whole number, found 1.5"),
    ("[limits]\nseconds = inf\n", "config.toml:2: limits.seconds: inf is neither text, a finite number"),
    ("window = '9000'\n", "config.toml:1: window: expected `int | null`, got `str`"),
    ("\n\napprove = 'always'\n", "config.toml:3: approve: invalid enum value 'always'"),
    ("dialect = 'hermez'\n", "config.toml:1: dialect: There is no dialect 'hermez'. Did you mean 'hermes'"),
    ("model = ''\n", "config.toml:1: model: it is empty"),
    ("[aliases]\na = 'b'\nb = 'a'\n", "config.toml:2: aliases.a: the alias leads back to itself"),
    ("model = 'x\n", "config.toml:1: not TOML: "),
    ("model = 'x'\n= 3\n", "config.toml:2: not TOML: "),
    ("a = " + "[" * 20_000, "nested too deep"),
    ("window = " + "9" * 5_000, "config.toml:1: not TOML: "),
    ("model = 1979-05-27\n", "config.toml:1: model: 1979-05-27 is neither text"),
    ('model = "a\\u001b[31mb"\n', "config.toml:1: model: the text holds the control character '\\x1b'"),
    ('["a\\u001b"]\n', "config.toml:1: a\\x1b: a key holds a control character"),
    ("[prices]\n'a:b' = { input = 1 }\n", "config.toml:2: a:b.output: missing"),
    ("[providers.lab]\nbase_url = 'http://x'\n", "config.toml:1: providers.lab: 'api' is missing; write one of"),
    ("[providers.lab]\napi = 'opnai'\n", "config.toml:2: providers.lab.api: there is no API 'opnai'. Did you mean"),
    ("[providers.a]\napi = 'openai'\nbase = 'x'\n", "providers.a.base: unknown key 'base'. Did you mean 'base_url"),
    ("[providers.a]\napi = 'openai'\nbase_url = 'x.example'\n", "config.toml:3: providers.a.base_url: expected an a"),
    ("[providers.'a:b']\napi = 'openai'\n", "a provider's name has letters"),
    ("providers = 3\n", "config.toml:1: providers: expected tables [providers.NAME]"),
    ("env = ['A B']\n", "config.toml:1: env: expected the name of an environment variable"),
    ("instructions = { path = 'x' }\n", "config.toml:1: instructions: write the text, or { file = 'PATH' }"),
    ("[theme]\ngreen = 'bleu cheese'\n", "config.toml:2: theme.green: unable to parse 'bleu' as color"),
    ("instructions = { file = 'missing.md' }\n", "config.toml:1: instructions.file: there is no file"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "problem"), MISTAKES, ids=[problem[:50] for _, problem in MISTAKES])
def test_a_mistake_names_its_line_and_the_remedy(folder, text, problem):
    folder.user(text)
    process = folder.toolspeak("config")
    assert (process.returncode, process.stdout) == (2, "")
    assert problem in process.stderr
    assert "\x1b" not in process.stderr


KEYS = [
    ("key_env = 'sk-proj-abcdefghijklmnop'", "key_env: this looks like a key"),
    ("key_env = 'sk_live_abcdefghijklmnop'", "key_env: this looks like a key"),
    ("key_env = 'aB3dE5gH7jK9mN1pQ3sT5v'", "key_env: this looks like a key"),
    ("key_env = 'my key'", "key_env: expected the name of an environment variable"),
    ("base_url = 'https://me:hunter2@lab.example/v1'", "base_url: it holds a user name or a password"),
    ("base_url = 'https://lab.example/v1?key=sk-abcdefghijk'", "base_url: it looks like it holds a key"),
    ("headers = { Authorization = 'Basic c2VjcmV0' }", "headers.Authorization: a secret belongs in an environment"),
    ("headers = { X-Trace = 'Bearer abcdefghijk' }", "headers.X-Trace: it looks like it holds a key"),
    ("headers = { Host = 'evil.example' }", "headers.Host: no header of this name can be set"),
]


@pytest.mark.parametrize(("line", "problem"), KEYS, ids=[line for line, _ in KEYS])
def test_a_key_in_the_file_is_refused_and_not_repeated(folder, line, problem):
    folder.user(f"[providers.lab]\napi = 'openai'\n{line}\n")
    process = folder.toolspeak("config")
    assert process.returncode == 2
    assert f"config.toml:3: providers.lab.{problem}" in process.stderr
    for secret in ("hunter2", "abcdefghij", "aB3dE5", "c2VjcmV0"):
        assert secret not in process.stderr


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("[mcp.db.env]\nKEY = 'sk-abcdefghijklmnop'", "mcp.db.env.KEY: it looks like it holds a key"),
        ("[mcp.web]\nurl = 'https://x'\nheaders = { Authorization = 'abc' }", "headers.Authorization: write ${NAME}"),
    ],
)  # fmt: skip
def test_a_key_in_a_server_of_the_file_is_refused(folder, table, problem):
    folder.user(table)
    process = folder.toolspeak("config")
    assert process.returncode == 2
    assert problem in process.stderr
    assert "abcdefghijkl" not in process.stderr


def test_no_home_and_no_configuration_at_all(folder):
    model = folder.plays("plain", "Hello.")
    assert folder.toolspeak("run", "a task", "--model", model).stdout == "Hello.\n"
    folder.env.pop("HOME")
    process = folder.toolspeak("run", "a task", "--model", model)
    assert (process.returncode, process.stdout) == (0, "Hello.\n"), process.stderr


def test_the_theme_colours_the_terminal(folder):
    write = ToolCall("", "write", {"path": "a", "content": "b"})
    call = get_dialect("cogency-json").render([Message("assistant", (write,))])
    folder.user(f'model = "{folder.plays("writer", call[0].text, "Written.")}"\n[theme]\ngreen = "bright_blue"\n')
    code, screen = folder.at_terminal("run", "write a", "--approve", "all").finish()
    assert code == 0
    assert "\x1b[94m" in screen
    assert "\x1b[32m" not in screen


def test_the_examples_of_the_guide_are_valid(folder):
    page = (Path(__file__).parents[2] / "docs" / "guides" / "configure.md").read_text(encoding="utf-8")
    examples = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        folder.user(example)
        folder.values()
    folder.user(examples[0])
    assert 'model = "fast"  (= ollama:qwen3:8b)  # ' in folder.toolspeak("config").stdout


@pytest.mark.over_a_second
def test_configured_servers_bring_tools_and_one_that_fails_is_left_out(folder):
    call = get_dialect("cogency-json").render(
        [Message("assistant", (ToolCall("", "good__echo", {"text": "five pears"}),))]
    )
    server = Path(__file__).parents[1] / "mcp" / "mcp_server.py"
    model = folder.plays("m", call[0].text, "It was {{find:five p\\w+}}.")
    folder.project(
        f'model = "{model}"\napprove = "all"\n[mcp.good]\ncommand = "{sys.executable}"\nargs = ["{server}", "."]\n'
        '[mcp.gone]\ncommand = "no-such-program"\n',
        trusted=True,
    )
    process = folder.toolspeak("run", "say it")
    assert process.returncode == 0, process.stderr
    assert "no-such-program" in process.stderr
    assert "the run goes on without its tools" in process.stderr
    assert process.stdout == "It was five pears.\n"


WORDS = st.sampled_from(
    ["api", "args", "base_url", "command", "env", "file", "headers", "hooks", "input", "url", "a", "b"]
)
VALUES = st.recursive(
    st.one_of(st.booleans(), st.integers(-2, 99), st.floats(-1, 2), st.sampled_from(["", "x", "http://x.example"])),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
KEYS = [each.name for each in fields(ConfigTable)]


def as_toml(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{name} = {as_toml(each)}" for name, each in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(as_toml, value)) + "]"
        case float():
            return f"{value:.3f}"
        case _:
            return json.dumps(value)


@given(st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=3))
def test_values_of_any_shape_are_read_or_an_error_names_the_place(tmp_path_factory, table):
    path = tmp_path_factory.getbasetemp() / "any_shape.toml"
    path.write_text("".join(f"{key} = {as_toml(value)}\n" for key, value in table.items()), encoding="utf-8")
    problem, setup = "", None
    try:
        setup = configured_setup(read_config(str(path.parent), environ={"TOOLSPEAK_CONFIG": str(path)}), ".")
    except ConfigurationError as error:
        problem = str(error)
    assert problem == "" or problem.startswith(f"{path}:")
    if setup is not None:
        recorded_json = json.loads(json.dumps(setup.as_json()))
        assert Setup.of("run", recorded_json) == evolve(setup, workspace=str(Path.cwd()))


def test_the_model_that_was_chosen_in_a_conversation_is_shown_where_none_is_configured(tmp_path):
    folder = ConfiguredFolder(tmp_path)
    models = folder.home / ".local" / "share" / "toolspeak" / "models.json"
    models.parent.mkdir(parents=True)
    models.write_text(json.dumps({str(folder.work): "openai:chosen", "/elsewhere": "openai:other"}))
    line = f'    "openai:chosen" in conversations, as chosen with /model  # {models}\n'
    assert line in folder.toolspeak("config").stdout
    folder.user('model = "openai:configured"\n')
    assert "openai:chosen" not in folder.toolspeak("config").stdout
