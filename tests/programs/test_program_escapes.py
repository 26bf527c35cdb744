"""What a program reaches without a tool: nothing. Each attempt tries to read or to write what only this process has."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from toolspeak import Agent, tool
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn

MARK = "mark-of-the-host-7731"
FOLDER_MARK = "SECRET"  # what a list of the folder has, in capitals

ATTEMPTS = {
    "open": 'print(open("{path}").read())',
    "open to write": 'open("{new}", "w").write("x")',
    "pathlib": 'from pathlib import Path\nprint(Path("{path}").read_text())',
    "pathlib to write": 'from pathlib import Path\nPath("{new}").write_text("x")',
    "pathlib walk": 'from pathlib import Path\nprint([p.read_text() for p in Path("{folder}").iterdir()])',
    "io": 'import io\nprint(io.open("{path}").read())',
    "io.FileIO": 'import io\nprint(io.FileIO("{path}").read())',
    "os.open": 'import os\nprint(os.read(os.open("{path}", 0), 100))',
    "os.listdir": 'import os\nprint("".join(name.upper() for name in os.listdir("{folder}")))',
    "os.environ": 'import os\nprint(os.environ["TOOLSPEAK_MARK"])',
    "os.getenv": 'import os\nprint(os.getenv("TOOLSPEAK_MARK"))',
    "os.system": 'import os\nos.system("cp {path} {new}")',
    "os.fork": 'import os\nif not os.fork():\n    os.system("cp {path} {new}")\n    os._exit(0)\nos.wait()',
    "subprocess": 'import subprocess\nprint(subprocess.run(["cat", "{path}"], capture_output=True).stdout)',
    "socket": 'import socket\nsocket.create_connection(("127.0.0.1", {port})).send(b"x")',
    "asyncio connection": 'import asyncio\nawait asyncio.open_connection("127.0.0.1", {port})',
    "urllib": 'import urllib.request\nurllib.request.urlopen("http://127.0.0.1:{port}/x", timeout=0.1)',
    "http": 'import http.client\nhttp.client.HTTPConnection("127.0.0.1", {port}).request("GET", "/x")',
    "ctypes": 'import ctypes\nctypes.CDLL(None).system(b"cp {path} {new}")',
    "__import__": '__import__("os").system("cp {path} {new}")',
    "importlib": 'import importlib\nimportlib.import_module("os").system("cp {path} {new}")',
    "sys.modules": 'import sys\nprint(sys.modules["os"].environ)',
    "eval": "print(eval(\"open('{path}').read()\"))",
    "exec": "exec(\"import os; os.system('cp {path} {new}')\")",
    "compile": 'exec(compile("print(open(\'{path}\').read())", "x", "exec"))',
    "subclasses": (
        "(c,) = [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close']\n"
        "print(c.__init__.__globals__['environ']['TOOLSPEAK_MARK'])"
    ),
    "globals of a tool": 'print(look.__globals__["os"].environ["TOOLSPEAK_MARK"])',
    "code of a tool": "print(look.__code__.co_consts)",
    "builtins": 'print(__builtins__["open"]("{path}").read())',
    "frames": "import sys\nprint(sys._getframe().f_back.f_globals)",
    "traceback": "try:\n    1 / 0\nexcept Exception as e:\n    print(e.__traceback__.tb_frame.f_globals)",
    "proc": 'print(open("/proc/self/environ").read())',
    "proc of the parent": 'import os\nprint(open(f"/proc/{{os.getppid()}}/environ").read())',
    "pickle": "import pickle\nprint(pickle.loads(b\"cos\\nsystem\\n(S'cp {path} {new}'\\ntR.\"))",
    "format": 'print("{{0.__globals__}}".format(look))',
    "input": "print(input())",
    "chdir": 'import os\nos.chdir("{folder}")\nprint(open("secret").read())',
    "sqlite": 'import sqlite3\nsqlite3.connect("{new}").execute("create table x (y)")',
    "signal": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
    "threads": 'import threading\nthreading.Thread(target=lambda: open("{new}", "w")).start()',
}


@tool(read_only=True)
def look(word: str) -> str:
    "Looks a word up."
    return word or "mark-of-the-host-7731"


OUTSIDE = f"""
import ast, os, sys, asyncio, inspect
MARK = {MARK!r}

def look(word):
    return word or {MARK!r}

code = compile(sys.argv[1], "program", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
result = eval(code, {{"look": look, "host": MARK}})
if inspect.iscoroutine(result):
    asyncio.run(result)
"""
"""Runs a program in Python itself, with a tool as a function."""


class Host:
    """What a program must not reach: a file, a variable, a place to write to, a socket."""

    def __init__(self, folder):
        self.folder, self.new = folder, folder / "new"
        (folder / "secret").write_text(MARK)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(0)

    def code(self, attempt):
        port = self.server.getsockname()[1]
        places = {"path": self.folder / "secret", "new": self.new, "folder": self.folder, "port": port}
        return ATTEMPTS[attempt].format(**places)

    def is_reached(self, output):
        with suppress(BlockingIOError):
            self.server.accept()[0].close()
            return True
        return MARK in output or FOLDER_MARK in output or self.new.exists()


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLSPEAK_MARK", MARK)
    host = Host(tmp_path)
    with host.server:
        yield host


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_program_gets_nothing_out_of_its_interpreter(attempt, host):
    turn = ScriptedTurn("", calls=[ScriptedCall("run_code", {"code": host.code(attempt)})])
    result = Agent(ScriptedProvider([turn, "{{last}}"]), [look], code_mode=True).run_sync("Go.")
    assert result.status == "answered"
    assert not host.is_reached(result.answer)
    assert os.listdir(host.folder) == ["secret"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="some of the ways are those of Linux")
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_the_same_attempt_gets_out_of_python_itself(attempt, host):
    """So that no attempt fails for a reason of its own."""
    command = ["/bin/sh", "-c", '"$@"; exit 0', "sh", sys.executable, "-c", OUTSIDE, host.code(attempt)]
    process = subprocess.run(command, input=f"{MARK}\n", capture_output=True, text=True, timeout=60, check=False)
    if attempt == "signal":
        assert process.returncode == -signal.SIGKILL
    else:
        assert host.is_reached(process.stdout), process.stderr
