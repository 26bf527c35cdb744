"""What is a call and what is an example of one: the table of docs/design.md 4.1, over every dialect of blocks."""

from __future__ import annotations

from typing import cast

import pytest
from family_checks import examples
from hypothesis import given
from hypothesis import strategies as st

from sweeps import case
from toolspeak import Agent, tool
from toolspeak.data.messages import MalformedCall, Message, TextMessage, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.testing import check_splits, chunks

RUN = ToolSpec("run", "", {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]})
TOOLS = [RUN]
MESSAGES = ("harmony", "muse", "inkling", "functionary-v32", "kimi-k3")
"""Their turns are messages with headers, which say what is a call."""
ALONE = ("plamo3", "command-r-plus", "gigachat3", "dots")
"""Their markers are a special token that no text holds, hold a fence, or end a message."""
NAMES = [each.name for each in DIALECTS if each.name not in MESSAGES + ALONE]


def call_text(dialect: Dialect) -> str:
    (message,) = dialect.render([Message("assistant", (ToolCall("1", "run", {"command": "ls"}),))], TOOLS)
    return message.text.strip()  # some begin a line of their own


CALL, TEXT, REPORT = "call", "text", "told"
LONG = "This is how the format works, and what it is good for. " * 6
ROWS = [
    ("{call}", CALL),
    ("I look.\n{call}\n", CALL),
    ("I look. {call}", CALL),
    ("```xml\n{call}\n```", CALL),
    ("I look.\n\n```xml\n{call}\n```\n", CALL),
    ("```py\nprint(1)\n```\n{call}", CALL),
    ("````md\n```\nx\n```\n````\n{call}", CALL),
    ("The ``` marks code.\n{call}", CALL),
    ("Like this:\n```xml\n{call}\n```\n", REPORT),
    (LONG + "\n```xml\n{call}\n```\n", REPORT),
    ("```xml\n{call}\n```\nThat is it.", REPORT),
    ("```py\nx = 1\n{call}\n", REPORT),
    ("Like this:\n```xml\n{call}\n```\nThat is it.", TEXT),
    ("Like this:\n```xml\n{call}\n{call}\n```\nThat is it.", TEXT),
    ("```py\nx = 1\n{call}\n```\nSo.", TEXT),
    ("To list, use `{call}`, which lists.", TEXT),
    ("To list, use {call} and so on.", TEXT),
    ("To list, use {call}, which lists.", TEXT),
    # Code blocks, as CommonMark has them.
    ("~~~xml\n{call}\n~~~", CALL),
    ("````xml\n{call}\n````", CALL),
    ("~~~py\n```\n~~~\n{call}", CALL),
    ("```py\nprint('```')\n```\n{call}", CALL),
    ("~~~\n{call}\n~~~\nThat is it.", REPORT),
    ("Like this:\n\n~~~xml\n{call}\n~~~\n", REPORT),
    ("So:\n~~~py\n```\n{call}\n```\n~~~\nThat is it.", TEXT),
    ("So:\n````md\n```xml\n{call}\n```\n````\nThat is it.", TEXT),
    ("So:\n````md\nIt is\n```xml\n{call}\n```\n````\nThat is it.", TEXT),
    ("So:\n```md\n# ~~~\n{call}\n```\nThat is it.", TEXT),
    ("- So:\n\n  ```xml\n  {call}\n  ```\n- That is it.", TEXT),
    ("- ```\n  Well:\n  {call}\n  ```\n- That is it.", TEXT),
    ("1. So:\n    ~~~\n    Well:\n    {call}\n    ~~~\n2. That is it.", TEXT),
    ("It is ``x ` {call}`` here.", TEXT),
    # Quotations, tables, emphasis, elements of HTML.
    ("> {call}\n\nThat is it.", TEXT),
    ("> ```\n> So:\n> {call}\n\n{call}", CALL),
    ("You write\n\n> {call}\n", REPORT),
    ("| a | {call} |\n| b | c |\n\nThat is it.", TEXT),
    ("| a | {call}\n| b | c\n\nThat is it.", TEXT),
    ("So **{call}** lists.", TEXT),
    ("**{call}** lists.", TEXT),
    ("So *{call}* lists.", TEXT),
    ("<pre>\n{call}\n</pre>\nThat is it.", TEXT),
    ("So <code>{call}</code> lists.", TEXT),
    ("<pre><code>x = 1\n\n{call}\n</code></pre>\nThat is it.", TEXT),
    ("<table><tr><td>{call}</td></tr></table>\n\nThat is it.", TEXT),
    ("<b>{call}</b> lists.", TEXT),
    ("~~{call}~~ is old.", TEXT),
    ("To list, write e.g. {call} in a line.", TEXT),
    ("Zum Beispiel, d. h. {call} und so weiter.", TEXT),
    ("So it is … {call} and so on.", TEXT),
    ("Let me see… {call}", CALL),
    ("So it is in <b>bold</b>: {call}", CALL),
    ("Use <code>x</code> for it.\n{call}", CALL),
    ("<pre>\n{call}\n</pre>\n{call}", CALL),
    ("To list, use {call}, which lists.\n\n{call}", CALL),
    ("**I look.** {call}", CALL),
    ("- {call}\n", CALL),
    ("1. {call}\n", CALL),
    # Other languages.
    ("« {call} » liste les fichiers.", TEXT),
    ("«{call}» перечисляет файлы.", TEXT),
    ("Mit „{call}“ listet man auf.", TEXT),
    ("»{call}« listet auf.", TEXT),
    ("「{call}」と書きます。", TEXT),
    ("写 {call}。", TEXT),
    ("写 {call}，然后运行。", TEXT),
    ("请用 {call} 来列出文件。", TEXT),
    ("请用{call}来列出文件。", TEXT),
    ("هل {call}؟", TEXT),
    ("我来看看。{call}", CALL),
    ("我来看看\n{call}", CALL),
    ("¿Lo hago? {call}", CALL),
]


@pytest.mark.parametrize(("row", "what"), ROWS)
def test_the_table_holds_in_every_dialect(row: str, what: str):
    for name in NAMES:
        dialect = get_dialect(name)
        if not (call_text(dialect)[0].isalpha() and "use" in row):  # a word that begins a call begins a line
            with case(name):
                check_row(dialect, row, what)


def check_row(dialect: Dialect, row: str, what: str):
    text = row.replace("{call}", call_text(dialect))
    turn = read_turn(dialect, text, TOOLS)
    check_splits(dialect, text, TOOLS, splits=[list(text), list(chunks(text, 5))])
    run = [call for call in turn.calls if isinstance(call, ToolCall)]
    assert bool(run) == (what == CALL), turn.calls
    if what != CALL:
        assert turn.text == text
        assert [getattr(call, "code", "") for call in turn.calls] == (["quoted_call"] if what == REPORT else [])


FAMILIES = (
    *("hermes", "qwen3-coder", "glm45", "minimax-m2", "deepseek-v3", "kimi-k2", "mistral-v11", "llama3-json"),
    *("cogency-xml", "gemma4", "pythonic", "auto"),
)


@given(
    name=st.sampled_from(FAMILIES),
    rows=st.lists(st.sampled_from([row for row, what in ROWS if what == TEXT]), min_size=1, max_size=4),
    calls=st.booleans(),
)
@examples(150)
def test_a_text_of_examples_stays_text_and_the_call_after_it_runs(name: str, rows: list[str], calls: bool):
    dialect = get_dialect(name)
    call = call_text(get_dialect("hermes") if name == "auto" else dialect)
    prose = "\n\n".join(["Well.", *rows]).replace("{call}", call) + "\n\n"
    text = prose + call * calls
    turn = read_turn(dialect, text, TOOLS)
    reports = [each for each in turn.calls if isinstance(each, MalformedCall)]  # of those in sentences
    assert {each.code for each in reports} <= {"quoted_call"}
    assert len(turn.calls) - len(reports) == calls
    assert turn.text == prose
    check_splits(dialect, text, TOOLS, splits=[list(chunks(text, 1)), list(chunks(text, 7))])


BARE = '{"name": "run", "arguments": {"command": "ls"}}'
WHOLE = [
    "```json\n{call}\n```",
    "```\n{call}\n```\n",
    "```{call}```",
    "~~~json\n{call}\n~~~",
    "<think>x</think>\n```\n{call}\n```",
]


@pytest.mark.parametrize("text", WHOLE)
def test_a_bare_call_in_a_fence_is_read_where_bare_calls_are_what_the_model_writes(text: str):
    for name in (*NAMES, "auto"):
        if "think" in text and name == "llama3-json":
            continue  # it has no thoughts
        turn = read_turn(get_dialect(name), text.replace("{call}", BARE), TOOLS)
        runs = [call for call in turn.calls if isinstance(call, ToolCall)]
        bare = name in ("llama3-json", "granite3", "xlam", "pythonic", "llama4-pythonic", "auto")
        assert bool(runs) == bare, name


@pytest.mark.parametrize("name", NAMES)
def test_a_block_quote_of_several_lines_is_one(name: str):
    dialect = get_dialect(name)
    text = f"You write\n\n> {call_text(dialect)}\n\nand that is all.".replace("\n", "\n> ")
    turn = read_turn(dialect, text, TOOLS)
    assert not [call for call in turn.calls if isinstance(call, ToolCall)]
    assert "that is all" in turn.text
    check_splits(dialect, text, TOOLS, splits=[list(text), list(chunks(text, 5))])


INDENTED_CALL = "<function=run>\n    <parameter=command>\n    ls\n    </parameter>\n    </function>"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qwen3-coder", f"You write:\n\n    {INDENTED_CALL}\n\nand the command runs."),
        ("minimax-m2", 'Use <invoke name="run"><parameter name="command">ls</parameter></invoke> to do so.'),
        ("hermes", '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>'.join(["```\n", "\n```\nlike so"])),
    ],
)
def test_an_example_in_prose_is_text(name: str, text: str):
    turn = read_turn(get_dialect(name), text, TOOLS)
    assert (turn.calls, turn.text) == ((), text)


@tool(read_only=True)
def run(command: str) -> str:
    """Runs a command."""
    raise AssertionError("an example ran")


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "minimax-m2", "cogency-json", "tool-call", "auto"])
def test_a_run_continues_where_an_example_may_have_been_meant(name: str):
    example = call_text(get_dialect("cogency-json" if name == "auto" else name))
    reply = f"Like this:\n```\n{example}\n```"
    provider = ScriptedProvider([reply, "x"])
    result = Agent(provider, [run], dialect=name).run_sync("go")
    assert result.answer == "x"
    messages = [cast("TextMessage", each) for each in provider.requests[1].messages]
    assert "did not run" in messages[-1].text
    assert messages[-2].text == reply


def test_a_call_after_an_example_runs_alone():
    call = call_text(get_dialect("hermes"))
    turn = read_turn(get_dialect("hermes"), f"Not\n```\n{call}\n```\nbut\n{call}", TOOLS)
    assert [type(each) for each in turn.calls] == [ToolCall]
    assert turn.text == f"Not\n```\n{call}\n```\nbut\n"


def test_under_repair_an_example_stays_one():
    call = call_text(get_dialect("hermes"))
    turn = read_turn(get_dialect("hermes", strict_detection=True), f"Like this:\n```\n{call}\n```\nso", TOOLS)
    assert turn.calls == ()
    assert not [each for each in turn.ignored_calls if not isinstance(each.call, MalformedCall)]


FRAMES = {  # a message to the user, and the text before the next one
    "solar-open": ("<|content|>", "<|end|><|begin|>assistant"),
    "inkling": ("<|content_text|>", "<|end_message|><|message_model|>"),
    "kimi-k3": ("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
    "cohere-command": ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_code_block_without_its_end_goes_no_further_than_its_message(name: str):
    dialect = get_dialect(name)
    start, end = FRAMES[name]
    call = dialect.render([Message("assistant", (ToolCall("callid000", "read", {"file": "a"}),))], TOOLS)[0].text
    text = f"{start}Look:\n```py\nx = 1\n{end}{call}"
    turn = read_turn(dialect, text, TOOLS)
    assert [type(each) for each in turn.calls] == [ToolCall]
    assert turn.text == "Look:\n```py\nx = 1\n"
    check_splits(dialect, text, TOOLS)
    text_with_fence = f"{text}\n```\nSo it goes on."
    assert not [each for each in read_turn(dialect, text_with_fence, TOOLS).calls if isinstance(each, ToolCall)]
    check_splits(dialect, text_with_fence, TOOLS)
