"""A turn from both sides, in a browser: what was sent, and what was written as the parser read it."""

from __future__ import annotations

from api_servers import APIS, reach, turn
from browser_pages import awaited, browser, check_axe, open_page, served, show
from playwright.sync_api import expect

from toolspeak import Agent, tool
from toolspeak.data.events import ModelAnswered, ModelAsked, ModelTextReceived, RunFinished
from toolspeak.data.messages import Message
from toolspeak.journal import open_journal
from toolspeak.testing.journal import a_run, write

__all__ = ["browser"]  # a fixture

TASK = "Weather? <script>window.hacked = 1</script> \x1b[31m"
WRITTEN = 'I look.\n<tool_call>\n{"name": "read", "arguments": {"path": "a <tool_call> \u202e b"}}\n</tool_call>'
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
    async with reach(APIS["anthropic"], turn("", ("look_up", {"city": "Oslo"})), "Rain.") as reached:
        await Agent(reached.provider, [look_up], journal=journal).run(TASK, run_id="sent")
    events = [ModelAsked("m", "", ""), ModelTextReceived(WRITTEN), ModelAnswered(Message.assistant("x"), "stop")]
    await write(journal, a_run("wrote", *events, RunFinished("answered", "", "x")))
    await journal.aclose()


def test_what_was_sent_is_shown_with_its_proof_and_what_was_written_with_the_parsers_markers(browser, tmp_path):
    place = str(tmp_path / "runs.db")
    awaited(fill(place))
    with served(place, tmp_path) as server:
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
