"""A turn from both sides, in a browser: what was sent, and what was written as the parser read it."""

from __future__ import annotations

from dataclasses import replace

from api_servers import APIS, reach, turn
from browser_pages import browser, check_axe, open_page, run_in_thread, show, ui_server
from playwright.sync_api import expect

from toolspeak import Agent, tool
from toolspeak.data.events import (
    ModelAnswered,
    ModelAsked,
    ModelTextReceived,
    RunFinished,
    ToolFinished,
    ToolStarted,
)
from toolspeak.data.messages import Message, TextPart, ToolCall, ToolResult
from toolspeak.journal import open_journal
from toolspeak.testing.journal import a_run, write

__all__ = ["browser"]  # a fixture

TASK = "Weather? <script>window.hacked = 1</script> \x1b[31m"
RAW_TEXT = 'I look.\n<tool_call>\n{"name": "read", "arguments": {"path": "a <tool_call> \u202e b"}}\n</tool_call>'
DIFF = """--- a/x.py
+++ b/x.py
@@ -1,2 +1,2 @@
-def f(a): return "# no" # <b>old\u202e</b>
+def f(a): return 12
 x = 1
"""


@tool(read_only=True)
def look_up(city: str) -> str:
    "Looks up the weather of a city."
    return DIFF


async def fill(place: str) -> None:
    journal = open_journal(place)
    async with reach(APIS["anthropic"], turn("", ("look_up", {"city": "Oslo"})), "Rain.") as api:
        await Agent(api.provider, [look_up], journal=journal).run(TASK, run_id="sent")
    events = [ModelAsked("m", "", ""), ModelTextReceived(RAW_TEXT), ModelAnswered(Message.assistant("x"), "stop")]
    await write(journal, a_run("wrote", *events, RunFinished("answered", "", "x")))
    await journal.aclose()


def test_what_was_sent_is_shown_with_its_proof_and_what_was_written_with_the_parsers_markers(browser, tmp_path):
    place = str(tmp_path / "runs.db")
    run_in_thread(fill(place))
    with ui_server(place, tmp_path) as server:
        page = open_page(browser, server, bypass_csp=True)
        page.get_by_label("id", exact=True).fill("sen")
        page.keyboard.press("Enter")
        expect(page.locator(".row")).to_have_count(1)
        page.locator(".row").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("⟨ESC⟩")
        page.get_by_role("button", name="What was sent").last.click()
        dialog = page.get_by_role("dialog")
        expect(dialog.locator(".proof.good")).to_contain_text("Verbatim")
        expect(dialog).to_contain_text("max_tokens")
        dialog.get_by_role("button", name="As text").click()
        expect(dialog.get_by_role("region")).to_contain_text("window.hacked = 1</script> \\u001b[31m")
        check_axe(page, "what was sent")
        page.keyboard.press("Escape")
        diff = page.locator(".diff")
        expect(diff.locator(".removed .code-word")).to_have_text(["def", "return"])
        expect(diff.locator(".removed .code-string")).to_have_text(['"# no"'])
        expect(diff.locator(".removed .code-comment")).to_have_text(["# <b>old⟨U+202E⟩</b>"])
        expect(diff.locator(".added .code-number")).to_have_text(["12"])
        check_axe(page, "a diff")
        show(page, server, "wrote")
        page.get_by_text("As it was written").click()
        expect(page.locator(".raw mark")).to_have_text(["<tool_call>", "</tool_call>"])
        expect(page.locator(".raw .arguments-span")).to_contain_text("⟨U+202E⟩")
        assert page.evaluate("window.hacked") is None
        page.context.close()


async def fill_short_failure(place: str) -> None:
    """A call that waits for 20 seconds and fails within a hundred microseconds, in a run of a minute."""
    call = ToolCall("call_1_0", "look_up", {"city": "Oslo"})
    failure = ToolResult("call_1_0", "look_up", "failure", (TextPart("no such city"),))
    answer = ModelAnswered(Message("assistant", (call,)), "tool_calls")
    events = [ModelAsked("m", "", ""), answer, ToolStarted("call_1_0", "look_up", "key"), ToolFinished(failure)]
    records = a_run("short", *events, RunFinished("answered", "", "x"))
    times = (0.0, 0.0, 10.0, 30.0, 30.0001, 60.0)
    journal = open_journal(place)
    await write(journal, [replace(each, time=1000.0 + at) for each, at in zip(records, times, strict=True)])
    await journal.aclose()


def test_a_failure_of_less_than_a_pixel_is_seen_behind_its_wait(browser, tmp_path):
    place = str(tmp_path / "runs.db")
    run_in_thread(fill_short_failure(place))
    with ui_server(place, tmp_path) as server:
        page = open_page(browser, server)
        show(page, server, "short")
        expect(page.locator(".lanes rect.wait")).to_have_count(1)
        expect(page.locator(".lanes rect.failed")).to_have_count(1)
        page.context.close()
