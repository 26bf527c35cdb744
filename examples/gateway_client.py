"""A plain HTTP client that uses tools, through the gateway, with a model that writes its calls as text.

    python examples/gateway_client.py                                  # starts `toolspeak serve` itself
    toolspeak serve --upstream http://127.0.0.1:11434/v1 --dialect hermes &
    GATEWAY=http://127.0.0.1:8665 MODEL=qwen3:8b python examples/gateway_client.py

The client speaks OpenAI's Chat Completions API and does not use toolspeak. Any OpenAI or Anthropic client works the
same way.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx2

MODEL = os.environ.get("MODEL", "scripted")
SCRIPT = Path(__file__).parent / "scripts" / "gateway_client.json"
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def weather(city: str) -> str:
    return f"{city}: 21 °C, dry"


def chat(address: str) -> None:
    messages = [{"role": "user", "content": "Do I need an umbrella in Rome?"}]
    with httpx2.Client(base_url=address, timeout=300) as client:
        while True:
            body = {"model": MODEL, "messages": messages, "tools": [TOOL]}
            answer = client.post("/v1/chat/completions", json=body)
            answer.raise_for_status()
            message = answer.json()["choices"][0]["message"]
            messages.append(message)
            if not message.get("tool_calls"):
                print(message["content"])
                return
            for call in message["tool_calls"]:
                arguments = json.loads(call["function"]["arguments"])
                print(f"{call['function']['name']}({arguments})")
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": weather(**arguments)})


def main() -> None:
    if address := os.environ.get("GATEWAY"):
        chat(address)
        return
    command = [
        sys.executable,
        "-m",
        "toolspeak",
        "serve",
        "--port",
        "0",
        "--upstream",
        f"scripted:{SCRIPT}",
        "--dialect",
        "hermes",
    ]
    gateway = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert gateway.stderr is not None
        line = next(line for line in gateway.stderr if line.startswith("toolspeak serves at "))
        chat(line.split()[-1])
    finally:
        gateway.terminate()
        gateway.wait()


if __name__ == "__main__":
    main()
