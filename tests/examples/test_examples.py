"""Each program of `examples/` as a reader starts it: as it is, with the scripted model that it comes with."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

RUNS: dict[str, tuple[str, list[str]]] = {
    "coding_agent": ("y\ny\n", ["-    return sum(prices) - 1", "The test says: passed.", "(answered)"]),
    "sql_analyst": ("y\n", ["(1 rows)", "Ada ordered for 42", "[('Ada', 10), ('Grace', 0)]"]),
    "two_models": ("", ["It is 2027-02-21.", "Then it is 2027-03-23."]),
    "gateway_client": ("", ["weather({'city': 'Rome'})", "No: 21 °C, dry."]),
    "sub_agents": ("y\n", ["buyer: writes orders and leaves this machine: order(", "so: ordered 10 pears."]),
    "code_mode": ("y\nn\n", ["remind(name='Ada', euros=120)?", "ended with -9", "Cleo: remind: the call was rejected"]),
    "mcp_tools": ("y\n", ["tools: desk__open_tickets, desk__close_ticket", "Done: closed 7"]),
    "drive_over_pipes": ("", ["? write({'path': 'hello.txt'", "It is written.", "It says: Hello!", "[answered]"]),
    "evaluate_models": ("", ["evaluate_models_good.json                  3 / 3", "It is 41."]),
}
"""By program: what a person types, and what stands in its output."""

ELSEWHERE = {"batch_documents", "web_chat", "mcp_server"}
"""Programs with a test of their own; the server is mcp_tools' part."""


def command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "MODEL"} | {"PYTHONIOENCODING": "utf-8"} | more


def test_each_program_is_run_and_listed():
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == RUNS.keys() | ELSEWHERE
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert {name for name in (*names, "notebook") if f"({name}." not in page} == set()
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in EXAMPLES.glob("*.py")}
    assert {name: length for name, length in lengths.items() if length > 120} == {}


@pytest.mark.over_a_second
@pytest.mark.skipif(os.name != "posix", reason="needs a shell and a FIFO")
def test_a_shell_script_drives_runs_over_a_fifo():
    script = EXAMPLES / "drive_over_pipes.sh"
    process = subprocess.run(
        ["sh", script],
        env=environment(TOOLSPEAK=f"{sys.executable} -m toolspeak"),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = ["? write (call_1_0)", '"answer":"It is written."', '"answer":"It says: Hello!"']
    assert process.stdout.splitlines() == lines


@pytest.mark.over_a_second
@pytest.mark.parametrize("name", RUNS)
def test_a_program_does_what_it_says(name: str, tmp_path: Path):
    input_text, expected = RUNS[name]
    process = subprocess.run(
        command(name),
        input=input_text,
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert [line for line in expected if line not in process.stdout] == [], process.stdout


@pytest.mark.over_a_second
def test_a_no_keeps_the_database_as_it_is(tmp_path: Path):
    process = subprocess.run(
        command("sql_analyst"), input="n\n", cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    assert "[('Ada', 5), ('Grace', 0)]" in process.stdout


@pytest.mark.over_a_second
def test_a_batch_that_was_killed_goes_on(tmp_path: Path):
    run = command("batch_documents", str(tmp_path / "letters.db"))
    first = subprocess.Popen(run, stdout=subprocess.PIPE, env=environment(), text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "100 letters\n"
    first.send_signal(signal.SIGKILL)
    first.communicate()
    second = subprocess.run(run, env=environment(), capture_output=True, text=True, check=True)
    assert "1000 letters\n1000 of 1000 letters need an answer\n" in second.stdout


@pytest.mark.over_a_second
def test_the_chat_streams_and_asks(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    process = subprocess.Popen(
        command("web_chat", str(port)), cwd=tmp_path, env=environment(JOURNAL=str(tmp_path / "chat.db"))
    )
    retrying = httpx2.HTTPTransport(retries=8)  # until it listens
    try:
        with httpx2.Client(
            base_url=f"http://127.0.0.1:{port}", transport=retrying, trust_env=False, timeout=60
        ) as client:

            def events(path: str, body: object) -> list[dict[str, str]]:
                answer = client.post(path, json=body)
                assert answer.headers["content-type"].startswith("text/event-stream")
                return [json.loads(event.removeprefix("data: ")) for event in answer.text.split("\n\n") if event]

            assert re.findall(r"https?:", client.get("/").text) == []
            *_, question = events("/say", {"session": "tab", "text": "Remember the apples."})
            assert question["what"] == "add_note: writes notes"
            after = events("/decide", {"run": question["run"], "call": question["ask"], "yes": True})
    finally:
        process.terminate()
        process.wait()
    assert "".join(event.get("text", "") for event in after) == "Noted: added."
    assert after[-1] == {"end": "answered"}


def test_the_notebook_runs_from_top_to_bottom(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(EXAMPLES)
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    namespace: dict[str, object] = {"__name__": "notebook"}

    async def run() -> None:
        for cell in cells:
            if cell["cell_type"] == "code":
                code = compile(cell["source"], cell["id"], "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                value = eval(code, namespace)
                if inspect.isawaitable(value):
                    await value

    asyncio.run(run())
    assert "It was 22 °C on average." in capsys.readouterr().out
    assert str(namespace["average"]) == "city='Rome' celsius=22.0"
    assert [cell["id"] for cell in cells if cell.get("outputs")] == []
