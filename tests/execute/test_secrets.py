import json
from dataclasses import replace
from typing import Annotated

import pytest
from executor_helpers import Recorder, a_call, result_of
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, Field

from toolspeak.data.messages import JsonPart, TextPart
from toolspeak.data.tools import Effects
from toolspeak.errors import ConfigurationError
from toolspeak.execute import BatchContext, Decision, Interceptor, Secrets
from toolspeak.tools import RunContext, tool

SECRETS = Secrets({"TOKEN": "s3cr3t", "LONG": "s3cr3t-and-more", "KEY": 'line "1"\nline 2', "WORD": "secret"})


def test_hiding_and_revealing():
    assert SECRETS.hide("Bearer s3cr3t!") == "Bearer {{secret:TOKEN}}!"
    assert SECRETS.reveal("Bearer {{secret:TOKEN}}!") == "Bearer s3cr3t!"
    assert SECRETS.hide("s3cr3t-and-more") == "{{secret:LONG}}"
    assert SECRETS.reveal("{{secret:UNKNOWN}}") == "{{secret:UNKNOWN}}"
    value = {"s3cr3t": ["s3cr3t", 1, None, {"deep": "x s3cr3t"}]}
    placeholders = SECRETS.hide(value)
    assert placeholders == {"{{secret:TOKEN}}": ["{{secret:TOKEN}}", 1, None, {"deep": "x {{secret:TOKEN}}"}]}
    assert SECRETS.reveal(placeholders) == value


def test_a_value_is_found_in_json_text():
    assert SECRETS.hide(r'{"key": "line \"1\"\nline 2"}') == '{"key": "{{secret:KEY}}"}'


ODD = "q\"uo'te\\d\n☃"


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"inner": json.dumps({"k": ODD})}),
        json.dumps({"a": json.dumps({"b": json.dumps(ODD, ensure_ascii=False)})}),
        f"write one JSON object: {json.dumps({'a': ODD}, ensure_ascii=False)!r}",
        repr({"a": ODD}),
        repr(f'it is "{ODD}", is it?'),
        json.dumps({"reason": repr(ODD)}),
    ],
)
def test_a_value_is_found_in_text_inside_of_text(text):
    assert "te" not in Secrets({"ODD": ODD}).hide_text(text).replace("write", "")


def test_a_value_is_found_as_a_number_and_in_files_of_text():
    secrets = Secrets({"PIN": "918273", "WORD": "naïve"})
    assert secrets.hide({"pin": 918273, "more": [918273, 918274, True, 91.5]}) == {
        "pin": "{{secret:PIN}}",
        "more": ["{{secret:PIN}}", 918274, True, 91.5],
    }
    assert secrets.hide_bytes("pin=918273 naïve".encode()) == b"pin={{secret:PIN}} {{secret:WORD}}"
    assert secrets.hide_bytes(b"\xff918273") == b"\xff918273"


PEM = """\
-----BEGIN PRIVATE KEY-----
MIIEvQIBADANBgkqhkiG9w0BAQEFAASC
  kSyZ"quoted"\\q8
short
-----END PRIVATE KEY-----
"""
PEM_LINES = [line.strip() for line in PEM.splitlines() if line != "short"]


@pytest.mark.parametrize(
    "text",
    [
        PEM,
        PEM.replace("\n", "\r\n"),
        "".join(f"+{line}\n" for line in PEM.splitlines()),
        "".join(f"{number:6}  {line}\n" for number, line in enumerate(PEM.splitlines(), 1)),
        json.dumps([f"  {line}" for line in PEM.splitlines()]),
        PEM_LINES[1],
    ],
    ids=["whole", "crlf", "diff", "numbered", "json", "one line"],
)
def test_every_line_of_a_longer_value_is_found(text):
    secrets = Secrets({"PEM": PEM, "TOKEN": "s3cr3t"})
    hidden_text = secrets.hide_text(text)
    for line in PEM_LINES:
        assert line not in hidden_text
        assert json.dumps(line)[1:-1] not in hidden_text
    assert secrets.hide_text(hidden_text) == hidden_text
    assert "PRIVATE" not in hidden_text


def test_a_line_is_revealed_as_the_line_it_was():
    secrets = Secrets({"PEM": PEM})
    hidden_text = secrets.hide_text(f"+{PEM_LINES[1]}\n+short\n+{PEM_LINES[2]}\n")
    assert hidden_text == "+{{secret:PEM:2}}\n+short\n+{{secret:PEM:3}}\n"
    assert secrets.reveal(hidden_text) == f"+{PEM_LINES[1]}\n+short\n+{PEM_LINES[2]}\n"
    assert secrets.hide_text(PEM) == "{{secret:PEM}}"
    assert "PEM:2" not in repr(secrets)


def test_a_value_is_its_own_before_it_is_another_ones_spelling():
    secrets = Secrets({"A": 'say "hi"', "B": r"say \"hi\"", "C": "first line\nsecond line", "D": "second line"})
    for name in "ABCD":
        assert secrets.hide(secrets.reveal(f"{{{{secret:{name}}}}}")) == f"{{{{secret:{name}}}}}"


def test_placeholders_are_left_alone_by_values_inside_them():
    assert SECRETS.hide("secret s3cr3t {{secret:TOKEN}}") == "{{secret:WORD}} {{secret:TOKEN}} {{secret:TOKEN}}"


@given(st.recursive(st.text() | st.sampled_from(["s3cr3t", "a secret"]) | st.none() | st.integers(), st.lists))
def test_hiding_is_undone_and_leaves_nothing(value):
    placeholders = SECRETS.hide(value)
    assert "s3cr3t" not in repr(placeholders)
    assert SECRETS.hide(placeholders) == placeholders
    assert SECRETS.reveal(placeholders) == value


def test_no_secrets_cost_nothing():
    value = {"a": ["b"]}
    empty = Secrets()
    assert not empty
    assert empty.hide(value) is value
    assert empty.reveal(value) is value


def test_a_secret_is_named_and_not_empty_and_never_printed():
    with pytest.raises(ConfigurationError, match="'A' is empty"):
        Secrets({"A": ""})
    with pytest.raises(ConfigurationError, match=r"'A' has 3 characters.*leave it out"):
        Secrets({"A": "abc"})
    assert Secrets({"A": "abcd"}).hide("xabcdx") == "x{{secret:A}}x"
    with pytest.raises(ConfigurationError, match="name"):
        Secrets({"a}}": "x"})
    assert "s3cr3t" not in repr(SECRETS)
    assert "line" not in repr(SECRETS)


tokens = []


@tool(effects=lambda token: Effects(writes={f"account:{token}"}), preview=lambda token: f"log in with {token}")
async def login(token: str, ctx: RunContext) -> dict[str, str]:
    tokens.append(token)
    ctx.progress(f"using {token}")
    return {"token": token, token: "key"}


@tool(read_only=True)
async def leak(token: str) -> str:
    raise ValueError(f"bad token {token}")


CALL = a_call("login", "c", token="{{secret:TOKEN}}")


def test_the_function_alone_sees_the_value():
    questions, calls, lines, recorder = [], [], [], Recorder()

    async def person(request):
        questions.append(request)
        return Decision(True)

    class Watches(Interceptor):
        async def before(self, call, context):
            calls.append(call)
            return call

        async def after(self, call, result, context):
            calls.append(result)
            return result

    tokens.clear()
    result = result_of(
        [login],
        CALL,
        emit=recorder,
        approver=person,
        context=BatchContext("r", progress=lambda call_id, line: lines.append(line)),
        options={"secrets": SECRETS, "interceptors": (Watches(),)},
    )
    assert tokens == ["s3cr3t"]
    assert result.structured == {"token": "{{secret:TOKEN}}", "{{secret:TOKEN}}": "key"}
    assert result.content == (JsonPart(result.structured),)
    assert questions[0].preview == "log in with {{secret:TOKEN}}"
    assert questions[0].effects == Effects(writes={"account:{{secret:TOKEN}}"})
    assert lines == ["using {{secret:TOKEN}}"]
    assert "s3cr3t" not in repr([recorder.events, questions, calls])


def test_errors_do_not_leak():
    result = result_of([leak], a_call("leak", token="{{secret:TOKEN}}"), options={"secrets": SECRETS})
    assert result.text == "ValueError: bad token {{secret:TOKEN}}"
    wrong = result_of([leak], a_call("leak", token=["{{secret:TOKEN}}"]), options={"secrets": SECRETS})
    assert wrong.code == "invalid_arguments"
    assert "s3cr3t" not in wrong.text


LONG_VALUE = "S3CR3T-" + "abcdefgh" * 40
LONG_SECRETS = Secrets({"LONG": LONG_VALUE, "PORT": "54321"})


def reject(value):
    raise ValueError(f"cannot use {value[:30]}")


def crash(value):
    raise RuntimeError(f"cannot use {value[:30]}")


@tool(read_only=True)
async def connect(
    host: str = "",
    port: int = 0,
    code: Annotated[str, Field(max_length=20)] = "",
    strict: Annotated[str, AfterValidator(reject)] = "",
    crashing: Annotated[str, AfterValidator(crash)] = "",
    headers: dict[str, Annotated[str, Field(max_length=3)]] | None = None,
) -> str:
    return f"{host} {port} {code}"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"port": "{{secret:LONG}}"}, 'port: expected an integer, got "{{secret:LONG}}" (string)'),
        ({"port": "x", "host": "{{secret:LONG}}"}, 'port: expected an integer, got "x" (string)'),
        ({"code": "{{secret:LONG}}"}, "code: the secret's value does not fit"),
        ({"strict": "{{secret:LONG}}"}, "strict: cannot use {{secret:LONG}}"),
        ({"headers": {"{{secret:LONG}}": "much too long"}}, "the secret's value does not fit"),
        ({"{{secret:LONG}}": 1}, "the secret's value does not fit"),
        ({"crashing": "{{secret:LONG}}"}, ""),
    ],
)
def test_argument_problems_show_no_part_of_a_secret(arguments, problem):
    result = result_of([connect], a_call("connect", **arguments), options={"secrets": LONG_SECRETS})
    assert result.code == "invalid_arguments"
    assert problem in result.text
    assert all(LONG_VALUE[start : start + 4] not in result.text for start in range(len(LONG_VALUE) - 3))


def test_a_reader_that_raises_shows_no_part_of_a_secret():
    def cuts(arguments):
        raise ValueError(f"cannot use {arguments['host'][:30]}")

    def cuts_values_only(arguments):
        if "{{" not in arguments["host"]:
            cuts(arguments)
        return arguments

    call, tell = a_call("connect", host="{{secret:LONG}}"), {"secrets": LONG_SECRETS}
    results = [
        result_of([replace(connect, read_arguments=one)], call, options=tell) for one in (cuts, cuts_values_only)
    ]
    start = "the arguments of 'connect' cannot be read: "
    assert results[0].text == start + "ValueError: cannot use {{secret:LONG}}"
    assert results[1].text == start + "a secret's value does not fit"


def test_a_value_that_fits_is_used_even_if_its_placeholder_would_not():
    call = a_call("connect", code="{{secret:PORT}}", host="{{secret:UNKNOWN}}")
    result = result_of([connect], call, options={"secrets": LONG_SECRETS})
    assert result.text == "{{secret:UNKNOWN}} 0 {{secret:PORT}}"
    strict_secrets = Secrets({"TOO_LONG_A_NAME_FOR_CODE": "s3cr3t"})
    call = a_call("connect", code="{{secret:TOO_LONG_A_NAME_FOR_CODE}}")
    assert (
        result_of([connect], call, options={"secrets": strict_secrets}).text == " 0 {{secret:TOO_LONG_A_NAME_FOR_CODE}}"
    )


def test_what_an_approver_says_is_recorded_without_secrets():
    recorder = Recorder()

    async def person(request):
        return Decision(False, "do not send s3cr3t there", by="ann")

    result = result_of([login], CALL, emit=recorder, approver=person, options={"secrets": SECRETS})
    assert result.text == "the call was rejected: do not send {{secret:TOKEN}} there"
    assert recorder.events[1].reason == "do not send {{secret:TOKEN}} there"
    assert "s3cr3t" not in repr(recorder.events)


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
