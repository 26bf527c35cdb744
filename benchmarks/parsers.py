"""Measures parsing one call with a long string argument, for a dialect of each family and for other engines' parsers.

    python benchmarks/parsers.py [--sizes 1K 100K] [--peers .venv-peers/bin/python] [--out results.jsonl]

For every dialect, content and size, prints CPU time per chunk, the floor's CPU time on the same chunks, and MB/s for
the whole text in one piece. A chunk has 4 characters or is one whole special token, as a detokenizer passes text on.

The floor is the minimum that any incremental parser in Python does for a chunk: a method call, a regular expression
that matches, and a frozen dataclass of the standard library. (Our deltas are made in C; a floor with those is about
0.2 us lower.) If values are plain text, the floor also writes them as JSON. `growth` is the ratio of the cost of twice
the text to the cost of the text, in chunks and whole. At 3 or more (4 would be quadratic), the exit code is 1.

The other engines run in their own environment (`make bench-parsers` sets it up) and read the same texts, code only.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, TextIO

from toolspeak.data.deltas import CallCompleted
from toolspeak.data.messages import Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Dialect, get_dialect

CHUNK = 4
STRING = {"type": "string"}
PARAMETERS = {"type": "object", "properties": {"path": STRING, "content": STRING}, "required": ["path", "content"]}
TOOL = ToolSpec("write_file", "", PARAMETERS)
UNITS = {"K": 1_000, "M": 1_000_000}
CONTENTS = {
    "plain": "The quick brown fox jumps over the lazy dog, and the dog lets it; ",
    "code": 'if a < b and c != "x":\n    value += f"{a:>3}"  # row\n    rows.append((a, b[0], value))\n',
}
QUADRATIC = 3.0
GROWTH_SIZE = 150_000


@dataclass(frozen=True, slots=True)
class Row:
    """A dialect that represents its family. `tokens` finds its special tokens; `peers` are other parsers of it."""

    family: str
    dialect: str
    tokens: str
    peers: dict[str, str] = field(default_factory=dict[str, str])
    json: bool = True  # arguments pass through unchanged


TOOL_TAGS = r"</?tool_call>"
ROWS = (
    Row("JSON", "hermes", TOOL_TAGS, {"vllm": "hermes", "sglang": "hermes"}),
    Row("bare JSON", "llama3-json", r"<\|python_tag\|>", {"vllm": "llama3_json", "sglang": "llama3"}),
    Row("actions", "cohere-command", r"<\|[A-Z_]+\|>", {"sglang": "cohere_command4"}),
    Row("name outside", "deepseek-v31", r"<｜[^｜<>]+｜>", {"vllm": "deepseek_v31", "sglang": "deepseekv31"}),
    Row("name outside", "kimi-k2", r"<\|\w+\|>", {"vllm": "kimi_k2", "sglang": "kimi_k2"}),
    Row("channels", "harmony", r"<\|\w+\|>", {"sglang": "gpt-oss"}),
    Row("elements", "qwen3-coder", TOOL_TAGS, {"vllm": "qwen3_coder", "sglang": "qwen3_coder"}, json=False),
    Row("elements", "minimax-m2", r"</?minimax:tool_call>", {"vllm": "minimax_m2", "sglang": "minimax-m2"}, json=False),
    Row("DSML", "deepseek-v32", "｜DSML｜", {"vllm": "deepseek_v32", "sglang": "deepseekv32"}, json=False),
    Row(
        "nested elements",
        "minimax-m3",
        r"\]<\]minimax\[>\[|</?tool_call>",
        {"vllm": "minimax_m3", "sglang": "minimax-m3"},
        json=False,
    ),
    Row("pairs", "glm47", r"</?(?:tool_call|arg_\w+)>", {"vllm": "glm47", "sglang": "glm47"}, json=False),
    Row("python calls", "lfm2", r"<\|\w+\|>", {"vllm": "lfm2", "sglang": "lfm2"}, json=False),
    Row("gemma", "gemma4", r'<\|"\|>|<\|\w+>|<\w+\|>', {"vllm": "gemma4", "sglang": "gemma4"}, json=False),
    Row("protocols", "cogency-json", r"(?!)"),
    Row("protocols", "cogency-xml", r"(?!)", json=False),
    Row("protocols", "tool-call", r"(?!)"),
)


# --- the texts ----------------------------------------------------------------------------------


def size_of(label: str) -> int:
    unit = UNITS.get(label[-1].upper())
    return int(label[:-1]) * unit if unit else int(label)


def arguments(content: str, size: int) -> dict[str, str]:
    unit = CONTENTS[content]
    # No white space at the ends: some engines drop it, which this benchmark does not measure.
    return {"path": "src/app.py", "content": (unit * (size // len(unit) + 1))[: size - 1] + "."}


def reply(dialect: Dialect, content: str, size: int) -> str:
    call = ToolCall("1", TOOL.name, arguments(content, size))
    (message,) = dialect.render([Message("assistant", (call,))], [TOOL])
    return message.text


def pieces_of(text: str, tokens: str) -> list[str]:
    """Splits text as a detokenizer does: whole special tokens, and `CHUNK` characters of all other text."""
    return re.findall(f"{tokens}|(?:(?!{tokens})[^\0]){{1,{CHUNK}}}", text)


# --- our parsers, and the floor -----------------------------------------------------------------

_JSON_RUN = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_TEXT_RUN = re.compile(r"[^<]*+")


@dataclass(frozen=True, slots=True)
class Fragment:
    index: int
    text: str


class JsonFloor:
    def feed(self, chunk: str) -> list[Fragment]:
        match = _JSON_RUN.match(chunk, 0)
        return [Fragment(0, chunk[: match.end()] if match else chunk)]


class TextFloor:
    def feed(self, chunk: str) -> list[Fragment]:
        match = _TEXT_RUN.match(chunk, 0)
        return [Fragment(0, encode_basestring(chunk[: match.end()] if match else chunk)[1:-1])]


def read(dialect: Dialect, pieces: Sequence[str]) -> None:
    parser = dialect.parser([TOOL])
    feed = parser.feed
    for piece in pieces:
        feed(piece)
    parser.close("stop")


def read_floor(floor: type[JsonFloor | TextFloor], pieces: Sequence[str]) -> None:
    feed = floor().feed
    for piece in pieces:
        feed(piece)


def check_read(dialect: Dialect, content: str) -> None:
    """Measures only the call."""
    parser = dialect.parser([TOOL])
    deltas = [*parser.feed(reply(dialect, content, 1_000)), *parser.close("stop")]
    calls = [delta for delta in deltas if isinstance(delta, CallCompleted)]
    if [dict(call.arguments) for call in calls] != [arguments(content, 1_000)]:
        raise SystemExit(f"{dialect.name} does not read its own call: {deltas!r}")


def best(run: Callable[[], None], least: float = 0.25, most: int = 200) -> float:
    """Returns CPU seconds: the minimum of as many runs as fit in `least` seconds."""
    fastest, seconds, runs = math.inf, 0.0, 0
    while not runs or (seconds < least and runs < most):
        before = time.thread_time()
        run()
        once = time.thread_time() - before
        fastest, seconds, runs = min(fastest, once), seconds + once, runs + 1
    return fastest


def growth(dialect: Dialect, row: Row, content: str, *, whole: bool) -> float:
    """Returns the cost ratio for twice the text. Repeats with longer texts before it counts as quadratic."""
    ratio = 0.0
    for size in (GROWTH_SIZE, 4 * GROWTH_SIZE):
        texts = [reply(dialect, content, each) for each in (size, 2 * size)]
        inputs = [[text] if whole else pieces_of(text, row.tokens) for text in texts]
        once, twice = (best(lambda each=each: read(dialect, each)) for each in inputs)
        ratio = twice / once
        if ratio < QUADRATIC:
            break
    return round(ratio, 2)


def measure(row: Row, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yields a record for every content and size. The record of the largest size also has the growth."""
    dialect = get_dialect(row.dialect)
    floor = JsonFloor if row.json else TextFloor
    for content in CONTENTS:
        check_read(dialect, content)
        for size in sizes:
            text = reply(dialect, content, size)
            pieces = pieces_of(text, row.tokens)
            chunk_seconds = best(lambda pieces=pieces: read(dialect, pieces))
            least = best(lambda pieces=pieces: read_floor(floor, pieces))
            whole = best(lambda text=text: read(dialect, [text]))
            record: dict[str, Any] = {
                "engine": "toolspeak",
                "parser": dialect.name,
                "dialect": dialect.name,
                "family": row.family,
                "content": content,
                "size": size,
                "us_per_chunk": round(chunk_seconds / len(pieces) * 1e6, 3),
                "floor_us": round(least / len(pieces) * 1e6, 3),
                "ratio": round(chunk_seconds / least, 2),
                "mb_per_s": round(len(text) / whole / 1e6, 1),
            }
            if size == max(sizes):
                record["growth"] = growth(dialect, row, content, whole=False)
                record["growth_whole"] = growth(dialect, row, content, whole=True)
            yield record


# --- the other engines --------------------------------------------------------------------------


class Engine:
    """Another engine's parsers, in their own process."""

    def __init__(self, name: str, python: Path, cap: float) -> None:
        self.name, self._cap = name, cap
        script = Path(__file__).parent / "peers" / "engines.py"
        command = [str(python), "-W", "ignore", str(script), name]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        source, sink = self._process.stdin, self._process.stdout
        assert source is not None
        assert sink is not None
        source.write(json.dumps(job) + "\n")
        source.flush()
        line = sink.readline()
        if not line:
            raise SystemExit(f"{self.name}: its process ended; run `make bench-parsers`, which sets it up")
        return json.loads(line)

    def measure(self, row: Row, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Yields a record for every size, until one reaches the cap of CPU seconds or is certain to."""
        parser, dialect = row.peers[self.name], get_dialect(row.dialect)
        before: list[tuple[int, float]] = []
        tool = {"name": TOOL.name, "parameters": PARAMETERS}
        for size in sizes:
            if _foreseen(before, size) > 2 * self._cap:
                return
            pieces = pieces_of(reply(dialect, "code", size), row.tokens)
            job = {"parser": parser, "pieces": pieces, "tool": tool, "cap": self._cap}
            result = self.ask({**job, "arguments": arguments("code", size)})
            record: dict[str, Any] = {
                "engine": self.name,
                "parser": parser,
                "dialect": row.dialect,
                "family": row.family,
                "content": "code",
                "size": size,
            }
            if "error" in result:
                yield {**record, "error": result["error"]}
                return
            record["us_per_chunk"] = round(result["seconds"] / result["done"] * 1e6, 3)
            yield {**record, "ok": result["ok"], "done": round(result["done"] / len(pieces), 3)}
            if result["done"] < len(pieces):
                return
            before.append((size, result["seconds"]))

    def close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()


def _foreseen(before: Sequence[tuple[int, float]], size: int) -> float:
    """Returns the seconds that a text of `size` would take, extrapolated from the last two sizes."""
    if len(before) < 2:
        return 0.0
    (small, short), (large, long) = before[-2:]
    power = max(math.log(long / short) / math.log(large / small), 1.0)
    return long * (size / large) ** power


# --- the run ------------------------------------------------------------------------------------


def show(record: dict[str, Any]) -> None:
    columns = [f"{record['engine']:10}{record['parser']:16}{record['content']:6}{record['size']:>9}"]
    if "error" in record:
        columns.append(f"  {record['error']}")
    elif record["engine"] == "toolspeak":
        columns.append(f"{record['us_per_chunk']:>11.2f} us{record['floor_us']:>7.2f}{record['ratio']:>6.1f}x")
        columns.append(f"{record['mb_per_s']:>8.1f} MB/s")
        columns += [f"  grows {record['growth']}, whole {record['growth_whole']}"] if "growth" in record else []
    else:
        wrong = "" if record["ok"] else "  wrong arguments" if record["ok"] is False else "  stopped at the cap"
        columns.append(f"{record['us_per_chunk']:>11.2f} us{wrong}")
    print("".join(columns), flush=True)


def records(rows: Sequence[Row], sizes: Sequence[int], engines: Sequence[Engine]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield from measure(row, sizes)
        for engine in engines:
            if engine.name in row.peers:
                yield from engine.measure(row, sizes)


def chosen_rows(names: Sequence[str]) -> list[Row]:
    """Returns the rows of these dialects. `all` is every dialect; those without a row are split into plain chunks."""
    rows = {row.dialect: row for row in ROWS}
    names = [dialect.name for dialect in DIALECTS] if list(names) == ["all"] else names or list(rows)
    infos = [get_dialect(name).info for name in names]
    return [rows.get(info.name) or Row("", info.name, r"(?!)", json=info.arguments == "JSON") for info in infos]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sizes", nargs="+", default=["1K", "10K", "100K", "1M", "10M"], help="of the argument")
    options.add_argument("--dialects", nargs="+", default=[], help="some of those below, or all; one of each family")
    options.add_argument("--peers", type=Path, help="the Python that vLLM and SGLang are installed for")
    options.add_argument("--cap", type=float, default=20.0, help="CPU seconds after which another engine is stopped")
    options.add_argument("--out", type=argparse.FileType("w"), help="a file for the records, as JSON lines")
    arguments = options.parse_args()
    sizes = sorted(map(size_of, arguments.sizes))
    out: TextIO | None = arguments.out
    engines = [Engine(name, arguments.peers, arguments.cap) for name in ("vllm", "sglang")] if arguments.peers else []
    quadratic = False
    for record in records(chosen_rows(arguments.dialects), sizes, engines):
        show(record)
        quadratic |= max(record.get("growth", 0), record.get("growth_whole", 0)) >= QUADRATIC
        if out:
            out.write(json.dumps(record) + "\n")
            out.flush()
    for engine in engines:
        engine.close()
    sys.exit(quadratic)


if __name__ == "__main__":
    main()
