"""The gateway in the image of contrib/Containerfile. `make test-container` builds it (see build_image.sh)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from server_process import free_port

FOLDER = Path(os.environ["IMAGE_FOLDER"]).resolve()
BUILDAH = [
    *("buildah", "--storage-driver", "vfs"),
    *("--root", str(FOLDER / "storage"), "--runroot", str(FOLDER / "run")),
]
IMAGE = "localhost/toolspeak-gateway"
KEY = "a-key-of-this-test-alone"


def buildah(*arguments: str) -> str:
    return subprocess.run([*BUILDAH, *arguments], check=True, capture_output=True, text=True).stdout.strip()


class Upstream(BaseHTTPRequestHandler):
    """A model server whose model calls `look` in Hermes' format."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        text = '<tool_call>\n{"name": "look", "arguments": {"place": "Rome"}}\n</tool_call>'
        message = {"role": "assistant", "content": text}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        body = json.dumps({"id": "1", "object": "chat.completion", "choices": choices}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        """Prints nothing."""


@pytest.fixture
def upstream() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def container() -> Iterator[str]:
    name = buildah("from", IMAGE)
    yield name
    buildah("rm", name)


def ask(url: str, body: object = None, key: str = "") -> tuple[int, Any]:
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, json.loads(response.read() or "null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_the_image_runs_the_gateway_as_nobody(container: str, upstream: str, tmp_path: Path):
    image = json.loads(buildah("inspect", "--type", "image", IMAGE))["OCIv1"]["config"]
    assert buildah("run", "--isolation", "chroot", container, "--", "id", "-u") == "65534"
    settings = tmp_path / "settings"
    settings.mkdir(mode=0o755)
    config = f'[[model]]\nname = "m"\ndialect = "hermes"\nupstream = "{upstream}"\n'
    (settings / "gateway.toml").write_text(config, "utf-8")
    port = free_port()
    entry = [*image["Entrypoint"], *image["Cmd"]]
    entry[entry.index("8665")] = str(port)  # a chroot has the network of this machine, where 8665 may be taken
    command = ["run", "--isolation", "chroot", "--env", f"TOOLSPEAK_API_KEYS={KEY}"]
    command += ["--volume", f"{settings}:/etc/toolspeak:ro", container, "--", *entry]
    with subprocess.Popen([*BUILDAH, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        try:
            assert running.stdout is not None
            lines: list[str] = []
            while f":{port}" not in "".join(lines):
                line = running.stdout.readline()
                assert line, f"the gateway has ended: {''.join(lines)}"
                lines.append(line)
            base = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + 30
            while True:  # the address is printed before the port is open
                try:
                    assert ask(f"{base}/healthz")[0] == 200
                    break
                except (urllib.error.URLError, ConnectionError):
                    assert time.monotonic() < deadline
            parameters = {"type": "object", "properties": {"place": {"type": "string"}}}
            tools = [{"type": "function", "function": {"name": "look", "parameters": parameters}}]
            body = {"model": "m", "messages": [{"role": "user", "content": "Look."}], "tools": tools}
            assert ask(f"{base}/v1/chat/completions", body)[0] == 401
            status, answer = ask(f"{base}/v1/chat/completions", body, key=KEY)
            assert status == 200, answer
            (call,) = answer["choices"][0]["message"]["tool_calls"]
            assert call["function"]["name"] == "look"
            assert json.loads(call["function"]["arguments"]) == {"place": "Rome"}
        finally:
            # buildah hands no signal on: its command is in a session of its own.
            gateway = subprocess.run(
                ["pgrep", "-f", f"toolspeak serve .*--port {port} "], capture_output=True, text=True, check=False
            )
            for pid in gateway.stdout.split():
                if Path(f"/proc/{pid}/root").resolve() != Path("/"):
                    os.kill(int(pid), signal.SIGTERM)
            rest = running.stdout.read() if running.stdout is not None else ""
            running.wait(30)
    assert "Traceback" not in rest, rest
