"""A turn from both sides: what was sent, proved, and what was written, as the parser of its dialect decided."""

from __future__ import annotations

import asyncio
import json

import pytest
from api_servers import APIS, KEY, reach, turn
from command import toolspeak
from web_view import viewing

from toolspeak import Agent, SqliteJournal, tool
from toolspeak.data.events import ModelAnswered, ModelAsked, ModelTextReceived, RetryScheduled, RunFinished
from toolspeak.data.messages import Message, ReasoningPart, TextPart
from toolspeak.dialects import get_dialect
from toolspeak.testing.journal import a_run, write
from toolspeak.web_ui.reply_readings import steps_of
from toolspeak.web_ui.text_spans import text_spans

HERMES = 'I look.\n<tool_call>\n{"name": "read", "arguments": {"path": "a <tool_call> b"}}\n</tool_call>'


@tool(read_only=True)
def look_up(city: str) -> str:
    "Looks up the weather of a city."
    return f"rain in {city}"


def spans(name: str, text: str) -> list[tuple[str, str]]:
    dialect = get_dialect(name)
    return [(each.kind, text[each.start : each.end]) for each in text_spans(dialect, text, steps_of(dialect, text, ()))]


def test_a_marker_is_marked_where_the_parser_acted_on_it_and_nowhere_else():
    assert [text for kind, text in spans("hermes", HERMES) if kind == "marker"] == ["<tool_call>", "</tool_call>"]
    assert ("arguments", '{"path": "a <tool_call> b"}') in spans("hermes", HERMES)
    example = "Write `<tool_call>` before a call, and <b>bold</b>."
    assert spans("hermes", example) == [("text", example)]
    thought = "<think>Should I? <tool_call></think>No."
    assert [each for each in spans("hermes", thought) if each[0] != "frame"] == [
        ("marker", "<think>"), ("thoughts", "Should I? <tool_call>"), ("marker", "</think>"), ("text", "No."),
    ]  # fmt: skip
    mistral = '[TOOL_CALLS][{"name": "read", "arguments": {}}]'
    assert ("marker", "[TOOL_CALLS]") in spans("auto", mistral)


@pytest.mark.parametrize("name", ["hermes", "cogency-json", "qwen3-coder", "llama3-json", "auto"])
def test_spans_are_the_whole_text_at_any_cut(name):
    for end in range(len(HERMES) + 1):
        cut = HERMES[:end]
        parts = spans(name, cut)
        assert "".join(text for _, text in parts) == cut
        assert ("arguments", "<tool_call>") not in parts


def test_what_was_sent_is_read_in_parts_and_printed(tmp_path):
    async def main():
        journal = SqliteJournal(tmp_path / "runs.db")
        async with reach(APIS["openai"], turn("", ("look_up", {"city": "Oslo 😀"})), "Rain.") as api:
            await Agent(api.provider, [look_up], journal=journal).run("Weather?", run_id="sent")
        records = await journal.read("sent")
        first, second = (each.seq for each in records if isinstance(each.event, ModelAsked))
        async with viewing(journal) as view:
            whole = await view.get(f"/runs/sent/records/{second}/request")
            pieces = [
                await view.get(f"/runs/sent/records/{second}/request", start=start, length=100)
                for start in range(0, whole["total"], 100)
            ]
            await view.get("/runs/sent/records/0/request", 404)
            await view.get("/runs/sent/records/0/reading", 404)
            await view.get(f"/runs/nobody/records/{first}/request", 404)
        await journal.aclose()
        return whole, pieces, api.model.bodies

    whole, pieces, bodies = asyncio.run(main())
    assert whole["is_proved"]
    assert whole["note"] == ""
    assert "".join(piece["text"] for piece in pieces) == whole["text"]
    assert json.loads(whole["text"]) == bodies[1]
    assert KEY not in whole["text"]

    options = ("--journal", "runs.db")
    process = toolspeak("show", "sent", "--request", "2", *options, cwd=tmp_path)
    assert (process.returncode, json.loads(process.stdout)) == (0, bodies[1])
    assert whole["digest"].encode() in process.stderr
    missing = toolspeak("show", "sent", "--request", "3", *options, cwd=tmp_path)
    assert (missing.returncode, b"no step 3: it asked the model 2 times" in missing.stderr) == (2, True)
    both = toolspeak("show", "sent", "--request", "1", "--json", *options, cwd=tmp_path)
    assert b"no other option" in both.stderr


def test_what_was_written_is_read_by_the_dialect_of_the_run(tmp_path):
    async def main():
        journal = SqliteJournal(tmp_path / "runs.db")
        events = [
            ModelAsked("m", "", ""), ModelTextReceived(HERMES[:20], "Hm. "), ModelTextReceived(HERMES[20:], "So."),
            ModelAnswered(Message.assistant("x"), "stop"), RunFinished("answered", "", "x"),
        ]  # fmt: skip
        await write(journal, a_run("wrote", *events))
        async with viewing(journal) as view:
            reading = await view.get("/runs/wrote/records/1/reading")
        await journal.aclose()
        return reading

    reading = asyncio.run(main())
    assert (reading["text"], reading["thoughts"], reading["is_cut"]) == (HERMES, "Hm. So.", False)
    assert reading["may_lack_end"], "these records are as an earlier version wrote them"
    marks = [HERMES[each["start"] : each["end"]] for each in reading["spans"] if each["kind"] == "marker"]
    assert marks == ["<tool_call>", "</tool_call>"]


def test_a_reading_is_what_the_model_wrote_to_the_last_character_and_in_its_last_attempt(tmp_path):
    async def main():
        journal = SqliteJournal(tmp_path / "runs.db")
        answer = ModelAnswered(Message.assistant("I look."), "tool_calls", raw_text=HERMES[20:], raw_reasoning="So.")
        again = [
            ModelTextReceived("Hel", "Wrong."),
            RetryScheduled("reset", 0.5),
            ModelTextReceived(HERMES[:20], "Hm. "),
        ]
        await write(journal, a_run("again", ModelAsked("m", "", ""), *again, answer, RunFinished("answered", "", "x")))
        plain = ModelAnswered(Message("assistant", (ReasoningPart("Hm."), TextPart("Yes."))), "stop")
        await write(journal, a_run("plain", ModelAsked("m", "", ""), plain, RunFinished("answered", "Yes.", "answer")))
        async with viewing(journal) as view:
            readings = [await view.get(f"/runs/{name}/records/1/reading") for name in ("again", "plain")]
        await journal.aclose()
        return readings

    again, plain = asyncio.run(main())
    assert (again["text"], again["thoughts"], again["may_lack_end"]) == (HERMES, "Hm. So.", False)
    assert (plain["text"], plain["thoughts"], plain["may_lack_end"]) == ("Yes.", "Hm.", False)
