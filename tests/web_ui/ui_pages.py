"""The pages in a browser: what people do there, with a real server, a worker and hostile content."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from browser_pages import (
    SCREENSHOTS,
    browser,
    check_axe,
    open_page,
    records_of,
    run_in_thread,
    show,
    ui_server,
    working,
)
from page_runs import LINE, WORDS, odd_run
from playwright.sync_api import Page, expect
from postgres_server import postgres
from ui_server import fill

from toolspeak import Agent, tool
from toolspeak.data.codec import load
from toolspeak.data.events import ModelAnswered, UserMessageQueued
from toolspeak.gateway.settings.api_keys import digest
from toolspeak.journal import open_journal
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.testing.journal import a_run, write

__all__ = ["browser"]  # a fixture

ANN, BOB = "a" * 24, "b" * 24
KEYS = f"""
[[key]]
name = "ann"
sha256 = "{digest(ANN)}"
roles = ["approve", "run"]

[[key]]
name = "bob"
sha256 = "{digest(BOB)}"
roles = ["approve"]
"""


@pytest.fixture(scope="session")
def postgres_url():
    with postgres() as url:
        yield url


@pytest.fixture(scope="module")
def filled_journal(tmp_path_factory):
    """A journal with the runs of the pages. Nobody opens it again: tests copy it."""
    place = str(tmp_path_factory.mktemp("filled") / "runs.db")
    run_in_thread(fill(place))
    return place


@pytest.fixture
def journal(filled_journal, tmp_path):
    """A journal of one test, which it may change."""
    return shutil.copy(filled_journal, tmp_path / "runs.db")


@pytest.fixture(scope="module")
def reader(filled_journal, tmp_path_factory):
    """A server for tests that change no run."""
    home = tmp_path_factory.mktemp("reader")
    with ui_server(shutil.copy(filled_journal, home / "runs.db"), home) as server:
        yield server


def chip(page: Page):
    return page.locator(".status .chip")


def show_whole_question(page: Page):
    """Unfolds all that is cut in the question, one part after the other."""
    more = page.locator(".ask button.more")
    while more.count():
        label = more.inner_text()
        more.click()
        page.wait_for_function(
            "before => { const next = document.querySelector('.ask button.more');"
            " return !next || (!next.disabled && next.textContent !== before); }",
            arg=label,
        )


# --- what people do -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_question_is_answered_and_the_run_goes_on_before_ones_eyes(browser, store, tmp_path, request):
    place = str(tmp_path / "runs.db") if store == "sqlite" else request.getfixturevalue("postgres_url")
    run_in_thread(fill(place))
    with ui_server(place, tmp_path, worker=True) as server:
        page = open_page(browser, server)
        page.get_by_label("Status").select_option("awaiting_approval")
        page.get_by_role("link", name="Refund the damaged order 4711").click()
        question = page.locator(".ask")
        expect(question).to_contain_text("damaged in transit")
        expect(question.locator(".diff .added", has_text="+refunded: 20.0")).to_be_visible()
        question.get_by_role("button", name="Approve", exact=True).click()
        expect(chip(page)).to_have_text("answered")
        expect(page.locator(".conversation")).to_contain_text("Done: the order is refunded.")
        expect(page.locator(".call")).to_contain_text("refunded 20.0 for 4711")
        expect(page.locator(".questions")).to_be_hidden()
        page.context.close()
    (decision,) = [
        record.event for record in records_of(place, "asks") if type(record.event).__name__ == "ApprovalDecided"
    ]
    assert decision.approved
    assert decision.by


def test_a_refusal_an_edit_and_a_rule_reach_the_run(browser, journal, tmp_path):
    with ui_server(journal, tmp_path) as server:
        page = open_page(browser, server)
        show(page, server, "asks")
        question = page.locator(".ask")
        question.get_by_text("Edit the arguments").click()
        editor = question.get_by_label("Arguments as JSON")
        editor.fill("[1]")
        question.get_by_role("button", name="Approve with these arguments").click()
        expect(question.get_by_role("alert")).to_contain_text("These are no arguments")
        editor.fill(json.dumps({"order": "4711", "amount": 5}))
        question.get_by_role("button", name="Approve with these arguments").click()
        expect(question).to_contain_text("approved by")
        expect(question.get_by_role("button", name="Approve", exact=True)).to_be_hidden()
        page.context.close()


def test_a_call_shows_the_arguments_with_which_it_ran(browser, journal, tmp_path):
    with ui_server(journal, tmp_path, worker=True) as server:
        page = open_page(browser, server)
        show(page, server, "asks")
        question = page.locator(".ask")
        question.get_by_text("Edit the arguments").click()
        expect(question.get_by_role("button", name="Approve", exact=True)).to_be_hidden()
        question.get_by_label("Arguments as JSON").fill(json.dumps({"order": "4711", "amount": 5}))
        question.get_by_role("button", name="Approve with these arguments").click()
        call = page.locator(".call")
        expect(call).to_contain_text("refunded 5.0 for 4711")
        expect(call).to_contain_text("It ran with")
        expect(call.get_by_text("The model asked for")).to_be_visible()
        expect(page.locator(".timeline")).to_contain_text('refund("4711", 5)')
        page.context.close()


def test_long_arguments_are_whole_before_they_are_edited(browser, tmp_path):
    """The record has their beginning, and the browser's numbers have fewer digits."""
    place, note, number = str(tmp_path / "runs.db"), "ä\n" * 400_000, 12345678901234567890123

    @tool
    def book(number: int, note: str, amount: float = 1.0) -> str:
        "Books an order."
        return f"booked {number}"

    async def make():
        journal = open_journal(place)
        call = ScriptedCall("book", {"number": number, "note": note, "amount": 2.0})
        shop = Agent(
            ScriptedProvider([ScriptedTurn("", calls=(call,)), "ok"]), [book], dialect="native", journal=journal
        )
        await shop.run("Book it", run_id="long")
        await journal.aclose()

    async def decision():
        journal = open_journal(place)
        (entry,) = await journal.inputs("long")
        await journal.aclose()
        return load(entry.data)

    run_in_thread(make())
    with ui_server(place, tmp_path) as server:
        page = open_page(browser, server)
        show(page, server, "long")
        question = page.locator(".ask")
        expect(question.get_by_label("Always approve").locator("option")).to_have_text(
            ["exactly this call", "every call of book"]
        )
        show_whole_question(page)
        question.get_by_text("Edit the arguments").click()
        editor = question.get_by_label("Arguments as JSON")
        expect(editor).to_be_enabled()
        whole_text = editor.input_value()
        assert json.loads(whole_text) == {"number": number, "note": note, "amount": 2.0}
        editor.fill(whole_text.replace("2.0", "3.5"))
        question.get_by_role("button", name="Approve with these arguments").click()
        expect(question).to_contain_text("approved by")
        page.context.close()
    assert run_in_thread(decision()).arguments == {"number": number, "note": note, "amount": 3.5}


def test_two_browsers_race_and_one_is_told_who_was_faster(browser, journal, tmp_path):
    (tmp_path / "keys.toml").write_text(KEYS)
    with ui_server(journal, tmp_path, "--keys", str(tmp_path / "keys.toml")) as server:
        pages = [open_page(browser, server, key=ANN), open_page(browser, server, key=BOB)]
        for page in pages:
            show(page, server, "asks")
            expect(page.locator(".ask").get_by_role("button", name="Approve", exact=True)).to_be_enabled()
        # The second click leaves before the first browser's answer can have reached the second page.
        for page in pages:
            page.evaluate("() => void setTimeout(() => document.querySelector('.ask .main').click(), 50)")
        notices = [page.locator(".notice") for page in pages]
        for each in notices:
            expect(each).to_have_count(1)
        texts = [each.inner_text() for each in notices]
        assert sum("Approved." in text for text in texts) == 1, texts
        assert sum(bool(re.search("Too late: (ann|bob) has decided", text)) for text in texts) == 1, texts
        winner = "ann" if "Approved." in texts[0] else "bob"
        for page in pages:
            expect(page.locator(".ask")).to_contain_text(f"approved by {winner}")
        expect(pages[1].get_by_role("button", name="Suspend")).to_have_count(0)
        for page in pages:
            page.context.close()


def test_a_run_is_talked_to_suspended_resumed_and_forked(browser, journal, tmp_path):
    with ui_server(journal, tmp_path, worker=True) as server:
        page = open_page(browser, server)
        page.get_by_role("button", name="New run").click()
        page.get_by_label("Agent", exact=True).last.fill("ear")
        page.get_by_label("Task").fill("Hello, ear")
        page.get_by_role("button", name="Start").click()
        expect(page.locator(".conversation")).to_contain_text("heard: Hello, ear")
        expect(chip(page)).to_have_text("answered")
        page.get_by_role("button", name="Fork", exact=True).click()
        page.get_by_label("Task").fill("And again")
        page.get_by_role("dialog").get_by_role("button", name="Fork").click()
        expect(page.locator(".conversation")).to_contain_text("heard: And again")
        expect(page.locator(".conversation")).to_contain_text("The run goes on from 2 earlier messages.")
        show(page, server, "asks")
        page.get_by_placeholder("Say something to the run").fill("It is urgent.")
        page.get_by_role("button", name="Say", exact=True).click()
        expect(page.locator(".message.user", has_text="It is urgent.")).to_be_visible()
        page.context.close()
    assert any(isinstance(record.event, UserMessageQueued) for record in records_of(journal, "asks"))
    with ui_server(journal, tmp_path) as server:  # no worker takes it from here
        page = open_page(browser, server)
        page.get_by_role("button", name="New run").click()
        page.get_by_label("Agent", exact=True).last.fill("nobody")
        page.get_by_label("Task").fill("Wait")
        page.get_by_role("button", name="Start").click()
        expect(chip(page)).to_have_text("queued")
        page.get_by_role("button", name="Suspend").click()
        expect(chip(page)).to_have_text("suspended")
        page.get_by_role("button", name="Resume").click()
        expect(page.locator(".notice").last).to_contain_text("A worker will go on")
        page.context.close()


def test_the_keyboard_and_the_timeline_lead_to_records(browser, reader):
    page = open_page(browser, reader)
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("degrees nobody writes")
    page.keyboard.press("Enter")
    expect(page.locator(".matches")).to_contain_text("No text has these words")
    page.get_by_role("searchbox").fill("side Oslo temperature")
    page.get_by_role("searchbox").fill("notes could not")
    page.keyboard.press("Enter")
    page.locator(".match").first.click()
    expect(page.locator(".part.flash")).to_contain_text("The notes could not be read")
    page.keyboard.press("t")
    timeline = page.locator(".lanes")
    expect(timeline).to_be_focused()
    expect(timeline.locator("[data-bar]").first).to_be_visible()  # it comes after the conversation
    for key in ("ArrowDown", "ArrowDown", "+", "-", "0"):
        page.keyboard.press(key)
    expect(page.locator(".timeline .info")).to_contain_text("look_up")
    page.keyboard.press("Enter")
    expect(page.locator(".part:focus")).to_have_count(1)
    failed_bar = timeline.locator("rect.failed").first
    failed_bar.dispatch_event("pointerdown", {"button": 0})
    failed_bar.dispatch_event("pointerup", {"button": 0})
    expect(page.locator(".part.call.flash")).to_contain_text("there are no notes named")
    page.get_by_role("button", name="What the model read").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("What the model read: 1 messages")
    page.keyboard.press("Escape")
    page.keyboard.press("k")
    page.keyboard.press("u")
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    page.context.close()


def test_the_playground_shows_where_a_dialect_knows_what(browser, reader):
    page = open_page(browser, reader)
    page.get_by_role("link", name="Playground").click()
    expect(page.locator(".read")).to_contain_text("CallCompleted")
    expect(page.locator(".dialects")).to_contain_text("hermes")
    page.get_by_role("slider").fill("5")
    expect(page.locator(".read")).to_contain_text("I loo")
    expect(page.locator(".read")).not_to_contain_text("CallCompleted")
    page.get_by_role("textbox", name="Reply").fill("<script>window.hacked = 1</script> no call")
    expect(page.locator(".others")).to_contain_text("dialects read no call in it")
    expect(page.locator(".read")).to_contain_text("<script>window.hacked = 1</script>")
    assert page.evaluate("window.hacked") is None
    page.context.close()


def test_two_runs_stand_side_by_side_where_they_part(browser, reader):
    page = open_page(browser, reader)
    show(page, reader, "slow")
    page.get_by_role("button", name="Compare").click()
    page.get_by_label("Its id").fill("asks")
    page.get_by_role("button", name="Compare").last.click()
    expect(page.get_by_role("status").first).to_contain_text("The runs are the same for 0 records")
    expect(page.locator(".side").nth(0)).to_contain_text("What is the weather in Berlin, Oslo and Rome?")
    expect(page.locator(".side").nth(1)).to_contain_text("Refund the damaged order 4711")
    expect(page.locator(".part.flash")).to_have_count(2)
    page.context.close()


# --- live -----------------------------------------------------------------------------------------------------------


def test_a_killed_server_comes_back_and_nothing_is_lost_or_doubled(browser, journal, tmp_path):
    with ui_server(journal, tmp_path) as server:
        page = open_page(browser, server)
        show(page, server, "writer")
        with working(journal):
            words = page.locator(".writing .text")
            expect(words).to_contain_text("word40 ")
            server.kill()
            expect(page.locator(".connection")).to_contain_text("trying again")
            server.start()
            expect(page.locator(".connection")).to_have_text("live")
            expect(words).to_contain_text("word40 ")
            words_now = words.inner_text().split()
            # The checkpoints have what was missed.
            assert words_now == [f"word{number}" for number in range(len(words_now))]
            Path(f"{journal}.gate").touch()
            expect(chip(page)).to_have_text("answered")
        expect(page.locator(".message.assistant")).to_have_count(1)
        text = page.locator(".message.assistant .text").first.inner_text()
        assert text.split() == [f"word{number}" for number in range(WORDS)]
        numbers = [
            int(each) for each in page.locator(".part").evaluate_all("parts => parts.map(each => each.dataset.seq)")
        ]
        assert len(numbers) == len(set(numbers))
        page.context.close()
    answers = [record.event for record in records_of(journal, "writer") if isinstance(record.event, ModelAnswered)]
    assert len(answers) == 1


# --- hostile and large ----------------------------------------------------------------------------------------------


def test_hostile_content_is_text_and_is_shown_whole_before_a_yes(browser, reader):
    page = open_page(browser, reader)
    refusals: list[str] = []
    page.on("console", lambda message: refusals.append(message.text) if message.type == "error" else None)
    expect(page.locator(".row", has_text="<script>window.hacked")).to_be_visible()
    show(page, reader, "hostile")
    body = page.locator(".conversation")
    for text in ("<script>window.hacked = 1</script>", "<img src=x onerror=", "⟨U+202E⟩", "⟨ESC⟩[31m", "&amp;"):
        expect(body.locator(".message.user")).to_contain_text(text)
        expect(page.locator(".ask")).to_contain_text(text)
    expect(page.locator(".ask")).to_contain_text("⟨U+200B⟩")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main iframe, main [onerror], main a[href^=javascript]").count() == 0
    assert page.locator("main img").count() == 0
    approve = page.locator(".ask").get_by_role("button", name="Approve", exact=True)
    expect(approve).to_be_disabled()
    show_whole_question(page)
    expect(approve).to_be_enabled()
    shown_line = page.locator(".ask dd", has_text="xxxx").last.inner_text()
    assert shown_line.replace("\n", "") == LINE
    assert refusals == []
    page.context.close()


def test_hostile_content_in_every_field_is_text(browser, tmp_path):
    place = str(tmp_path / "runs.db")

    async def make():
        store = open_journal(place)
        await write(store, odd_run())
        await store.aclose()

    run_in_thread(make())
    with ui_server(place, tmp_path) as server:
        page = open_page(browser, server)
        show(page, server, "odd")
        expect(page.locator(".part.mark").last).to_contain_text("The run is over: failed")
        for _ in range(4):  # what is in a fold may have folds
            page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        page.get_by_role("button", name="What the model read").click()
        expect(page.get_by_role("dialog").locator(".message").nth(1)).to_contain_text("<script>")
        assert page.evaluate("window.hacked") is None
        assert page.locator("main script, main iframe, main [onerror], a[href^='javascript'], main b.x").count() == 0
        text = page.evaluate("document.body.textContent + document.body.innerText")
        assert not re.search("[\u202a-\u202e\u200b\x1b]", text), "nothing changes how the rest reads"
        sources = page.locator("main img").evaluate_all("images => images.map(each => new URL(each.src).pathname)")
        assert all(source.startswith("/api/v1/runs/odd/records/") for source in sources)
        assert all("U+202E" in page.locator(place_of).first.inner_text() for place_of in (".facts-list", ".call"))
        page.context.close()


def test_a_long_run_and_a_long_list_keep_the_document_small(browser, tmp_path):
    place = str(tmp_path / "runs.db")

    async def make():
        journal = open_journal(
            place,
        )
        events = []
        for number in range(2_500):
            events += [UserMessageQueued(a_run("x", task=f"message {number}")[0].event.messages[0])] * 2
        await journal.add_runs([a_run("long", *events)])
        await journal.add_runs([a_run(f"run-{number:05}", time=1000.0 + number) for number in range(3_000)])
        await journal.aclose()

    run_in_thread(make())
    with ui_server(place, tmp_path) as server:
        page = open_page(browser, server, timezone_id="Asia/Kolkata")
        expect(page.locator("[role=status]").first).to_contain_text("200 runs so far")
        for _ in range(40):
            page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
            if page.locator(".row", has_text="run-00000").count():
                break
            page.wait_for_function(
                "() => document.querySelector('a[href$=run-00000]')"
                " || scrollY + innerHeight < document.documentElement.scrollHeight - 100"
            )
        expect(page.locator("a[href$=run-00000]")).to_be_visible()
        assert page.locator(".row").count() < 120
        page.get_by_label("Order").select_option("oldest first")
        expect(page.locator(".row").first).to_have_attribute("href", "/runs/long")
        page.get_by_label("Order").select_option("newest first")
        page.get_by_label("Begin the list at this time").fill("1970-01-01T06:00")
        expect(page.locator(".row").first).to_have_attribute("href", "/runs/run-00799")
        page.reload()
        expect(page.locator(".row").first).to_have_attribute("href", "/runs/run-00799")
        page.goto(f"{server.base}/?from_time=1e99")  # no time of a browser
        expect(page.locator(".row").first).to_have_attribute("href", "/runs/run-02999")
        show(page, server, "long")
        expect(page.locator(".conversation")).to_have_attribute("aria-busy", "false")
        assert page.locator(".part").count() < 400
        page.goto(f"{server.base}/runs/long#4999")
        expect(page.locator(".part[data-seq='4999']")).to_be_visible()
        assert page.locator(".part").count() < 400
        page.context.close()


# --- what everybody can read ----------------------------------------------------------------------------------------


def test_axe_has_no_serious_finding(browser, reader):
    page = open_page(browser, reader, bypass_csp=True)

    def check(what: str) -> None:
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            check_axe(page, f"{what}, {scheme}")

    check("the list")
    page.get_by_role("button", name="New run").click()
    check("a dialog")
    for run_id in ("slow", "asks", "hostile"):
        show(page, reader, run_id)
        check(run_id)
    page.goto(f"{reader.base}/sessions")
    check("sessions")
    page.goto(f"{reader.base}/compare?a=slow&b=asks")
    page.locator(".side .part").last.wait_for()
    check("two runs")
    page.goto(f"{reader.base}/playground")
    page.locator(".dialects li").first.wait_for()
    check("the playground")
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Key or token").wait_for()
    check("the form")
    page.context.close()


@pytest.mark.parametrize("width", [390, 1280, 2560])
def test_nothing_is_wider_than_the_screen(browser, reader, width):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page = open_page(browser, reader)
    page.set_viewport_size({"width": width, "height": 900})
    for name in ("list", "slow", "asks", "hostile"):
        if name == "list":
            page.goto(reader.base)
            page.locator(".row").first.wait_for()
        else:
            show(page, reader, name)
            page.locator(".lanes rect").first.wait_for()
            if name != "slow":
                page.locator(".ask button.main").first.wait_for()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=SCREENSHOTS / f"{name}-{width}-{scheme}.png")
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, (name, scheme)
    page.context.close()
