"""What a program reaches without a tool: nothing. Each attempt tries to read or to write what only this process has."""

from __future__ import annotations

import os
import socket

import pytest

from toolspeak import Agent, tool
from toolspeak.providers.scripted import ScriptedCall, ScriptedProvider, ScriptedTurn

MARK = "mark-of-the-host-7731"

ATTEMPTS = {
    "open": 'print(open("{path}").read())',
    "open to write": 'open("{new}", "w").write("x")',
    "pathlib": 'from pathlib import Path\nprint(Path("{path}").read_text())',
    "pathlib to write": 'from pathlib import Path\nPath("{new}").write_text("x")',
    "pathlib walk": 'from pathlib import Path\nprint([p.read_text() for p in Path("{folder}").iterdir()])',
    "io": 'import io\nprint(io.open("{path}").read())',
    "io.FileIO": 'import io\nprint(io.FileIO("{path}").read())',
    "os.open": 'import os\nprint(os.read(os.open("{path}", 0), 100))',
    "os.listdir": 'import os\nprint(os.listdir("{folder}"))',
    "os.environ": 'import os\nprint(os.environ["TOOLSPEAK_MARK"])',
    "os.getenv": 'import os\nprint(os.getenv("TOOLSPEAK_MARK"))',
    "os.system": 'import os\nos.system("cp {path} {new}")',
    "os.fork": "import os\nos.fork()",
    "subprocess": 'import subprocess\nprint(subprocess.run(["cat", "{path}"], capture_output=True).stdout)',
    "socket": 'import socket\nsocket.create_connection(("127.0.0.1", {port})).send(b"x")',
    "asyncio connection": 'import asyncio\nawait asyncio.open_connection("127.0.0.1", {port})',
    "urllib": 'import urllib.request\nurllib.request.urlopen("http://127.0.0.1:{port}/x")',
    "http": 'import http.client\nhttp.client.HTTPConnection("127.0.0.1", {port}).request("GET", "/x")',
    "ctypes": 'import ctypes\nctypes.CDLL(None).system(b"cp {path} {new}")',
    "__import__": '__import__("os").system("cp {path} {new}")',
    "importlib": 'import importlib\nimportlib.import_module("os").system("cp {path} {new}")',
    "sys.modules": 'import sys\nprint(sys.modules["os"].environ)',
    "eval": "print(eval(\"open('{path}').read()\"))",
    "exec": "exec(\"import os; os.system('cp {path} {new}')\")",
    "compile": 'exec(compile("print(open(\'{path}\').read())", "x", "exec"))',
    "subclasses": "print([c for c in ().__class__.__base__.__subclasses__() if 'open' in c.__name__.lower()])",
    "globals of a tool": 'print(look.__globals__["os"].environ["TOOLSPEAK_MARK"])',
    "code of a tool": "print(look.__code__.co_consts)",
    "builtins": 'print(__builtins__["open"]("{path}").read())',
    "frames": "import sys\nprint(sys._getframe().f_back.f_globals)",
    "traceback": "try:\n    1 / 0\nexcept Exception as e:\n    print(e.__traceback__.tb_frame.f_globals)",
    "proc": 'print(open("/proc/self/environ").read())',
    "proc of the parent": 'import os\nprint(open(f"/proc/{{os.getppid()}}/environ").read())',
    "pickle": "import pickle\nprint(pickle.loads(b\"cos\\nsystem\\n(S'cp {path} {new}'\\ntR.\"))",
    "format": 'print("{{0.__init__.__globals__}}".format(look))',
    "input": "print(input())",
    "chdir": 'import os\nos.chdir("{folder}")\nprint(open("secret").read())',
    "sqlite": 'import sqlite3\nsqlite3.connect("{new}").execute("create table x (y)")',
    "signal": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
    "threads": 'import threading\nthreading.Thread(target=lambda: open("{new}", "w")).start()',
}


@tool(read_only=True)
def look(word: str) -> str:
    "Looks a word up."
    return word


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_program_gets_nothing_out_of_its_interpreter(attempt, tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLSPEAK_MARK", MARK)
    secret, new = tmp_path / "secret", tmp_path / "new"
    secret.write_text(MARK)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        port = server.getsockname()[1]
        code = ATTEMPTS[attempt].format(path=secret, new=new, folder=tmp_path, port=port)
        turn = ScriptedTurn("", calls=[ScriptedCall("run_code", {"code": code})])
        result = Agent(ScriptedProvider([turn, "{{last}}"]), [look], code_mode=True).run_sync("Go.")
        with pytest.raises(BlockingIOError):
            server.accept()
    assert result.status == "answered"
    assert MARK not in result.answer
    assert os.listdir(tmp_path) == ["secret"]
