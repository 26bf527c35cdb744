"""What all tests share: no test writes into the journal of whoever runs them."""

from __future__ import annotations

import os
import tempfile


def pytest_configure(config):
    folder = tempfile.TemporaryDirectory(prefix="toolspeak-tests-")
    config.add_cleanup(folder.cleanup)
    os.environ["TOOLSPEAK_JOURNAL"] = os.path.join(folder.name, "toolspeak.db")
