"""`toolspeak serve --ui` and two model servers, each in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

import httpx2

from toolspeak.gateway.settings.api_keys import digest

PATIENCE = 600
"""Seconds after which something hangs. A busy machine takes long for what takes a moment elsewhere."""

HERE = Path(__file__).parent
KEY, SECOND_KEY = "k" * 24, "m" * 24
CONFIG = """
[server]
port = 0
workers = {workers}

[[model]]
name = ["fast", {nasty}]
upstreams = ["http://127.0.0.1:{first}/v1", "http://127.0.0.1:{second}/v1"]
dialect = "hermes"

[[key]]
name = "alice"
sha256 = "{alice}"
requests_per_minute = 14
streams = 3
tokens_per_day = 100000

[[key]]
name = "bob"
sha256 = "{bob}"
models = ["fast"]

[usage]
store = "usage.db"
"""
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


class ModelServer:
    """A model server in a process of its own."""

    def __init__(self) -> None:
        command = [sys.executable, str(HERE / "model_server.py")]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    @cached_property
    def port(self) -> int:
        """Its port. Servers that are started one after the other come up together: none waits for this."""
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class ServedGateway:
    """`toolspeak serve --ui`. `log` has the lines of its standard error."""

    def __init__(self, config: Path, *options: str) -> None:
        environ = {**os.environ, "HOME": str(config.parent), "XDG_DATA_HOME": str(config.parent / "data")}
        command = [sys.executable, "-m", "toolspeak", "serve", "--config", str(config), "--ui", "--ui-port", "0"]
        self.process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, env=environ)
        self.log: list[str] = []
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = self.wait_for_line(r"toolspeak serves at (http://\S+)")
        self.view = self.wait_for_line(r"toolspeak: open (http://\S+)")
        self.base = self.view.partition("/#")[0]

    def wait_for_line(self, pattern: str) -> str:
        """What the log has in the place of the group, once it has it."""

        def match() -> str | None:
            return next((hit[1] for line in self.log if (hit := re.search(pattern, line))), None)

        with self._more:
            assert self._more.wait_for(lambda: match() or self.process.poll() is not None, PATIENCE), self.log
            text = match()
        assert text is not None, self.log
        return text

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr:
            for line in self.process.stderr:
                with self._more:
                    self.log.append(line)
                    self._more.notify_all()
        with self._more:
            self._more.notify_all()

    def ask(self, task: str, key: str = KEY, **more: object) -> httpx2.Response:
        """The answer; asked again while the store of limits does not respond, as on a machine that stands still."""
        body = {"model": "fast", "stream": True, "messages": [{"role": "user", "content": task}], **more}
        headers = {"authorization": f"Bearer {key}"}
        url = f"{self.url}/v1/chat/completions"
        for _ in range(5):
            response = httpx2.post(url, json=body, headers=headers, timeout=PATIENCE)
            if "limits_unavailable" not in response.text:
                return response
        raise AssertionError("the store of limits does not respond")

    @contextmanager
    def stream(self, task: str, key: str = KEY) -> Iterator[None]:
        """A stream that has begun, and stays open."""
        body = {"model": "fast", "stream": True, "messages": [{"role": "user", "content": task}]}
        headers = {"authorization": f"Bearer {key}"}
        url = f"{self.url}/v1/chat/completions"
        for _ in range(5):
            with httpx2.stream("POST", url, json=body, headers=headers, timeout=PATIENCE) as response:
                if response.status_code == 503 and "limits_unavailable" in response.read().decode():
                    continue
                assert response.status_code == 200
                pieces = response.iter_raw()
                next(pieces)
                yield
                pieces.close()  # not before: the connection would be closed with it
                return
        raise AssertionError("the store of limits does not respond")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)
        self._reader.join()


@contextmanager
def gateway(folder: Path, *options: str, workers: int = 1) -> Iterator[tuple[ServedGateway, list[ModelServer]]]:
    models = [ModelServer(), ModelServer()]
    config = folder / "gateway.toml"
    config.write_text(
        CONFIG.format(
            workers=workers,
            nasty="\"<img src=x onerror='window.hacked=1'>\\u202egnp\"",
            first=models[0].port,
            second=models[1].port,
            alice=digest(KEY),
            bob=digest(SECOND_KEY),
        ),
        encoding="utf-8",
    )
    server = None
    try:
        server = ServedGateway(config, *options)
        yield server, models
    finally:
        if server is not None:
            server.stop()
        for each in models:
            with suppress(ValueError):
                each.kill()
