"""Reads the settings again when their files change, and on SIGHUP."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

from toolspeak.errors import ToolspeakError
from toolspeak.gateway.app import Gateway
from toolspeak.gateway.observability import log
from toolspeak.gateway.settings.gateway_settings import Settings, changed_keys
from toolspeak.gateway.settings.settings_sources import Sources, Stamp, stamp
from toolspeak.gateway.settings_generation import with_fixed_settings

POLL_SECONDS = 0.25
"""Seconds between two looks at the files. A changed file is read once two looks see the same content: before, its
writer may not have finished."""

_HANGUP = getattr(signal, "SIGHUP", None)
"""Windows has none."""


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, their sources, and the stamps of the files when they were read."""

    settings: Settings
    sources: Sources
    stamps: Mapping[str, Stamp]


def load(sources: Sources) -> LoadedSettings:
    """Raises ConfigurationError."""
    stamps: dict[str, Stamp] = {}
    return LoadedSettings(sources.load(os.environ, stamps), sources, stamps)


class Reloader:
    """Reads the settings of one process again; `loaded_settings` are those in use."""

    def __init__(self, loaded_settings: LoadedSettings) -> None:
        self.loaded_settings = loaded_settings
        self._stamps_read = self._last_look = dict(loaded_settings.stamps)

    def changed(self) -> bool:
        """Looks at the files once. Returns whether they differ from those that were read last, and no longer change."""
        now = {path: stamp(path) for path in self._stamps_read}
        is_unchanged, self._last_look = now == self._last_look, now
        return is_unchanged and now != self._stamps_read

    def read(self) -> tuple[LoadedSettings, tuple[str, ...]]:
        """The settings from the files, and the names of those that only a restart changes.

        Raises ConfigurationError; then the files are read again only after another change.
        """
        stamps: dict[str, Stamp] = {}
        try:
            settings_now = self.loaded_settings.sources.load(os.environ, stamps)
        except ToolspeakError:
            self._stamps_read = self._last_look = {**self._stamps_read, **stamps}
            raise
        self._stamps_read = self._last_look = stamps
        settings, fixed_names = with_fixed_settings(self.loaded_settings.settings, settings_now)
        return LoadedSettings(settings, self.loaded_settings.sources, stamps), fixed_names

    async def reload(self, gateway: Gateway, why: str) -> None:
        """Applies the settings of the files to the gateway. Logs invalid settings, and then changes nothing."""
        before = self.loaded_settings
        try:
            loaded_settings, fixed_names = await asyncio.to_thread(self.read)
            gateway.reload(loaded_settings.settings)
        except ToolspeakError as error:
            problem = f"{str(error).rstrip('.')}. The settings of before stay."
            gateway.metrics.count_reload(succeeded=False)
            log("reload_failed", {"why": why, "problem": problem}, level=logging.ERROR)
            return
        gateway.metrics.count_reload(succeeded=True)
        self.loaded_settings = loaded_settings
        files = [path for path, stamp_now in loaded_settings.stamps.items() if before.stamps.get(path) != stamp_now]
        keys = changed_keys(before.settings, loaded_settings.settings)
        fields = {"why": why, "pid": os.getpid(), "changed": files or None, "keys": keys or None}
        log("reloaded", {**fields, "needs_restart": [*fixed_names] or None})


@asynccontextmanager
async def reloading(gateway: Gateway, loaded_settings: LoadedSettings) -> AsyncGenerator[None]:
    """Follows the files and SIGHUP during the context."""
    loop, hangup = asyncio.get_running_loop(), asyncio.Event()

    async def follow() -> None:
        reloader = Reloader(loaded_settings)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await hangup.wait()
            if hangup.is_set():
                hangup.clear()
                await reloader.reload(gateway, "signal")
            elif await asyncio.to_thread(reloader.changed):
                await reloader.reload(gateway, "file")

    following = loop.create_task(follow())
    with on_hangup(lambda: loop.call_soon_threadsafe(hangup.set)):
        try:
            yield
        finally:
            following.cancel()


@contextmanager
def on_hangup(act: Callable[[], object]) -> Generator[None]:
    """Calls `act` on SIGHUP during the context. If the signal comes because the terminal was closed, it ends the
    process like SIGTERM. Does nothing outside of the main thread, and on systems without the signal."""
    terminal = os.isatty(sys.stderr.fileno()) if _HANGUP is not None else False

    def handle(_number: int, _frame: FrameType | None) -> None:
        if terminal and not os.isatty(sys.stderr.fileno()):
            signal.raise_signal(signal.SIGTERM)
        else:
            act()

    try:
        before = None if _HANGUP is None else signal.signal(_HANGUP, handle)
    except ValueError:  # not in the main thread, which gets the signals
        yield
        return
    try:
        yield
    finally:
        if _HANGUP is not None:
            signal.signal(_HANGUP, before)
