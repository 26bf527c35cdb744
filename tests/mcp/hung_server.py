"""A server that answers until a tool is called, then says nothing and reads nothing more; a SIGTERM does not end it.

`hung_server.py FOLDER`. Started again it answers `initialize` alone. It leaves the traces of `mcp_server.py`, and
`told` for a SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])


def trace(name: str) -> None:
    with (FOLDER / name).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")


def hang(name: str) -> None:
    trace(name)
    while True:
        time.sleep(1000)


def send(number: Any, **answer: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": number, **answer}), flush=True)


signal.signal(signal.SIGTERM, lambda *_: trace("told"))
again = (FOLDER / "starts").exists()
trace("starts")
for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            version = message["params"]["protocolVersion"]
            about = {"name": "hung", "version": "1"}
            send(message["id"], result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about})
            if again:
                hang("again")
        case "tools/list":
            tool = {"name": "ask", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
            send(message["id"], result={"tools": [tool]})
        case "tools/call":
            hang("waiting")
        case _ if "id" in message:
            send(message["id"], error={"code": -32601, "message": "no such method"})
        case _:
            pass
