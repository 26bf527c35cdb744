"""`toolspeak keys`."""

from __future__ import annotations

import tomllib
from pathlib import Path

from command import toolspeak

from toolspeak.gateway.keys import digest


def test_a_new_key_is_shown_once_and_its_table_holds_the_digest(tmp_path: Path):
    done = toolspeak("keys", "new", "alice@example.org", cwd=tmp_path)
    assert done.returncode == 0
    (row,) = tomllib.loads(done.stdout.decode())["key"]
    key = done.stderr.decode().split()[-1]
    assert row == {"name": "alice@example.org", "sha256": digest(key)}
    assert key not in done.stdout.decode()
    assert len(key) > 48
    assert toolspeak("keys", "new", "alice@example.org", cwd=tmp_path).stderr != done.stderr


def test_a_name_that_cannot_be(tmp_path: Path):
    done = toolspeak("keys", "new", 'a"b', cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert "NAME: write 1 to 64 letters" in done.stderr.decode()
