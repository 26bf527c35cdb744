"""What people change on a run's page, and what goes on there by the clock: forms, forks, times, open bars."""

from __future__ import annotations

import re
import shutil
from typing import Literal

import pytest
from api_servers import APIS, reach, turn
from browser_pages import browser, check_axe, open_page, run_in_thread, show, ui_server, working
from playwright.sync_api import expect
from ui_server import fill

from toolspeak import Agent, tool
from toolspeak.data.codec import load
from toolspeak.journal import open_journal

__all__ = ["browser"]  # a fixture

NUMBER = 12345678901234567890123
HIDDEN_TEXT = "a\u202eb <b>bold</b>"


@tool
def order(
    kind: Literal["book", "toy"], count: int, price: float, urgent: bool, note: str, tags: list[str], to: str = ""
):
    """Orders something."""
    raise AssertionError


@pytest.fixture(scope="module")
def filled_journal(tmp_path_factory):
    """A journal with the runs of the pages."""
    place = str(tmp_path_factory.mktemp("filled") / "runs.db")
    run_in_thread(fill(place))
    return place


@pytest.fixture
def journal(filled_journal, tmp_path):
    return shutil.copy(filled_journal, tmp_path / "runs.db")


async def ask(place: str) -> None:
    """A run that asks about an order."""
    journal = open_journal(place)
    arguments = {"kind": "book", "count": NUMBER, "price": 2.0, "urgent": False, "note": HIDDEN_TEXT, "tags": ["x"]}
    async with reach(APIS["openai"], turn("", ("order", arguments))) as api:
        await Agent(api.provider, [order], journal=journal).run("Order it", run_id="order")
    await journal.aclose()


def decision_of(place: str):
    async def read():
        journal = open_journal(place)
        (entry,) = await journal.inputs("order")
        await journal.aclose()
        return load(entry.data)

    return run_in_thread(read())


def test_arguments_are_edited_in_a_form_of_their_schema_and_the_rest_keeps_its_digits(browser, tmp_path):
    place = str(tmp_path / "runs.db")
    run_in_thread(ask(place))
    with ui_server(place, tmp_path) as server:
        page = open_page(browser, server, bypass_csp=True)
        show(page, server, "order")
        question = page.locator(".ask")
        question.get_by_text("Edit the arguments").click()
        form = question.locator(".argument-form")
        expect(form.get_by_label("kind", exact=True).locator("option")).to_have_text(["book", "toy"])
        expect(form.get_by_label("count", exact=True)).to_have_value(str(NUMBER))
        expect(form.get_by_label("note", exact=True)).to_have_value('"a\\u202eb <b>bold</b>"')
        expect(form.get_by_label("to", exact=True)).to_be_disabled()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            check_axe(page, f"the form of a question, {scheme}")
        page.set_viewport_size({"width": 390, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
        page.set_viewport_size({"width": 1280, "height": 900})
        form.get_by_label("kind", exact=True).select_option("toy")
        form.get_by_label("urgent", exact=True).select_option("true")
        form.get_by_label("price", exact=True).fill("dear")
        question.get_by_role("button", name="Approve with these arguments").click()
        expect(question.get_by_role("alert")).to_have_text("These are no arguments: price: write a number")
        form.get_by_label("price", exact=True).fill("2.50")
        form.get_by_label("tags", exact=True).fill('["x", "y"]')
        form.locator(".field", has=page.get_by_label("to", exact=True)).get_by_label("given").check()
        form.get_by_label("to", exact=True).fill('Ann "A"\nOslo')
        question.get_by_role("button", name="As JSON").click()
        editor = question.get_by_label("Arguments as JSON")
        assert f'"count": {NUMBER}' in editor.input_value()
        assert '"price": 2.50' in editor.input_value()
        editor.fill(editor.input_value().replace('"y"', '"z"'))
        question.get_by_role("button", name="As a form").click()
        expect(form.get_by_label("tags", exact=True)).to_have_value('["x", "z"]')
        question.get_by_role("button", name="Approve with these arguments").click()
        expect(question).to_contain_text("approved by")
        page.context.close()
    assert decision_of(place).arguments == {
        "kind": "toy", "count": NUMBER, "price": 2.5, "urgent": True, "note": HIDDEN_TEXT, "tags": ["x", "z"],
        "to": 'Ann "A"\nOslo',
    }  # fmt: skip


def test_a_fork_begins_before_a_part_of_the_conversation_and_a_search_takes_the_place_of_the_list(
    browser, journal, tmp_path
):
    with ui_server(journal, tmp_path) as server:
        page = open_page(browser, server)
        expect(page.locator(".rows")).to_be_visible()
        page.get_by_role("searchbox").fill("notes could not")
        page.keyboard.press("Enter")
        expect(page.locator(".matches h2")).to_have_text("Texts with these words: 1 in 1 run")
        expect(page.locator(".rows")).to_be_hidden()
        page.get_by_role("button", name="Show all runs").click()
        expect(page.locator(".row").first).to_be_visible()
        expect(page.locator(".match")).to_have_count(0)
        show(page, server, "slow")
        second = page.locator(".message.assistant").nth(1)
        second.get_by_role("button", name="Fork before it").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("It begins before this turn of the model (step 2).")
        expect(dialog.get_by_label("Before record")).to_be_hidden()
        dialog.get_by_text("Another place").click()
        expect(dialog.get_by_label("Before record")).to_have_value(second.get_attribute("data-seq") or "")
        dialog.get_by_label("Task").fill("Only Oslo")
        dialog.get_by_role("button", name="Fork").click()
        # The task, the turn with its calls, and their results.
        expect(page.locator(".conversation")).to_contain_text("The run goes on from 3 earlier messages.")
        expect(page.locator(".part.message.user")).to_contain_text("Only Oslo")
        page.get_by_role("button", name="Message", exact=True).click()
        box = page.get_by_placeholder("Say something to the run")
        expect(box).to_be_focused()
        assert page.locator(".say").evaluate("each => getComputedStyle(each).position") == "static"
        page.context.close()


def test_times_and_what_is_open_go_on_by_the_clock(browser, journal, tmp_path):
    with ui_server(journal, tmp_path) as server, working(journal):
        page = open_page(browser, server)
        page.clock.install()
        show(page, server, "writer")
        expect(page.locator(".writing .text")).to_contain_text("word50")  # it waits there, and nothing is recorded
        title = page.locator(".lanes rect.turn.open title")
        expect(title).to_have_text(re.compile(r"· [\d.]+ (ms|s) · goes on"))
        page.clock.fast_forward(1_200_000)
        expect(title).to_have_text(re.compile(r"· 20(\.\d)? min · goes on"))
        expect(page.locator(".facts-list time").last).to_have_text("20 min ago")
        page.context.close()


def test_labels_of_calls_have_their_ends(browser, tmp_path):
    place, paths = str(tmp_path / "runs.db"), [f"src/pages/deep/{'very/' * 12}{name}.py" for name in ("one", "two")]

    @tool(read_only=True)
    def read_file(path: str) -> str:
        "Reads a file."
        return path

    async def make():
        journal = open_journal(place)
        calls = turn("", *(("read_file", {"path": path}) for path in paths))
        async with reach(APIS["openai"], calls, "Read.") as api:
            await Agent(api.provider, [read_file], journal=journal).run("Read them", run_id="reads")
        await journal.aclose()

    run_in_thread(make())
    with ui_server(place, tmp_path) as server:
        page = open_page(browser, server)
        show(page, server, "reads")
        titles = page.locator(".lanes rect.reads title")
        expect(titles).to_have_count(2)
        ends = [path[-8:] in title for path, title in zip(paths, titles.all_text_contents(), strict=True)]
        assert ends == [True, True]
        expect(page.locator(".part.mark").last).to_contain_text("The run is over: answered.")
        page.context.close()
