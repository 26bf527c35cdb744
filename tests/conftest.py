"""What all tests share: no test writes into the journal of whoever runs them."""

from __future__ import annotations

import os
import tempfile

from hypothesis import settings

if not os.environ.get("CI"):  # there hypothesis has a profile of its own, which has no deadline either
    settings.register_profile("toolspeak", deadline=None)  # a loaded machine is no fault of the code
    settings.load_profile("toolspeak")


def pytest_configure(config):
    folder = tempfile.TemporaryDirectory(prefix="toolspeak-tests-")
    config.add_cleanup(folder.cleanup)
    os.environ["TOOLSPEAK_JOURNAL"] = os.path.join(folder.name, "toolspeak.db")
