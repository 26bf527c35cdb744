"""Changes as a patch, applied by git and by patch."""

from __future__ import annotations

import asyncio
import shutil
import subprocess

import pytest
from changing_runs import change, shell, tree_of

from toolspeak.changes.git_patch import patch_of, path_patches
from toolspeak.changes.run_changes import net_changes, store_of
from toolspeak.journal import SqliteJournal

COMMANDS = {
    "text": "printf 'one\\ntwo\\nthree\\n' > text; rm gone; printf 'no end' > new",
    "crlf": "printf 'one\\r\\nTWO\\r\\n' > text; printf '\\377\\376 latin\\n' > latin",
    "empty": ": > text; : > empty",
    "modes": "chmod +x text; printf '#!/bin/sh\\n' > tool; chmod 755 tool",
    "names": 'mkdir "a b"; printf x > "a b/c d"; printf y > "tab\\there"; printf z > "ü"; printf q > \'quo"te\\\'; '
    "printf n > \"$(printf 'new\\nline')\"; printf i > \"$(printf 'bad\\377')\"",
    "deep": "mkdir -p x/y/z; printf 1 > x/y/z/1; rm -r d",
    "long": "seq 1 5000 > text; seq 2 2 9000 > long",
}
LINKS = "ln -s text link; rm gone; ln -s elsewhere gone"


def run_command(tmp_path, command):
    work, before = tmp_path / "work", tmp_path / "before"
    (work / "d").mkdir(parents=True)
    (work / "text").write_text("one\n2\n")
    (work / "gone").write_text("here\n")
    (work / "d" / "e").write_bytes(b"\xff\n")
    shutil.copytree(work, before, symlinks=True)
    state = asyncio.run(change(work, tmp_path / "runs.db", shell(command)))
    return work, before, state.run_id


def parts_of_run(tmp_path, run_id, **options):
    store = store_of(SqliteJournal(tmp_path / "runs.db"))
    try:
        return list(path_patches(net_changes(store.of_roots([run_id])), store.content, **options))
    finally:
        store.close()


def apply_patch(patch, folder, *command):
    result = subprocess.run(command, input=patch, cwd=folder, capture_output=True, check=False)
    assert result.returncode == 0, (result.stdout, result.stderr, patch.decode(errors="replace"))


@pytest.mark.parametrize("name", [*COMMANDS, "links"])
@pytest.mark.parametrize("program", ["git", "patch"])
def test_a_patch_makes_the_same_files(tmp_path, name, program):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    work, before, run_id = run_command(tmp_path, COMMANDS.get(name, LINKS))
    patch = patch_of(parts_of_run(tmp_path, run_id))
    command = ["git", "apply", "-p1"] if program == "git" else ["patch", "-p1", "--quiet", "--no-backup-if-mismatch"]
    apply_patch(patch, before, *command)
    assert files(before) == files(work)


def files(folder):
    return {path: (mode & 0o111, what) for path, (mode, what) in tree_of(folder).items() if what != "folder"}


def test_binary_files_are_named_and_written_on_request(tmp_path):
    work, before, run_id = run_command(tmp_path, "printf 'a\\0b' > text; head -c 300 /dev/zero > zeros; mkdir hollow")
    parts = parts_of_run(tmp_path, run_id)
    patch = patch_of(parts)
    assert patch == b"# created, folder: hollow\n# changed, binary: text\n# created, binary: zeros\n"
    patch = patch_of(parts_of_run(tmp_path, run_id, binary=True))
    assert b"# created, folder: hollow\n" in patch
    apply_patch(patch, before, "git", "apply")
    assert files(before) == files(work)
    apply_patch(patch, before, "git", "apply", "--reverse")
    assert (before / "text").read_text() == "one\n2\n"


def test_the_name_of_a_file_cannot_write_to_the_terminal(tmp_path):
    _, _, run_id = run_command(tmp_path, 'printf "a\\0" > "$(printf \'esc\\033[31m\')"')
    patch = patch_of(parts_of_run(tmp_path, run_id))
    assert b"\x1b" not in patch
    assert b"esc\\x1b[31m" in patch


def test_lines_are_counted(tmp_path):
    _, _, run_id = run_command(tmp_path, COMMANDS["text"])
    counts = {part.path: (part.kind, part.lines_added, part.lines_removed) for part in parts_of_run(tmp_path, run_id)}
    assert counts == {"text": ("changed", 2, 1), "gone": ("deleted", 0, 1), "new": ("created", 1, 0)}
