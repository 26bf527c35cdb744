"""`toolspeak config`: its commands at a terminal, for programs and with an editor."""

from __future__ import annotations

import json
import stat
import sys

import pytest
from configured_folder import ConfiguredFolder


@pytest.fixture
def folder(tmp_path):
    return ConfiguredFolder(tmp_path)


def editor_that_writes(folder, text):
    """The command of an editor that puts a text into the file."""
    script = folder.home / "editor.py"
    script.write_text(f"import pathlib, sys\npathlib.Path(sys.argv[1]).write_text({text!r})\n")
    return f"{sys.executable} {script}"


def test_the_files_and_whether_they_count(folder):
    lines = folder.toolspeak("config", "path").stdout.splitlines()
    assert lines == [
        f"yours: {folder.user_file} (there is no such file)",
        f"the project's: {folder.project_file} (there is no such file)",
    ]
    folder.user('model = "a"')
    folder.project('model = "b"')
    lines = folder.toolspeak("config", "path").stdout.splitlines()
    assert lines == [
        f"yours: {folder.user_file} (counts)",
        f"the project's: {folder.project_file} (not trusted: `toolspeak config trust`)",
    ]
    folder.project('model = "b"', trusted=True)
    assert folder.toolspeak("config", "path").stdout.splitlines()[1].endswith("(counts)")
    folder.project("model = 3")
    assert "cannot be used: " in folder.toolspeak("config", "path").stdout
    every_value = folder.toolspeak("config")  # the error is said once
    assert "model" in every_value.stderr
    assert f"{folder.project_file} (cannot be used; see above)" in every_value.stdout


def test_trust_shows_the_content_and_asks_at_a_terminal(folder):
    folder.project('model = "b"\napprove = "all"\n')
    process = folder.toolspeak("config", "trust")
    assert process.returncode == 0
    assert 'approve = "all"' in process.stderr
    assert folder.toolspeak("config", "trust", "--revoke").stderr == "toolspeak: it is no longer trusted\n"
    assert folder.toolspeak("config", "trust", "--revoke").stderr == "toolspeak: it was not trusted\n"
    terminal = folder.at_terminal("config", "trust")
    assert "it approves calls without asking you" in terminal.read_until("(y)es, (n)o: ")
    terminal.type("n\n")
    assert terminal.finish()[0] == 1
    assert folder.values()["approve"] == "ask"
    terminal = folder.at_terminal("config", "trust")
    terminal.read_until("(y)es, (n)o: ")
    terminal.type("yes\n")
    assert terminal.finish()[0] == 0
    assert folder.values()["approve"] == "all"


def test_trust_without_a_file(folder):
    process = folder.toolspeak("config", "trust")
    assert process.returncode == 2
    assert "there is no .toolspeak/config.toml in" in process.stderr


def test_edit_makes_the_users_file_and_checks_it(folder):
    editor = editor_that_writes(folder, 'model = "ollama:qwen3"\n')
    assert folder.at_terminal("config", "edit", EDITOR=editor).finish()[0] == 0
    assert folder.values()["model"] == "ollama:qwen3"
    assert stat.S_IMODE(folder.user_file.parent.stat().st_mode) == 0o700
    editor = editor_that_writes(folder, 'modle = "ollama:qwen3"\n')
    code, screen = folder.at_terminal("config", "edit", EDITOR=editor).finish()
    assert code == 2
    assert "Did you mean 'model'?" in screen
    assert folder.user_file.read_text() == 'modle = "ollama:qwen3"\n'


def test_a_new_file_is_a_valid_configuration(folder):
    assert folder.at_terminal("config", "edit", EDITOR="true").finish()[0] == 0
    assert "[providers.lab]" in folder.user_file.read_text()
    assert folder.values()["model"] == ""
    example = "".join(line.removeprefix("# ") for line in folder.user_file.read_text().splitlines(keepends=True)[2:])
    folder.user(example)
    assert folder.values()["providers.lab"]["key_env"] == "LAB_KEY"


def test_a_project_file_that_is_trusted_stays_so_after_the_edit_of_the_user(folder):
    editor = editor_that_writes(folder, 'model = "first"\n')
    code, screen = folder.at_terminal("config", "edit", "--project", EDITOR=editor).finish()
    assert (code, "`toolspeak config trust` makes it count" in screen) == (0, True)
    assert folder.values()["model"] == ""
    folder.project('model = "first"', trusted=True)
    editor = editor_that_writes(folder, 'model = "second"\n')
    assert folder.at_terminal("config", "edit", "--project", EDITOR=editor).finish()[0] == 0
    assert folder.values()["model"] == "second"


def test_edit_without_a_terminal_names_the_file(folder):
    process = folder.toolspeak("config", "edit", EDITOR="true")
    assert process.returncode == 2
    assert str(folder.user_file) in process.stderr
    assert not folder.user_file.exists()
    process = folder.toolspeak("config", "edit", "--project", EDITOR="true")
    assert process.returncode == 2
    assert str(folder.project_file) in process.stderr


def test_text_of_a_file_cannot_control_the_terminal(folder):
    folder.user("[aliases]\nx = 'ollama:\u202eevil'\n")
    process = folder.toolspeak("config")
    assert process.returncode == 0
    assert "\u202e" not in process.stdout
    assert "\\u202e" in process.stdout
    assert "\u202e" in json.dumps(folder.values(), ensure_ascii=False)
