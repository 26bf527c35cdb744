"""What all tests share: no test uses the journal and the configuration of whoever runs them."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from sweeps import fewer, mark_more_cases
from toolspeak.sandbox.opening import open_sandbox

# From the profile that hypothesis has chosen (in CI: the same examples each time). No time limits: machines are loaded.
settings.register_profile(
    "toolspeak", settings(), deadline=None, max_examples=fewer(100), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("toolspeak")

# What runs in the background (`&` in a script, `nohup`) is started with these ignored, and so are its children.
for each in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(each) == signal.SIG_IGN:
        signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    mark_more_cases(items)


def pytest_collection_finish():
    """The garbage collector has no need to look at thousands of collected tests, again and again."""
    gc.collect()
    gc.freeze()


def pytest_configure(config):
    folder = tempfile.TemporaryDirectory(prefix="toolspeak-tests-")
    config.add_cleanup(folder.cleanup)
    # Nor does one read the configuration, instructions and skills of whoever runs them.
    os.environ["HOME"] = os.environ["XDG_CONFIG_HOME"] = folder.name
    os.environ.pop("TOOLSPEAK_CONFIG", None)
    # Where this machine has no sandbox, commands run without one; the sandbox's own tests are skipped there.
    if asyncio.run(open_sandbox("auto")).sandbox.level == "none":
        os.environ["TOOLSPEAK_SANDBOX"] = "auto"
    os.environ["TOOLSPEAK_JOURNAL"] = os.path.join(folder.name, "toolspeak.db")
