"""`Toolset`: tools by name, in order."""

import pytest

from toolspeak.errors import ToolDefinitionError
from toolspeak.tools import Tool, Toolset, tool


@tool(read_only=True)
def read(path: str) -> str:
    return path


def write(path: str, content: str) -> None:
    """Write a file."""


def test_tools_and_functions_in_order():
    tools = Toolset([write, read])
    assert [made.name for made in tools] == ["write", "read"]
    assert len(tools) == 2
    assert tools.get("read") is read
    assert isinstance(tools.get("write"), Tool)
    assert tools.get("nothing") is None
    assert "read" in tools
    assert read in tools
    assert "nothing" not in tools
    assert 3 not in tools
    assert [spec.name for spec in tools.specs] == ["write", "read"]
    assert repr(tools) == "Toolset(write, read)"
    assert not Toolset()


def test_filter_prefix_and_sum():
    tools = Toolset([read, write])
    assert [made.name for made in tools.filter(lambda made: made.spec.effects.read_only)] == ["read"]
    prefixed = tools.prefixed("fs_")
    assert [made.name for made in prefixed] == ["fs_read", "fs_write"]
    assert prefixed.get("fs_read").function is read.function
    assert [made.name for made in tools + prefixed] == ["read", "write", "fs_read", "fs_write"]
    assert len(tools) == 2


def test_duplicates_and_impossible_names_are_refused():
    with pytest.raises(ToolDefinitionError, match="two tools are named 'read'"):
        Toolset([read, read])
    with pytest.raises(ToolDefinitionError, match="two tools are named 'read'"):
        Toolset([read]) + Toolset([read])
    with pytest.raises(ToolDefinitionError, match="'1read'"):
        Toolset([read]).prefixed("1")
