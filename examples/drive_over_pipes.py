"""A program drives `toolspeak run` over pipes: it reads records, decides about calls, and asks a second question.

    python examples/drive_over_pipes.py            # with the scripted model beside it
    MODEL=openai:qwen3 python examples/drive_over_pipes.py

Any language can do the same: each line is one JSON object. The page "JSON lines" of the reference lists them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

MODEL = os.environ.get("MODEL", f"scripted:{Path(__file__).parent / 'scripts' / 'drive_over_pipes.json'}")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "toolspeak", "run", "--json", "--input", "-", "--deltas"]
        command += ["--model", MODEL, "--workspace", folder, "--journal", str(Path(folder, ".runs.db"))]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
        assert process.stdin is not None
        assert process.stdout is not None

        def send(**line: object) -> None:
            print(json.dumps(line), file=process.stdin, flush=True)

        questions = ["Write hello.txt.", "What is in it?"]
        send(task=questions.pop(0))
        for text in process.stdout:
            line = json.loads(text)
            event = line.get("event", {})
            if "error" in line:
                print("refused:", line["error"])
            elif line.get("type") == "TextDelta":
                print(line["text"], end="", flush=True)
            elif event.get("type") == "ApprovalRequested":
                call = event["call"]
                print(f"? {call['name']}({call['arguments']})")
                is_harmless = call["name"] == "write" and not call["arguments"]["path"].startswith(".")
                send(decide=event["call_id"], approved=is_harmless, reason="only `write`", digest=event["digest"])
            elif event.get("type") == "RunFinished":
                print(f"\n[{event['status']}]")
                if questions:
                    send(task=questions.pop(0))
                else:
                    process.stdin.close()  # the command ends with its input
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
