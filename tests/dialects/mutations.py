"""Damaged replies of every dialect, read by our parsers and by vLLM's and SGLang's: calls lost, calls invented, wrong
arguments run, text lost or leaked.

    python tests/dialects/mutations.py [--peers .venv-peers/bin/python] [--dialects NAME …] [--show] [--out FILE]

The damage (`damaged_replies.py`) says what a reply means; no parser does. A call that its tool does not take (its name,
its types, what is required) does not run, whichever parser read it, and the model gets an error. A call that may be
reported instead of run is lost only where the model gets no error. Replies are read whole; an engine has a
reasoning parser where the reply thinks. `--show` prints ours that are wrong; `--out` writes the figures that the table
of docs/reference/conformance.md is made of.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from damaged_replies import TOOLS, Call, Case, Count, Reading, can_run, cases, judge

from toolspeak.data.deltas import TurnEnded
from toolspeak.data.messages import FinishReason, ToolCall, as_mapping
from toolspeak.dialects import DIALECTS, PROTOCOLS, Dialect, TurnCollector, get_dialect

PEERS: dict[str, dict[str, tuple[str, str]]] = {
    "hermes": {"vllm": ("hermes", "qwen3"), "sglang": ("hermes", "qwen3")},
    "granite4": {"vllm": ("granite4", "granite")},
    "ernie45": {"vllm": ("ernie45", "ernie45")},
    "longcat": {"vllm": ("longcat", "")},
    "jamba": {"vllm": ("jamba", "")},
    "hunyuan-a13b": {"vllm": ("hunyuan_a13b", "hunyuan_a13b")},
    "apertus": {"vllm": ("apertus", ""), "sglang": ("apertus2509", "apertus2509")},
    "internlm2": {"vllm": ("internlm", "")},
    "inkling": {"vllm": ("inkling", "inkling"), "sglang": ("inkling", "inkling")},
    "dots": {"vllm": ("dots", ""), "sglang": ("dots", "dots")},
    "llama3-json": {"vllm": ("llama3_json", ""), "sglang": ("llama3", "")},
    "granite3": {"vllm": ("granite", "granite")},
    "granite-20b-fc": {"vllm": ("granite-20b-fc", "")},
    "phi4-mini": {"vllm": ("phi4_mini_json", "")},
    "mistral-v3": {"vllm": ("mistral", ""), "sglang": ("mistral", "")},
    "xlam": {"vllm": ("xlam", "")},
    "gigachat3": {"vllm": ("gigachat3", ""), "sglang": ("gigachat3", "")},
    "gigachat31": {"vllm": ("gigachat3", ""), "sglang": ("gigachat3", "")},
    "cohere-command": {"sglang": ("cohere_command4", "cohere_command4")},
    "deepseek-v3": {"vllm": ("deepseek_v3", "deepseek_r1"), "sglang": ("deepseekv3", "deepseek-r1")},
    "deepseek-v31": {"vllm": ("deepseek_v31", "deepseek_v3"), "sglang": ("deepseekv31", "deepseek-v3")},
    "kimi-k2": {"vllm": ("kimi_k2", "kimi_k2"), "sglang": ("kimi_k2", "kimi_k2")},
    "mistral-args": {"vllm": ("mistral", "mistral"), "sglang": ("mistral", "mistral")},
    "harmony": {"sglang": ("gpt-oss", "gpt-oss")},
    "qwen3-coder": {"vllm": ("qwen3_coder", "qwen3"), "sglang": ("qwen3_coder", "qwen3")},
    "step3p5": {"vllm": ("step3p5", "step3p5"), "sglang": ("step3p5", "step3p5")},
    "mimo": {"vllm": ("mimo", "mimo"), "sglang": ("mimo", "mimo")},
    "seed-oss": {"vllm": ("seed_oss", "seed_oss")},
    "minimax-m2": {"vllm": ("minimax_m2", "minimax_m2"), "sglang": ("minimax-m2", "minimax")},
    "minimax-m3": {"vllm": ("minimax_m3", "minimax_m3"), "sglang": ("minimax-m3", "minimax-m3")},
    "step3": {"vllm": ("step3", "step3"), "sglang": ("step3", "step3")},
    "minicpm5": {"vllm": ("minicpm5", ""), "sglang": ("minicpm5", "qwen3")},
    "muse": {"vllm": ("muse_glimmer", "muse_glimmer"), "sglang": ("muse", "muse")},
    "deepseek-v32": {"vllm": ("deepseek_v32", "deepseek_v3"), "sglang": ("deepseekv32", "deepseek-v3")},
    "deepseek-v4": {"vllm": ("deepseek_v4", "deepseek_v4"), "sglang": ("deepseekv4", "deepseek-v4")},
    "deepseek-v41": {"vllm": ("deepseek_v41", "deepseek_v41"), "sglang": ("deepseekv41", "deepseek-v41")},
    "glm45": {"vllm": ("glm45", "glm45"), "sglang": ("glm45", "glm45")},
    "glm47": {"vllm": ("glm47", "glm47"), "sglang": ("glm47", "glm45")},
    "spark25": {"sglang": ("spark25", "")},
    "ling3": {"vllm": ("ling3", "ling3"), "sglang": ("ling3", "ling3")},
    "poolside-v1": {"vllm": ("poolside_v1", "poolside_v1"), "sglang": ("poolside_v1", "poolside_v1")},
    "laguna-s": {"vllm": ("poolside_v1", "poolside_v1"), "sglang": ("poolside_v1", "poolside_v1")},
    "hy-v3": {"vllm": ("hy_v3", "hy_v3"), "sglang": ("hunyuan", "hunyuan")},
    "k2-horizon": {"vllm": ("k2_horizon", "k2_horizon"), "sglang": ("k2_horizon", "k2_horizon")},
    "kimi-k3": {"vllm": ("kimi_k3", "kimi_k3"), "sglang": ("kimi_k3", "kimi_k3")},
    "plamo3": {"vllm": ("plamo3", "plamo3")},
    "pythonic": {"vllm": ("pythonic", ""), "sglang": ("pythonic", "")},
    "llama4-pythonic": {"vllm": ("llama4_pythonic", "")},
    "lfm2": {"vllm": ("lfm2", "qwen3"), "sglang": ("lfm2", "qwen3")},
    "lfm25": {"vllm": ("lfm2", "qwen3"), "sglang": ("lfm2", "qwen3")},
    "olmo3": {"vllm": ("olmo3", "olmo3")},
    "gemma4": {"vllm": ("gemma4", "gemma4"), "sglang": ("gemma4", "gemma4")},
    "functiongemma": {"vllm": ("functiongemma", "")},
}
"""By dialect and engine the tool parser and the reasoning parser, which is empty where the engine has none for it."""

ENGINES = ("vllm", "sglang")


def ours(dialect: Dialect, case: Case) -> Reading:
    parser, collector = dialect.parser(TOOLS), TurnCollector(lambda index: f"call_{index}")
    finish: FinishReason = "length" if case.cut else "stop"
    for delta in [*parser.feed(case.text), *parser.close(finish), TurnEnded(finish)]:
        collector.add(delta)
    turn = collector.turn()
    tool_calls = [call for call in turn.calls if isinstance(call, ToolCall)]
    calls: list[Call] = [(call.name, dict(call.arguments)) for call in tool_calls]
    ran = tuple(filter(can_run, calls))
    # Text set aside is shown, though it is not part of the answer: it is neither lost nor leaked.
    in_aside = any(each in turn.aside for each in case.visible_text)
    text = turn.text + turn.aside if in_aside else turn.text
    return Reading(text, ran, len(ran) < len(turn.calls) or bool(turn.ignored_calls))


class Engine:
    """Another engine's parsers, in a process of their own."""

    def __init__(self, name: str, python: Path) -> None:
        self.name = name
        script = Path(__file__).parents[2] / "benchmarks" / "peers" / "reading.py"
        command = [str(python), "-W", "ignore", str(script), name]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self, parsers: tuple[str, str], case: Case) -> Reading:
        tools = [{"name": tool.name, "parameters": dict(tool.parameters)} for tool in TOOLS]
        reasoning = parsers[1] if case.thinks else ""
        job = {"tool_parser": parsers[0], "reasoning_parser": reasoning, "text": case.text, "tools": tools}
        answer = self._ask(job)
        calls = [(name, _arguments(arguments)) for name, arguments in answer.get("calls", [])]
        ran: tuple[Call, ...] = tuple(filter(can_run, calls))
        return Reading(answer.get("text", ""), ran, len(ran) < len(calls))

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        source, sink = self._process.stdin, self._process.stdout
        assert source is not None
        assert sink is not None
        source.write(json.dumps(job) + "\n")
        source.flush()
        line = sink.readline()
        if not line:
            raise SystemExit(f"{self.name}: its process ended; run `make bench-mutations`, which sets it up")
        return json.loads(line)

    def close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()


def _arguments(text: str) -> dict[str, Any]:
    """Arguments that no tool takes for what no client can read: the model is columns of it."""
    try:
        arguments: Any = json.loads(text)
    except ValueError:
        return {text: None}
    return dict(as_mapping(arguments)) if isinstance(arguments, dict) else {text: None}


def count_ours(dialect: Dialect, every_case: Sequence[Case], show: bool = False) -> Count:
    total = Count()
    for case in every_case:
        reading = ours(dialect, case)
        count = judge(case, reading)
        total.add(count)
        if show and any(count.figures):
            print(f"{dialect.name} {case.kind} {count.figures}\n    {case.text!r}\n    {reading}", flush=True)
    return total


def count_engine(
    engine: Engine, parsers: tuple[str, str], every_case: Sequence[Case], show: bool = False
) -> list[int] | None:
    """None where the engine does not read the first reply, one well-formed call: then it means another format."""
    total = Count()
    for i, case in enumerate(every_case):
        if case.thinks and not parsers[1]:
            continue
        reading = engine.read(parsers, case)
        count = judge(case, reading)
        total.add(count)
        if i == 0 and any(count.figures[:3]):
            if show:
                print(f"{engine.name} {parsers[0]} does not read {case.text!r}: {reading}", flush=True)
            return None
    return total.figures


def rows(dialects: Iterable[Dialect], engines: Sequence[Engine], show: bool) -> Iterable[dict[str, Any]]:
    for dialect in dialects:
        every_case = list(cases(dialect))
        row: dict[str, Any] = {"dialect": dialect.name, "cases": len(every_case)}
        row["toolspeak"] = count_ours(dialect, every_case, show).figures
        for engine in engines:
            parsers = PEERS.get(dialect.name, {}).get(engine.name)
            row[engine.name] = count_engine(engine, parsers, every_case, show) if parsers else None
        yield row


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--peers", type=Path, help="the Python that vLLM and SGLang are installed for")
    options.add_argument("--dialects", nargs="+", default=[], help="some of all")
    options.add_argument("--show", action="store_true", help="print the replies that ours reads wrongly")
    options.add_argument("--out", type=Path, help="a file for the figures, as JSON")
    arguments = options.parse_args()
    engines = [Engine(name, arguments.peers) for name in ENGINES] if arguments.peers else []
    dialects = [get_dialect(name) for name in arguments.dialects] or [
        *PROTOCOLS,
        *(d for d in DIALECTS if d not in PROTOCOLS),
    ]
    every_row: list[dict[str, Any]] = []
    for row in rows(dialects, engines, arguments.show):
        every_row.append(row)
        columns = [f"{name} {row[name]}" for name in ("toolspeak", *ENGINES) if row.get(name) is not None]
        print(f"{row['dialect']:18}{row['cases']:>5}  " + "  ".join(columns), flush=True)
    for engine in engines:
        engine.close()
    if arguments.out:
        lines = ",\n".join(json.dumps(row) for row in every_row)
        arguments.out.write_text(f"[\n{lines}\n]\n", "utf-8")


if __name__ == "__main__":
    main()
