"""A server of an older revision that answers as FOLDER/offer.json says: `offering_server.py FOLDER`.

The file maps methods to results. `asks`: what it asks the client's user before it answers a call; it then answers with
what it was told. It leaves the traces of `mcp_server.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
OFFER = json.loads((FOLDER / "offer.json").read_text("utf-8"))


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def receive() -> Any:
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit()


def trace(name: str, line: str) -> None:
    with (FOLDER / name).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


pages = 0
while message := receive():
    number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method == "initialize":
        about = {"name": "offering", "version": "1"}
        capabilities = {"tools": {}, **OFFER.get("capabilities", {})}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": about}
        trace("client", json.dumps(params["capabilities"]))
        send(id=number, result=result)
    elif method == "tools/call" and number is not None:
        trace("calls", params["name"])
        if "asks" not in OFFER:
            send(id=number, result={"content": [{"type": "text", "text": "fine"}]})
            continue
        send(id="question", method="elicitation/create", params=OFFER["asks"])
        while (answer := receive()).get("id") != "question":
            pass
        text = json.dumps(answer.get("result", answer.get("error")))
        trace("answers", text)
        send(id=number, result={"content": [{"type": "text", "text": text}]})
    elif method in OFFER and number is not None:
        pages += 1
        cursor = {"nextCursor": f"page {pages}"} if OFFER.get("lists without end") else {}
        send(id=number, result={**OFFER[method], **cursor})
    elif number is not None and method is not None:
        send(id=number, error={"code": -32601, "message": "no such method"})
