"""A project on the disk, in which a scripted model works by `toolspeak run`, as a user starts it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from terminal_harness import DEADLINE, environment

from forked_commands import completed_text


def calls(*tool_calls: tuple[str, dict[str, Any]], text: str = "") -> dict[str, Any]:
    """A turn with these calls."""
    return {"text": text, "calls": [{"name": name, "arguments": arguments} for name, arguments in tool_calls]}


@dataclass
class ScriptedRun:
    """A run that is over: what the process printed, and what the model was asked."""

    process: subprocess.CompletedProcess[str]
    requests: list[dict[str, Any]]

    @property
    def code(self) -> int:
        return self.process.returncode

    @property
    def errors(self) -> str:
        return self.process.stderr

    @property
    def system(self) -> str:
        """The system prompt of the first request."""
        return "\n".join(_texts(message) for message in self.requests[0]["messages"] if message["role"] == "system")

    @property
    def task(self) -> str:
        """The user's message of the first request."""
        return _texts(self.requests[0]["messages"][-1])

    @property
    def tools(self) -> list[str]:
        """The names of the tools that the model could call."""
        return [each["name"] for each in self.requests[0]["tools"]]

    @property
    def results(self) -> list[str]:
        """The results of all calls but those of the last turn, as the model read them."""
        messages = [message for request in self.requests for message in request["messages"]]
        parts = [part for message in messages for part in message.get("parts", ()) if part["type"] == "ToolResult"]
        return [_texts(part) for part in parts]


def _texts(value: Any) -> str:
    if "text" in value:
        return value["text"]
    parts = value.get("parts", value.get("content", ()))
    return "\n".join(part["text"] if "text" in part else json.dumps(part.get("value", part)) for part in parts)


@dataclass
class ScriptedProject:
    """A folder of a project and one of its user, both empty at first."""

    folder: Path
    home: Path

    def write(self, path: str, text: str) -> Path:
        """Writes a file of the project."""
        return _write(self.folder / path, text)

    def write_home(self, path: str, text: str) -> Path:
        """Writes a file of the user."""
        return _write(self.home / path, text)

    @property
    def environment(self) -> dict[str, str]:
        return environment(
            HOME=str(self.home),
            XDG_CONFIG_HOME=str(self.home / ".config"),
            TOOLSPEAK_JOURNAL=str(self.home / "runs.db"),
        )

    def model(self, *turns: Any, follow: bool = False) -> str:
        """The model string of a model that plays these turns."""
        book = _write(self.home / "book.json", json.dumps({"turns": [*turns], "follow": follow}))
        return f"scripted:{book}"

    def command(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Runs the command without a terminal."""
        folder = cwd or self.folder
        return completed_text(arguments, cwd=folder, env=self.environment, session=True, seconds=DEADLINE)

    def run(self, *turns: Any, options: tuple[str, ...] = (), task: str = "the task", cwd: Path | None = None):
        """Does a task with a model that plays these turns."""
        cassette = self.home / "cassette.jsonl"
        cassette.unlink(missing_ok=True)
        arguments = ("run", task, "--model", self.model(*turns), "--record", str(cassette), *options)
        process = self.command(*arguments, cwd=cwd)
        lines = cassette.read_text().splitlines() if cassette.exists() else []
        requests = [entry["asked"] for entry in map(json.loads, lines) if "asked" in entry]
        return ScriptedRun(process, requests)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
