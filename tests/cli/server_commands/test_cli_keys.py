"""`toolspeak keys`."""

from __future__ import annotations

import tomllib
from pathlib import Path

from command import toolspeak

from toolspeak.gateway.settings.api_keys import digest


def test_a_new_key_is_shown_once_and_its_table_holds_the_digest(tmp_path: Path):
    process = toolspeak("keys", "new", "alice@example.org", cwd=tmp_path)
    assert process.returncode == 0
    (row,) = tomllib.loads(process.stdout.decode())["key"]
    key = process.stderr.decode().split()[-1]
    assert row == {"name": "alice@example.org", "sha256": digest(key)}
    assert key not in process.stdout.decode()
    assert len(key) > 48
    assert toolspeak("keys", "new", "alice@example.org", cwd=tmp_path).stderr != process.stderr


def test_a_name_that_cannot_be(tmp_path: Path):
    process = toolspeak("keys", "new", 'a"b', cwd=tmp_path)
    assert (process.returncode, process.stdout) == (2, b"")
    assert "NAME: write 1 to 64 letters" in process.stderr.decode()


def test_a_new_key_with_limits_and_one_for_a_replacement(tmp_path: Path):
    limits = ("--requests-per-minute", "60", "--streams", "4", "--tokens-per-day", "1000")
    process = toolspeak("keys", "new", "bob", "--models", "coder", "--models", "qwen*", *limits, cwd=tmp_path)
    (row,) = tomllib.loads(process.stdout.decode())["key"]
    del row["sha256"]
    written_limits = {"models": ["coder", "qwen*"], "requests_per_minute": 60, "streams": 4, "tokens_per_day": 1000}
    assert row == {"name": "bob", **written_limits}
    process = toolspeak("keys", "new", "bob", "--digest-only", cwd=tmp_path)
    assert process.stdout.decode().strip() == digest(process.stderr.decode().split()[-1])
