"""A home folder and a project, for tests of what is configured in them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from terminal_harness import TerminalProcess, environment

from forked_commands import completed_text


class ConfiguredFolder:
    """A user's home and a project of theirs below it; `toolspeak` runs the command in the project."""

    def __init__(self, path: Path) -> None:
        self.home = path / "home"
        self.work = self.home / "code" / "shop"
        (self.work / ".git").mkdir(parents=True)
        self.user_file = self.home / ".config" / "toolspeak" / "config.toml"
        self.project_file = self.work / ".toolspeak" / "config.toml"
        self.env = environment(HOME=str(self.home), TOOLSPEAK_JOURNAL=str(path / "toolspeak.db"))
        for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "TOOLSPEAK_CONFIG"):
            self.env.pop(name, None)

    def user(self, text: str) -> None:
        self.user_file.parent.mkdir(parents=True, exist_ok=True)
        self.user_file.write_text(text, encoding="utf-8")

    def project(self, text: str | bytes, *, trusted: bool = False) -> None:
        self.project_file.parent.mkdir(exist_ok=True)
        self.project_file.write_bytes(text if isinstance(text, bytes) else text.encode())
        if trusted:
            assert self.toolspeak("config", "trust").returncode == 0

    def plays(self, name: str, *turns: str) -> str:
        """A scripted model that plays these turns; its model string."""
        book = self.home / f"{name}.json"
        book.write_text(json.dumps({"turns": turns, "follow": True}), encoding="utf-8")
        return f"scripted:{book}"

    def toolspeak(self, *arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        return completed_text(arguments, cwd=cwd or self.work, env={**self.env, **env}, session=True)

    def at_terminal(self, *arguments: str, size: tuple[int, int] = (40, 120), **env: str) -> TerminalProcess:
        return TerminalProcess(*arguments, cwd=self.work, env={**self.env, **env}, size=size)

    def values(self, **env: str) -> dict[str, object]:
        """The configured values by key, as `config --json` prints them."""
        process = self.toolspeak("config", "--json", **env)
        assert process.returncode == 0, process.stderr
        return {row["key"]: row["value"] for row in json.loads(process.stdout)}

    def places(self, key: str, **env: str) -> list[str]:
        """Where the values of a key come from, the one that counts first; paths start from the home folder."""
        rows = json.loads(self.toolspeak("config", "--json", **env).stdout)
        (origins,) = (row["origins"] for row in rows if row["key"] == key)
        return [each["place"].removeprefix(f"{self.home}/") for each in origins]
