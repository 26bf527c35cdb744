"""What is fuzzed: a turn of some dialect, made from bytes in which text and the dialect's own fragments mix.

Six bytes say dialect, tools, finish and section, how the text is cut (two), and where it breaks off. The rest is the
text as UTF-8; what is no UTF-8 becomes lone surrogates, and three bytes that UTF-8 never has stand for more:
`FF n` a fragment of the dialect, `FE n` the piece before again, up to 16 times, `FD` a word that may not get lost.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

from toolspeak.data.messages import FinishReason, Message, TextPart, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, AutoDialect, Dialect, Parser, Section, StrictDialect, get_dialect
from toolspeak.dialects.catalogue import FAMILIES
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect
from toolspeak.dialects.text.block_delimiters import Signature
from toolspeak.errors import ConfigurationError, UnknownDialect

SAMPLES = Path(__file__).parents[1] / "tests" / "samples"
HEADER = 6
FRAGMENT, AGAIN, WORD = 0xFF, 0xFE, 0xFD
MAX_TEXT = 768
"""Characters of a turn; longer ones are made by repetition (`checks.check_growth`)."""


def _strict() -> Iterator[Dialect]:
    for dialect in DIALECTS:
        with suppress(ConfigurationError):  # of a few the calls cannot be told more strictly
            yield get_dialect(dialect.name, strict_detection=True)
            yield StrictDialect(dialect, broken=True)


GROUPS: dict[str, tuple[Dialect, ...]] = {
    **FAMILIES,
    "harmony": (get_dialect("harmony"),),  # one of many in its family, with a parser of its own
    "auto": (get_dialect("auto"),),
    "strict": tuple(_strict()),
}
"""What is fuzzed together."""

FINISHES: tuple[FinishReason, ...] = get_args(FinishReason)

_TEXT = {"type": "string"}
_ANY: dict[str, Any] = {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}


def _spec(name: str, **properties: Any) -> ToolSpec:
    return ToolSpec(name, "", {"type": "object", "properties": properties})


OWN_TOOLS = (
    _spec("read", file=_TEXT, path=_TEXT),
    _spec("write", file=_TEXT, content=_TEXT),
    _spec("set", n={"type": "integer"}, flag={"type": "boolean"}, tags={"type": "array"}, map={"type": "object"}),
    _spec("pick", x=_ANY, e={"enum": [1, "1", None]}, free={}),
    _spec("ping"),
)
_CALLS = (
    ToolCall("call_0", "read", {"file": "a.txt"}),
    ToolCall("call_1", "write", {"file": "b", "content": 'if a < b:\n\tprint("é\\n")  # </x>'}),
    ToolCall("call_2", "set", {"n": -3, "flag": True, "tags": [1, "a", None], "map": {"k": 1.5e3}}),
    ToolCall("call_3", "pick", {"x": None, "e": "1", "free": {"a": ["b"]}}),
    ToolCall("call_4", "ping", {}),
)
_COMMON = (
    *("```", "```json\n", "`", "\n", " ", "\r\n", "\n\n", "prose ", "é😀", "\x00", "\u2028", "<", ">", "</", "/>", "|"),
    *("[", "]", "{", "}", "(", ")", ",", ":", ";", "=", '"', "'", "\\", "\\n", "\\u00e9", "\\u12", "\\'", "#", "//"),
    *("0", "-1.5e3", "007", "true", "True", "null", "None", "NaN", "1e999", "[1", '{"a": 1}', '"name"', "a=1", "f(x)"),
    *("<think>", "</think>", "<think", "<![CDATA[", "]]>", "&lt;", "<x>", "</x>", "<results>", "</results>", "f", "fn"),
    *('{"name": "read", "arguments": {"file": "a"}}', '{"name": "', '", "arguments": {', '"parameters": {', '"args":'),
)
_TOKEN = re.compile(r"<[^<>\s]*>?|\w+|\s+|[^\w\s<]+")


@dataclass(frozen=True, slots=True)
class Case:
    """One turn to read. `cuts` are the places between two chunks, `stop` where it breaks off; `words` are in `text`."""

    dialect: Dialect
    text: str
    tools: Sequence[ToolSpec] = ()
    finish: FinishReason = "stop"
    starts_in: Section = "text"
    cuts: tuple[int, ...] = ()
    stop: int = 0
    words: tuple[str, ...] = ()
    keep_reasoning: bool = False

    def parser(self) -> Parser:
        parser = self.dialect.parser(self.tools, self.starts_in)
        if self.keep_reasoning:
            parser.keep_reasoning()
        return parser

    @property
    def pieces(self) -> list[str]:
        edges = (0, *(cut for cut in self.cuts if cut < len(self.text)), len(self.text))
        return [self.text[start:stop] for start, stop in itertools.pairwise(edges)]


@cache
def sample_rows() -> tuple[dict[str, Any], ...]:
    """The engines' own cases."""
    files = sorted(path for path in SAMPLES.glob("*.jsonl") if path.stem != "render-templates")
    return tuple(json.loads(line) for path in files for line in path.read_text(encoding="utf-8").splitlines())


@cache
def toolsets() -> tuple[tuple[ToolSpec, ...], ...]:
    """No tools, ours, and those of the samples."""
    tools: dict[str, ToolSpec] = {}
    for row in sample_rows():
        for tool in row["tools"]:
            tool = tool.get("function", tool)
            spec = ToolSpec(tool["name"], "", tool.get("parameters") or {"type": "object"})
            tools.setdefault(spec.name, spec)
    return (), OWN_TOOLS, tuple(tools.values())


def _call_text(dialect: Dialect, *calls: ToolCall) -> str:
    return "\n".join(entry.text for entry in dialect.render([Message("assistant", calls)], OWN_TOOLS))


@cache
def fragments(dialect: Dialect) -> tuple[str, ...]:
    """What the dialect's parser reacts to: markers and their halves, calls and results as written, and their tokens."""
    if isinstance(dialect, StrictDialect):
        return fragments(dialect.renderer)
    if isinstance(dialect, AutoDialect):
        each = [fragments(other) for other in DIALECTS]
        texts = [text for rank in itertools.zip_longest(*each) for text in rank if text]
        return tuple(dict.fromkeys(texts))[:256]
    calls = [_call_text(dialect, call) for call in _CALLS] + [_call_text(dialect, *_CALLS)]
    results = dialect.render_results([ToolResult("call_0", "read", "success", (TextPart("fine"),))])
    markers: list[str] = []
    if isinstance(dialect, DeclaredDialect):
        for marker in dialect.table.markers:
            opening = marker.opening
            parts = opening.parts if isinstance(opening, Signature) else (marker.text,)
            markers += [part for part in parts if isinstance(part, str)]
            markers += [text for text in (marker.end, *marker.tails, *marker.also_ends) if text]
    tokens = [token for text in (*calls, results) for token in _TOKEN.findall(text)]
    halves = [marker[: len(marker) // 2] for marker in markers]
    # Markers first: what 256 indexes do not reach of a talkative dialect is the least of it.
    texts = dict.fromkeys([*markers, *calls, results, *halves, *tokens, *_COMMON])
    return tuple(text for text in texts if text)[:256]


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "surrogateescape")


def _body(body: bytes, dialect: Dialect) -> tuple[str, tuple[str, ...]]:
    dialect_texts, pieces, words = fragments(dialect), [""], list[str]()
    at = length = 0
    while at < len(body) and length < MAX_TEXT:
        code = body[at]
        if code >= WORD:
            which = body[at + 1] if at + 1 < len(body) else 0
            if code == FRAGMENT:
                pieces.append(dialect_texts[which % len(dialect_texts)])
            elif code == AGAIN:
                pieces.append(pieces[-1] * (1 + which % 16))
            else:
                words.append(f"Zq{len(words)}{'z' * 20}")  # longer than a code fence's language may be
                pieces.append(words[-1])
            at += 1 if code == WORD else 2
        else:
            stop = next((i for i in range(at, len(body)) if body[i] >= WORD), len(body))
            pieces.append(_decode(body[at:stop]))
            at = stop
        length += len(pieces[-1])
    text = "".join(pieces)[:MAX_TEXT]
    return text, tuple(word for word in words if word in text)


def decode(data: bytes, dialects: Sequence[Dialect]) -> Case:
    """The case that these bytes stand for."""
    head = data[:HEADER].ljust(HEADER, b"\0")
    dialect = dialects[head[0] % len(dialects)]
    sets = toolsets()
    text, words = _body(data[HEADER:], dialect)
    chance = random.Random(head[3] << 8 | head[4])
    cuts = sorted(chance.randrange(1, len(text)) for _ in range(1 + head[3] % 12)) if len(text) > 1 else []
    return Case(
        dialect,
        text,
        sets[head[1] % len(sets)],
        FINISHES[head[2] // 2 % len(FINISHES)],
        "reasoning" if head[2] % 2 else "text",
        tuple(cuts),
        len(text) * head[5] // 256,
        words,
        head[1] >= 128,
    )


def encode(text: str, dialect: int, tools: int = 1, starts_in: Section = "text", cut: int = 7) -> bytes:
    """Bytes that stand for this text, ended by `stop`."""
    ending = FINISHES.index("stop") * 2 + (starts_in == "reasoning")
    head = bytes((dialect, tools, ending, cut % 256, cut // 256 % 256, cut * 37 % 256))
    return head + text.encode("utf-8", "surrogatepass")


def seeds(dialects: Sequence[Dialect]) -> Iterator[bytes]:
    """Where a fuzzer starts: the samples of these dialects, and what they write themselves."""
    number = itertools.count()
    for row in sample_rows():
        try:
            dialect = get_dialect(row["dialect"].replace("_", "-"))
        except UnknownDialect:  # cases of reasoning alone
            continue
        if dialect in dialects:
            yield encode(row["input"], dialects.index(dialect), 2, row.get("starts_in", "text"), next(number))
    for i, dialect in enumerate(dialects):
        for calls in (*((call,) for call in _CALLS), _CALLS):
            call_text = _call_text(dialect, *calls)
            yield encode(f"Well.\n{call_text}\nDone", i, 1, "text", next(number))
            yield bytes((i, 1, 0, 3, next(number) % 256, 128)) + call_text.encode().replace(b"a.txt", bytes([WORD]))
        for n in range(len(fragments(dialect))):
            yield bytes((i, 1, 0, 3, n, 200, WORD, FRAGMENT, n, WORD, FRAGMENT, n, WORD))
