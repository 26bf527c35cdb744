"""What MCP servers ask during a call reaches the user of an editor, as far as the editor shows such questions."""

import json
import sys
from pathlib import Path

import pytest
from acp import RequestError
from acp.schema import (
    AcceptElicitationResponse,
    CancelElicitationResponse,
    ClientCapabilities,
    DeclineElicitationResponse,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    ElicitationUrlCapabilities,
    McpServerStdio,
    OtherElicitationResponse,
)
from scripted_editor import ScriptedEditor
from test_acp_access import folder, in_editor, results  # noqa: F401 - a fixture

FORMS = ElicitationCapabilities(form=ElicitationFormCapabilities())
ADDRESSES = ElicitationCapabilities(url=ElicitationUrlCapabilities())
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name\x1b[2J", "minLength": 2},
        "size": {"type": "string", "enum": ["S", "L"], "default": "S"},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
    },
    "required": ["name"],
}
QUESTION = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}


def server_answer(folder, editor, asks, elicitation):  # noqa: F811
    """Calls the tool of a server that asks. Returns what the server got."""
    tool = {"name": "ok", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    (folder / "offer.json").write_text(json.dumps({"tools/list": {"tools": [tool]}, "asks": asks}))
    program = Path(__file__).parents[1] / "mcp" / "offering_server.py"
    server = McpServerStdio(name="s", command=sys.executable, args=[str(program), str(folder)], env=[])
    capabilities = ClientCapabilities(elicitation=elicitation)
    _, events = in_editor(folder, editor, [("s__ok", {})], "Done.", servers=[server], capabilities=capabilities)
    (text,) = results(events)
    return json.loads(text)


def acceptance(**fields):
    return AcceptElicitationResponse(action="accept", content=fields)


def test_a_form_reaches_the_editor_and_its_fields_the_server(folder):  # noqa: F811
    answers = [acceptance(name="x", size="L"), acceptance(name="Ann", size="L", tags=["a"])]
    editor = ScriptedEditor("allow_once", form_answers=answers)
    asks = {"message": "Who?\x1b[2J", "requestedSchema": FORM}
    answer = server_answer(folder, editor, asks, FORMS)
    assert answer == {"action": "accept", "content": {"name": "Ann", "size": "L", "tags": ["a"]}}
    (message, mode), (again, _) = editor.forms
    assert message == "the MCP server 's' asks you, and gets these fields:\nWho?\\x1b[2J"
    assert list(mode.requested_schema.properties) == ["name", "size", "tags"]
    assert mode.requested_schema.properties["name"].title == "Name\\x1b[2J"
    assert mode.requested_schema.required == ["name"]
    assert "shorter than 2 characters" in again


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        (DeclineElicitationResponse(action="decline"), "decline"),
        (CancelElicitationResponse(action="cancel"), "cancel"),
        (OtherElicitationResponse(action="_later"), "cancel"),
        (RequestError.method_not_found("elicitation/create"), "cancel"),
    ],
)
def test_a_no_is_a_decline_and_a_closed_form_is_a_cancel(folder, answer, action):  # noqa: F811
    editor = ScriptedEditor("allow_once", form_answers=[answer])
    assert server_answer(folder, editor, {"message": "Who?", "requestedSchema": FORM}, FORMS)["action"] == action


def test_an_address_reaches_the_editor(folder):  # noqa: F811
    asks = {"mode": "url", "message": "Log in.", "url": "https://s.example/login", "elicitationId": "e1"}
    editor = ScriptedEditor("allow_once", form_answers=[AcceptElicitationResponse(action="accept")])
    assert server_answer(folder, editor, asks, ADDRESSES) == {"action": "accept"}
    ((message, mode),) = editor.forms
    assert message.endswith("Log in.")
    assert str(mode.url) == "https://s.example/login"


@pytest.mark.parametrize(("choice", "action"), [("allow_once", "accept"), ("reject_once", "decline"), (None, "cancel")])
def test_an_editor_without_forms_asks_for_permission_where_no_text_is_needed(folder, choice, action):  # noqa: F811
    editor = ScriptedEditor("allow_once", choice)
    answer = server_answer(folder, editor, {"message": "Are you sure?", "requestedSchema": QUESTION}, None)
    assert answer["action"] == action
    assert answer.get("content", {"sure": True}) == {"sure": True}
    call, options, _ = editor.questions[1]
    assert "Are you sure?" in call.content[0].content.text
    assert [option.kind for option in options] == ["allow_once", "reject_once"]


@pytest.mark.parametrize("elicitation", [None, ADDRESSES])
def test_an_editor_without_forms_shows_none_and_the_server_reads_that_nobody_answered(folder, elicitation):  # noqa: F811
    editor = ScriptedEditor("allow_once")
    assert server_answer(folder, editor, {"message": "Who?", "requestedSchema": FORM}, elicitation) == {
        "action": "cancel"
    }
    assert len(editor.questions) == 1


@pytest.mark.parametrize("url", ["file:///etc/passwd", "javascript:alert(1)", "https://s.example/\u202egnp.exe", ""])
def test_an_address_of_another_kind_is_not_shown(folder, url):  # noqa: F811
    editor = ScriptedEditor("allow_once")
    asks = {"mode": "url", "message": "Log in.", "url": url, "elicitationId": "e1"}
    assert server_answer(folder, editor, asks, ADDRESSES) == {"action": "cancel"}
    assert (editor.forms, len(editor.questions)) == ([], 1)


def test_a_form_of_an_unknown_kind_is_not_shown(folder):  # noqa: F811
    editor = ScriptedEditor("allow_once")
    schema = {"type": "object", "properties": {"x": {"type": "object"}}}
    assert server_answer(folder, editor, {"message": "Who?", "requestedSchema": schema}, FORMS) == {"action": "cancel"}
    assert editor.forms == []
