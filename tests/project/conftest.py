"""What the tests of projects share."""

import pytest
from scripted_project import ScriptedProject


@pytest.fixture
def project(tmp_path):
    """An empty project, the root of a git repository, and an empty home."""
    for name in ("project/.git", "home"):
        (tmp_path / name).mkdir(parents=True)
    return ScriptedProject(tmp_path / "project", tmp_path / "home")
