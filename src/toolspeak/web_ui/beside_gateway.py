"""The web view in the process that started a gateway: in a thread of its own, so that neither waits for the other."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress

from toolspeak.gateway.server import Beside, GatewayObserver
from toolspeak.journal.base import Journal
from toolspeak.web_ui.gateway_monitor import GatewayMonitor
from toolspeak.web_ui.web_server import UiListener, serve_ui

_LOG = logging.getLogger("toolspeak.web_ui")

_END_SECONDS = 10.0


def beside_gateway(door: UiListener, say: Callable[[str], None], open_store: Callable[[], Journal] | None) -> Beside:
    """Serves the web view while the gateway serves. `open_store`: opens the journal whose runs are shown; None: no runs
    are shown. If the view fails, the log says why, and the gateway goes on."""

    @contextmanager
    def beside(sight: GatewayObserver) -> Generator[None]:
        stopper: Future[Callable[[], None]] = Future()
        thread = threading.Thread(
            target=_run, args=(door, say, open_store, sight, stopper), name="web-view", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            stopper.result()()
            thread.join(_END_SECONDS)

    return beside


def _run(
    door: UiListener,
    say: Callable[[str], None],
    open_store: Callable[[], Journal] | None,
    sight: GatewayObserver,
    stopper: Future[Callable[[], None]],
) -> None:
    async def main() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            with suppress(RuntimeError):  # the view has ended by itself
                loop.call_soon_threadsafe(stop.set)

        stopper.set_result(end)
        journal = None if open_store is None else open_store()
        serving = asyncio.ensure_future(serve_ui(journal, door, say, gateway=GatewayMonitor(sight)))
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving
            if journal is not None:
                await journal.aclose()

    try:
        asyncio.run(main())
    except Exception:  # noqa: BLE001 - whatever it is, the gateway goes on
        _LOG.exception("the web view has ended")
