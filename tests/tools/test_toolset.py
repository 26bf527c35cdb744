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


def test_filtered_prefixed_and_sum():
    tools = Toolset([read, write])
    assert [made.name for made in tools.filtered(lambda made: made.spec.effects.read_only)] == ["read"]
    prefixed = tools.prefixed("fs_")
    assert [made.name for made in prefixed] == ["fs_read", "fs_write"]
    assert prefixed.get("fs_read").function is read.function
    assert [made.name for made in tools + prefixed] == ["read", "write", "fs_read", "fs_write"]
    assert len(tools) == 2


def test_approval_is_required_of_the_tools_that_a_predicate_names():
    def results(tools, **options):
        model = ScriptedProvider([ScriptedTurn("", calls=[ScriptedCall("read", {"path": "a"})]), "Done."])
        return Agent(model, tools, **options).run_sync("Go.")

    tools = Toolset([read, write])
    asking = tools.approval_required(lambda made: made.name == "read")
    assert asking.get("write").spec == tools.get("write").spec
    assert asking.get("read").effects_of({"path": "a"}) == replace(read.spec.effects, approval=True)
    assert results(tools).status == "answered"
    paused = results(asking)
    assert (paused.status, paused.requests[0].reason) == ("awaiting_approval", "always needs approval")
    assert results(tools.approval_required()).status == "awaiting_approval"
    assert results(asking, approve="all").status == "answered"
    assert results(asking, approve=Approval(policy=[Rule("approve", "read")])).status == "answered"


def test_the_definition_of_a_server_is_changed_too():
    spec = replace(read.spec, description="New.")
    live = Toolset([replace(read, live=lambda: spec)])
    assert live.prefixed("fs_").get("fs_read").now == replace(spec, name="fs_read")
    assert live.approval_required().get("read").now.effects.approval


def test_duplicates_and_impossible_names_are_refused():
    with pytest.raises(ToolDefinitionError, match="two tools are named 'read'"):
        Toolset([read, read])
    with pytest.raises(ToolDefinitionError, match="two tools are named 'read'"):
        Toolset([read]) + Toolset([read])
    with pytest.raises(ToolDefinitionError, match="'1read'"):
        Toolset([read]).prefixed("1")
