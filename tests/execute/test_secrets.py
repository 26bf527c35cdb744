import pytest
from executor_helpers import Recorder, a_call, result_of
from hypothesis import given
from hypothesis import strategies as st

from toolspeak.data.messages import JsonPart, TextPart
from toolspeak.data.tools import Effects
from toolspeak.errors import UsageError
from toolspeak.execute import BatchContext, Decision, Interceptor, Secrets
from toolspeak.tools import RunContext, tool

SECRETS = Secrets({"TOKEN": "s3cr3t", "LONG": "s3cr3t-and-more", "KEY": 'line "1"\nline 2', "WORD": "secret"})


def test_hiding_and_revealing():
    assert SECRETS.hide("Bearer s3cr3t!") == "Bearer {{secret:TOKEN}}!"
    assert SECRETS.reveal("Bearer {{secret:TOKEN}}!") == "Bearer s3cr3t!"
    assert SECRETS.hide("s3cr3t-and-more") == "{{secret:LONG}}"
    assert SECRETS.reveal("{{secret:UNKNOWN}}") == "{{secret:UNKNOWN}}"
    nested = {"s3cr3t": ["s3cr3t", 1, None, {"deep": "x s3cr3t"}]}
    hidden = SECRETS.hide(nested)
    assert hidden == {"{{secret:TOKEN}}": ["{{secret:TOKEN}}", 1, None, {"deep": "x {{secret:TOKEN}}"}]}
    assert SECRETS.reveal(hidden) == nested


def test_a_value_is_found_in_json_text():
    assert SECRETS.hide(r'{"key": "line \"1\"\nline 2"}') == '{"key": "{{secret:KEY}}"}'


def test_placeholders_are_left_alone_by_values_inside_them():
    assert SECRETS.hide("secret s3cr3t {{secret:TOKEN}}") == "{{secret:WORD}} {{secret:TOKEN}} {{secret:TOKEN}}"


@given(st.recursive(st.text() | st.sampled_from(["s3cr3t", "a secret"]) | st.none() | st.integers(), st.lists))
def test_hiding_is_undone_and_leaves_nothing(value):
    hidden = SECRETS.hide(value)
    assert "s3cr3t" not in repr(hidden)
    assert SECRETS.hide(hidden) == hidden
    assert SECRETS.reveal(hidden) == value


def test_no_secrets_cost_nothing():
    value = {"a": ["b"]}
    empty = Secrets()
    assert not empty
    assert empty.hide(value) is value
    assert empty.reveal(value) is value


def test_a_secret_is_named_and_not_empty_and_never_printed():
    with pytest.raises(UsageError, match="empty"):
        Secrets({"A": ""})
    with pytest.raises(UsageError, match="name"):
        Secrets({"a}}": "x"})
    assert "s3cr3t" not in repr(SECRETS)


received = []


@tool(effects=lambda token: Effects(writes={f"account:{token}"}), preview=lambda token: f"log in with {token}")
async def login(token: str, ctx: RunContext) -> dict[str, str]:
    received.append(token)
    ctx.progress(f"using {token}")
    return {"token": token, token: "key"}


@tool(read_only=True)
async def leak(token: str) -> str:
    raise ValueError(f"bad token {token}")


CALL = a_call("login", "c", token="{{secret:TOKEN}}")


def test_the_function_alone_sees_the_value():
    asked, seen, lines, recorder = [], [], [], Recorder()

    async def person(request):
        asked.append(request)
        return Decision(True)

    class Watches(Interceptor):
        async def before(self, call, context):
            seen.append(call)
            return call

        async def after(self, call, result):
            seen.append(result)
            return result

    received.clear()
    result = result_of(
        [login],
        CALL,
        emit=recorder,
        approver=person,
        context=BatchContext("r", progress=lambda call_id, line: lines.append(line)),
        options={"secrets": SECRETS, "call_pipeline": (Watches(),)},
    )
    assert received == ["s3cr3t"]
    assert result.structured == {"token": "{{secret:TOKEN}}", "{{secret:TOKEN}}": "key"}
    assert result.content == (JsonPart(result.structured),)
    assert asked[0].preview == "log in with {{secret:TOKEN}}"
    assert asked[0].effects == Effects(writes={"account:{{secret:TOKEN}}"})
    assert lines == ["using {{secret:TOKEN}}"]
    assert "s3cr3t" not in repr([recorder.events, asked, seen])


def test_errors_do_not_leak():
    result = result_of([leak], a_call("leak", token="{{secret:TOKEN}}"), options={"secrets": SECRETS})
    assert result.text == "ValueError: bad token {{secret:TOKEN}}"
    wrong = result_of([leak], a_call("leak", token=["{{secret:TOKEN}}"]), options={"secrets": SECRETS})
    assert wrong.code == "invalid_arguments"
    assert "s3cr3t" not in wrong.text


def test_a_secret_at_the_cut_is_not_halved():
    @tool(read_only=True)
    async def spill() -> str:
        return "s3cr3t" * 1_000

    result = result_of([spill], a_call("spill"), options={"secrets": SECRETS, "max_result_bytes": 1_001})
    assert "s3cr" not in result.text.replace("secr", "")
    assert "cr3t" not in result.text


def test_text_parts_are_searched():
    @tool(read_only=True)
    async def parts():
        return [TextPart("s3cr3t"), TextPart("plain")]

    result = result_of([parts], a_call("parts"), options={"secrets": SECRETS})
    assert result.text == "{{secret:TOKEN}}plain"
