"""The gateway's page in a browser: a real gateway with two upstreams of which one dies, and a key with limits."""

from __future__ import annotations

import itertools
from contextlib import ExitStack

import pytest
from browser_pages import PAGE_PATIENCE, SCREENSHOTS, browser, check_axe, run_in_thread
from gateway_processes import KEY, SECOND_KEY, TOOLS, ServedGateway, gateway
from playwright.sync_api import Page, expect
from ui_server import fill

from toolspeak.gateway.settings.api_keys import digest

__all__ = ["browser"]  # a fixture


def open_gateway(browser, server: ServedGateway, **options) -> Page:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
    context.set_default_timeout(PAGE_PATIENCE)
    page = context.new_page()
    page.on("pageerror", lambda error: pytest.fail(f"the page failed: {error}"))
    page.goto(server.view)
    page.get_by_role("heading", name="Gateway").wait_for()
    page.locator(".tile").first.wait_for()
    return page


def row(page: Page, table: str, name: str):
    return page.get_by_role("region", name=table).locator("tbody tr", has_text=name)


def cell(page: Page, table: str, name: str, column: str):
    return row(page, table, name).locator(f"[data-label='{column}']")


@pytest.mark.parametrize("workers", [1, 2])
def test_an_upstream_dies_and_a_key_reaches_its_limit_before_ones_eyes(browser, tmp_path, workers):
    with gateway(tmp_path, workers=workers) as (server, models):
        page = open_gateway(browser, server)
        expect(page.get_by_role("link", name="Runs")).to_have_count(0)  # no journal is given
        for model in models:
            expect(cell(page, "Upstreams", str(model.port), "State")).to_contain_text("up")
        assert server.ask("hello").status_code == 200
        assert server.ask("bad", tools=TOOLS).status_code == 200
        expect(cell(page, "Keys", "alice", "Requests")).to_have_text("2")
        expect(cell(page, "Keys", "alice", "Limits")).to_contain_text("of 14 requests a minute")
        expect(cell(page, "Calls, as each dialect reads them", "hermes", "Malformed")).to_contain_text("1")
        expect(cell(page, "Models", "fast", "First token")).to_contain_text("·")
        with ExitStack() as streams:
            for _ in range(3):
                streams.enter_context(server.stream("hold"))
            expect(page.locator(".tile", has_text="Streams now").locator(".value")).to_have_text("3")
            expect(cell(page, "Keys", "alice", "Limits")).to_contain_text("3 of 3 streams")
            expect(row(page, "Streams", "alice")).to_have_count(3)
            expect(cell(page, "Streams", "alice", "Tokens so far").first).to_have_text("~1")
            expect(cell(page, "Streams", "alice", "Model").first).to_have_text("fast")
            assert server.ask("one too many").status_code == 429
            expect(cell(page, "Keys", "alice", "Refused")).to_have_text("1")
            models[0].kill()
            dead = str(models[0].port)
            for _ in range(16):  # bob has no limits
                assert server.ask("go on", SECOND_KEY).status_code == 200, "the other upstream answers"
            expect(cell(page, "Upstreams", dead, "State")).to_contain_text("put aside")
            expect(cell(page, "Upstreams", dead, "Failures")).to_contain_text("connection")
            expect(cell(page, "Upstreams", str(models[1].port), "Took over")).not_to_have_text("0")
        expect(page.get_by_text("No request is answered now.")).to_be_visible()
        expect(page.locator(".tile", has_text="Streams now").locator(".value")).to_have_text("0")
        text = page.content()
        assert not any(secret in text for secret in (KEY, SECOND_KEY, digest(KEY), digest(SECOND_KEY)))
        assert "window.hacked" in text
        assert page.evaluate("window.hacked") is None
        assert "\u202e" not in page.locator("main").inner_text()
        page.context.close()


def test_runs_are_there_with_a_journal_and_a_stopped_gateway_says_so(browser, tmp_path):
    place = str(tmp_path / "runs.db")
    run_in_thread(fill(place))
    with gateway(tmp_path, "--journal", place) as (server, _):
        page = browser.new_context().new_page()
        page.set_default_timeout(PAGE_PATIENCE)
        page.goto(server.view)
        page.get_by_role("link", name="Refund the damaged order 4711").click()
        expect(page.locator(".ask")).to_contain_text("damaged in transit")
        page.get_by_role("link", name="Gateway").click()
        expect(page.get_by_role("region", name="Upstreams")).to_contain_text("127.0.0.1")
        server.stop()
        expect(page.get_by_role("status").first).to_contain_text("The server does not answer")
        page.context.close()


def test_the_page_can_be_read_on_every_screen(browser, tmp_path):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with gateway(tmp_path) as (server, models):
        for task in ("hello", "bad", "hello"):
            assert server.ask(task, tools=TOOLS).status_code == 200
        models[0].kill()
        for _ in range(8):
            server.ask("go on", SECOND_KEY)
        with server.stream("hold"):
            page = open_gateway(browser, server, bypass_csp=True)
            expect(cell(page, "Upstreams", str(models[0].port), "State")).to_contain_text("put aside")
            expect(row(page, "Streams", "alice")).to_have_count(1)
            for width, scheme in itertools.product((390, 1280, 2560), ("light", "dark")):
                page.set_viewport_size({"width": width, "height": 900})
                page.emulate_media(color_scheme=scheme)
                page.screenshot(path=SCREENSHOTS / f"gateway-{width}-{scheme}.png", full_page=True)
                wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert wide <= 0, width
                check_axe(page, f"the gateway at {width} pixels, {scheme}")
            page.context.close()
