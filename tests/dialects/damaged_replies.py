"""Replies that are damaged, quoted or cut on purpose, and the meaning of each, which the damage decides."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from toolspeak.data.messages import Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import PROTOCOLS, Dialect

Call = tuple[str, dict[str, Any]]
Rule = Literal["runs", "runs or is reported", "never runs"]

_STRING = {"type": "string"}


def _spec(name: str, properties: dict[str, Any], *optional: str) -> ToolSpec:
    required_names = [each for each in properties if each not in optional]
    schema = {"type": "object", "properties": properties, "required": required_names, "additionalProperties": False}
    return ToolSpec(name, f"The tool {name}.", schema)


TOOLS = (
    _spec("read_file", {"path": _STRING}),
    _spec("run", {"command": _STRING, "timeout": {"type": "integer"}, "verbose": {"type": "boolean"}}, "verbose"),
    _spec("write_file", {"path": _STRING, "content": _STRING}),
)
READ: Call = ("read_file", {"path": "src/app.py"})
RUN: Call = ("run", {"command": "ls -la", "timeout": 5, "verbose": True})
WRITE: Call = ("write_file", {"path": "notes.md", "content": "VALUE"})
CODE = 'if a < b and c != "x":\n    print(f"<b>{a:>3}</b>", [1, {"k": \'v\'}])  # 50 %\n'
BEFORE, AFTER = "I will look at it first.", "That is how it is written, and no call is made here."


@dataclass(frozen=True, slots=True)
class Case:
    """A reply of a dialect. It was made from `expected_calls`, and `rule` says what may become of them. No other call
    may run. `visible_text` must be shown. With `quotes`, the reply shows calls as examples, so their markup is text."""

    kind: str
    text: str
    expected_calls: tuple[Call, ...]
    rule: Rule = "runs"
    visible_text: tuple[str, ...] = ()
    cut: bool = False
    thinks: bool = False
    quotes: bool = False


def call_text(dialect: Dialect, *calls: Call) -> str:
    """The calls as the model's chat template writes them."""
    tool_calls = tuple(ToolCall(f"callid00{i}", name, arguments) for i, (name, arguments) in enumerate(calls))
    return dialect.render([Message("assistant", tool_calls)], TOOLS)[0].text


def cases(dialect: Dialect) -> Iterator[Case]:
    """All of a dialect, each text once."""
    texts = set[str]()
    for case in _all(dialect):
        if case.text not in texts:
            texts.add(case.text)
            yield case


def _all(dialect: Dialect) -> Iterator[Case]:
    several = dialect.batch.max_calls is None and dialect.batch.counts != "last_call"
    read, run = call_text(dialect, READ), call_text(dialect, RUN)
    yield Case("well-formed", read, (READ,))
    yield Case("well-formed", run, (RUN,))
    if several:
        yield Case("well-formed", call_text(dialect, READ, RUN), (READ, RUN))
    yield Case("text before", f"{BEFORE}\n\n{run}", (RUN,), visible_text=(BEFORE,))
    if several and dialect.batch.counts == "all_calls":
        yield Case("text between", f"{read}\nAnd then:\n{run}", (READ, RUN), "runs or is reported")
    yield from _values(dialect)
    yield from _damaged_cases(dialect, run)
    yield from _cuts(run)
    yield from _quoted_cases(run)
    yield from _thought(dialect, read, run)
    if run.startswith("<tool_call>") and dialect.name != "hermes":
        name, arguments = RUN
        hermes = f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
        yield Case("another spelling", hermes, (RUN,), "runs or is reported")


def _values(dialect: Dialect) -> Iterator[Case]:
    """Values that hold markup: HTML, an end tag of the dialect, a whole call of it."""
    plain = call_text(dialect, WRITE)
    tags = [each[0] for each in TAG.finditer(plain)]
    ends = [tag for tag in tags if "/" in tag or "end" in tag.lower() or tag.endswith("|>")]
    values = [CODE, *(f"a {tag} b" for tag in dict.fromkeys(ends)), f"Write it so:\n{call_text(dialect, READ)}\nDone."]
    for value in values:
        text = _with_value(dialect, plain, value)
        if text:
            yield Case("markup in a value", text, (("write_file", {"path": "notes.md", "content": value}),))


def _with_value(dialect: Dialect, plain: str, value: str) -> str:
    """The call with this value, as a model writes it that escapes nothing but what its format has escapes for."""
    if dialect in PROTOCOLS or "python" in dialect.info.arguments.lower() or plain.count("VALUE") != 1:
        return call_text(dialect, ("write_file", {"path": "notes.md", "content": value}))
    is_quoted = '"VALUE"' in plain
    written_value = json.dumps(value, ensure_ascii=False)[1:-1] if is_quoted else value
    return plain.replace("VALUE", written_value)


TAG = re.compile(r"(?:\]<\]minimax\[>\[)?<[^<>\n]{1,80}>|\[/?[A-Z_]+\]")


def _damaged_cases(dialect: Dialect, run: str) -> Iterator[Case]:
    tags = list(TAG.finditer(run))
    for each in tags:
        start, stop, tag = each.start(), each.end(), each[0]
        for kind, put in (
            ("a tag is missing", ""),
            ("a tag stands twice", tag * 2),
            ("a tag is damaged", tag[:-1]),
            ("a tag is damaged", tag.swapcase()),
        ):
            yield Case(kind, run[:start] + put + run[stop:], (RUN,), "runs or is reported")
    if tags:
        end = tags[0].end()
        yield Case("text after a marker", f"{run[:end]}Sure!\n{run[end:]}", (RUN,), "runs or is reported")
    yield from _damaged_json(run)


def _damaged_json(run: str) -> Iterator[Case]:
    if '"ls -la"' not in run:
        return
    for kind, text in (
        ("damaged JSON", run.replace('"', "'")),
        ("damaged JSON", run.replace('"verbose": true', '"verbose": true,')),
        ("damaged JSON", run.replace('"timeout": 5', '"timeout": 5 // seconds\n')),
        ("damaged JSON", run.replace("true}", "true")),
        ("damaged JSON", run.replace("true}", "true}}")),
    ):
        if text != run:
            yield Case(kind, text, (RUN,), "runs or is reported")
    line = run.replace("ls -la", "ls\n-la")
    run_call: Call = ("run", {**RUN[1], "command": "ls\n-la"})
    yield Case("damaged JSON", line, (run_call,), "runs or is reported")


def _cuts(run: str) -> Iterator[Case]:
    """The token limit ends the reply: inside of an argument, and after the last one."""
    first, last = run.index("ls -la"), max(run.rfind("true"), run.rfind("True"), run.rfind("5"))
    for stop in (first + 2, first + 6, (first + last) // 2, last, last + 2):
        yield Case("cut", run[:stop], (RUN,), "never runs", cut=True)
    for stop in (last + 4, (last + 4 + len(run)) // 2, len(run) - 1):
        if last + 4 <= stop < len(run):
            yield Case("cut", run[:stop], (RUN,), "runs or is reported", cut=True)


def _quoted_cases(run: str) -> Iterator[Case]:
    if "```" not in run:
        example = f"A call looks like this:\n\n```\n{run}\n```\n\n{AFTER}"
        yield Case("an example", example, (), "never runs", visible_text=(AFTER,), quotes=True)
    if "\n" not in run and "`" not in run:
        yield Case(
            "an example", f"Write `{run}` to list files. {AFTER}", (), "never runs", visible_text=(AFTER,), quotes=True
        )


def _thought(dialect: Dialect, read: str, run: str) -> Iterator[Case]:
    markers = [
        each for each in getattr(dialect, "grammar_parts", lambda: ((), (), ()))()[1] if each.kind == "reasoning"
    ]
    if not markers or not markers[0].end or dialect.info.reasoning == "":
        return
    start, end = markers[0].text + markers[0].label, markers[0].end
    thought = Case("thoughts", f"{start}It is a small file.{end}{run}", (RUN,), thinks=True)
    yield thought
    if end in read:
        return  # a draft would end the thought
    yield replace(thought, text=f"{start}I could write {read} but no.{end}{run}")
    yield replace(
        thought, text=f"{start}I could write\n{read}\nbut no.{end}{BEFORE}", expected_calls=(), visible_text=(BEFORE,)
    )
    rule: Rule = "never runs" if dialect in PROTOCOLS else "runs or is reported"
    yield replace(thought, kind="a call in open thoughts", text=f"{start}I will look.\n{run}", rule=rule)


_TYPES = {"string": str, "integer": int, "boolean": bool}


def can_run(call: Call) -> bool:
    """Whether a tool takes the call: every runtime checks that, and tells the model what is wrong."""
    name, arguments = call
    spec = next((each for each in TOOLS if each.name == name), None)
    if spec is None or not set(spec.parameters["required"]) <= set(arguments) <= set(spec.properties):
        return False
    return all(type(value) is _TYPES[spec.properties[key]["type"]] for key, value in arguments.items())


@dataclass(frozen=True, slots=True)
class Reading:
    """What somebody made of a reply. `reported`: a call that cannot run is named to the model."""

    text: str
    calls_run: tuple[Call, ...]
    reported: bool = False


@dataclass(slots=True)
class Count:
    """What went wrong, in calls; `text` counts replies."""

    lost_calls: int = 0
    invented_calls: int = 0
    wrong: int = 0
    text: int = 0

    def add(self, other: Count) -> None:
        self.lost_calls += other.lost_calls
        self.invented_calls += other.invented_calls
        self.wrong += other.wrong
        self.text += other.text

    @property
    def figures(self) -> list[int]:
        return [self.lost_calls, self.invented_calls, self.wrong, self.text]


def judge(case: Case, texts: Reading) -> Count:
    """Holds a reading against what was meant."""
    count, open_calls = Count(), list(case.expected_calls)
    rest: list[Call] = []
    for call in texts.calls_run:
        if case.rule != "never runs" and call in open_calls:
            open_calls.remove(call)
        else:
            rest.append(call)
    for name, _ in rest:
        expected_calls = next((each for each in open_calls if each[0] == name), None)
        if expected_calls is None:
            count.invented_calls += 1
        else:
            count.wrong += 1
            open_calls.remove(expected_calls)
    if case.rule == "runs" or (case.rule == "runs or is reported" and not texts.reported):
        count.lost_calls = len(open_calls)
    missing = any(visible_text not in texts.text for visible_text in case.visible_text)
    count.text = int(missing or (not case.quotes and _leaks(case, texts.text)))
    return count


def _leaks(case: Case, text: str) -> bool:
    """Whether a call's markup, or what it was made of, is shown as the answer."""
    written_value = text
    for visible_text in case.visible_text:
        written_value = written_value.replace(visible_text, "")
    names: Sequence[str] = [name for name, _ in case.expected_calls]
    return (
        TAG.search(written_value) is not None
        or any(name in written_value for name in names if name != "run")
        or "ls -la" in written_value
    )
