"""A browser, and pages of the web view in it."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from ui_server import PATIENCE, UiServer, start_worker

from toolspeak.journal import open_journal

ROOT = Path(__file__).parents[2]
SCREENSHOTS = ROOT / "build" / "ui"
AXE = Path(__file__).parent / "npm" / "node_modules" / "axe-core" / "axe.min.js"
PAGE_PATIENCE = 120_000
"""Milliseconds that a page may take for what it shows."""
expect.set_options(timeout=PAGE_PATIENCE)


def run_in_thread(work):
    """The outcome of a coroutine. Playwright's own event loop runs in this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium. A module that tests pages imports this fixture."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=os.environ["CHROMIUM"], args=["--no-sandbox"])
        yield chromium
        chromium.close()


@contextmanager
def ui_server(journal: str, home: Path, *options: str, worker: bool = False):
    server = UiServer(journal, home, *options)
    server.start()
    try:
        with working(journal) if worker else nullcontext():
            yield server
    finally:
        assert server.stop() == 0


@contextmanager
def working(journal: str):
    process = start_worker(journal)
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


def open_page(browser: Browser, server: UiServer, *, key: str | None = None, **options) -> Page:
    """A page of a browser of its own that is logged in. An error on it fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
    context.set_default_timeout(PAGE_PATIENCE)
    page = context.new_page()
    page.on("pageerror", lambda error: pytest.fail(f"the page failed: {error}"))
    if key is None:
        page.goto(server.address)
        server.address = server.next_address()
    else:
        page.goto(server.base)
        page.get_by_label("Key or token").fill(key)
        page.get_by_role("button", name="Log in").click()
    page.locator(".row").first.wait_for()
    return page


def records_of(journal: str, run_id: str):
    async def read():
        store = open_journal(journal)
        records = await store.read(run_id)
        await store.aclose()
        return records

    return run_in_thread(read())


def show(page: Page, server: UiServer, run_id: str) -> None:
    page.goto(f"{server.base}/runs/{run_id}")
    page.locator(".part").first.wait_for()
    page.locator(".facts-list dd").first.wait_for()


def check_axe(page: Page, what: str) -> None:
    """Fails for a serious finding of axe. The page was opened with `bypass_csp`: axe is a script that no page loads."""
    page.add_script_tag(content=AXE.read_text("utf-8"))
    results = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    serious = [
        (each["id"], [node["target"] for node in each["nodes"]][:3], each["nodes"][0]["failureSummary"])
        for each in results["violations"]
        if each["impact"] in ("serious", "critical")
    ]
    assert serious == [], (what, serious)
