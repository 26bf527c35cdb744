"""`Toolset`: tools by name, in order."""

from dataclasses import replace

import pytest

from toolspeak import Agent, Approval, Rule
from toolspeak.errors import ToolDefinitionError
from toolspeak.testing import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.tools import Tool, Toolset, tool


@tool(read_only=True)
def read(path: str) -> str:
    return path


def write(path: str, content: str) -> None:
    """Write a file."""


def test_tools_and_functions_in_order():
    tools = Toolset([write, read])
    assert [each.name for each in tools] == ["write", "read"]
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


def test_filtered_prefixed_and_sum():
    tools = Toolset([read, write])
    assert [each.name for each in tools.filter(lambda each: each.spec.effects.read_only)] == ["read"]
    fs_tools = tools.with_prefix("fs_")
    assert [each.name for each in fs_tools] == ["fs_read", "fs_write"]
    assert fs_tools.get("fs_read").function is read.function
    assert [each.name for each in tools + fs_tools] == ["read", "write", "fs_read", "fs_write"]
    assert len(tools) == 2


def test_approval_is_required_of_the_tools_that_a_predicate_names():
    def results(tools, **options):
        model = ScriptedProvider([ScriptedTurn("", calls=[ScriptedCall("read", {"path": "a"})]), "Done."])
        return Agent(model, tools, **options).run_sync("Go.")

    tools = Toolset([read, write])
    asking = tools.approval_required(lambda each: each.name == "read")
    assert asking.get("write").spec == tools.get("write").spec
    assert asking.get("read").effects_of({"path": "a"}) == replace(read.spec.effects, approval=True)
    assert results(tools).status == "answered"
    result = results(asking)
    assert (result.status, result.requests[0].reason) == ("awaiting_approval", "always needs approval")
    assert results(tools.approval_required()).status == "awaiting_approval"
    assert results(asking, approve="all").status == "answered"
    assert results(asking, approve=Approval(policy=[Rule("approve", "read")])).status == "answered"


def test_the_definition_of_a_server_is_changed_too():
    spec = replace(read.spec, description="New.")
    live = Toolset([replace(read, live=lambda: spec)])
    assert live.with_prefix("fs_").get("fs_read").now == replace(spec, name="fs_read")
    assert live.approval_required().get("read").now.effects.approval


def test_duplicates_and_impossible_names_are_refused():
    with pytest.raises(ToolDefinitionError, match="two tools are named 'read'"):
        Toolset([read, read])
    with pytest.raises(ToolDefinitionError, match="two tools are named 'read'"):
        Toolset([read]) + Toolset([read])
    with pytest.raises(ToolDefinitionError, match="'1read'"):
        Toolset([read]).with_prefix("1")
