"""Each fault of each API, as an agent meets it: asked again while nothing was said, never behind that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from api_servers import KEY, Api, Breaks, Odd, Status, each_api, reach, turn

from toolspeak import Agent, tool
from toolspeak.errors import ProviderError

CALL = turn("I look. ", ("look", {"where": "É 😀"}))
SILENT: Any = turn("")


@tool(read_only=True)
def look(where: str) -> str:
    """Looks somewhere."""
    return f"«{where}» is empty"


def run(api: Api, *script: Any) -> Any:
    """The run's result, or its error, with the number of requests and the seconds waited for."""

    stalls = any(isinstance(step, Breaks) and step.how == "stall" for step in script)

    async def go() -> Any:
        async with reach(api, *script, silence=1 if stalls else 20) as endpoint:
            try:
                outcome: Any = await Agent(endpoint.provider, [look]).run("Look.")
            except ProviderError as error:
                outcome = error
            return outcome, len(endpoint.model.bodies), endpoint.clock.sleeps

    return asyncio.run(go())


TRANSIENT_FAULTS: list[Any] = [
    ("429 and how long to wait", [Status("429 Too Many Requests", ("retry-after: 7",))], 7),
    ("500", [Status("500 Internal Server Error")], 0),
    ("503 twice", [Status("503 Service Unavailable")] * 2, 0),
    ("408", [Status("408 Request Timeout")], 0),
    ("reset before anything", [Breaks("reset", SILENT)], 0),
    ("error before anything", [Breaks("error", SILENT)], 0),
]


@each_api
@pytest.mark.parametrize("in_the_middle", [False, True], ids=["first", "second"])
@pytest.mark.parametrize(
    ("faults", "wait"), [each[1:] for each in TRANSIENT_FAULTS], ids=[each[0] for each in TRANSIENT_FAULTS]
)
def test_what_is_asked_again(api: Api, faults: list[Any], wait: float, in_the_middle: bool):
    script = [CALL, *faults, "Done."] if in_the_middle else [*faults, CALL, "Done."]
    result, requests, waits = run(api, *script)
    assert not isinstance(result, ProviderError), result
    assert (result.answer, requests) == ("Done.", 2 + len(faults))
    assert len(waits) == len(faults)
    assert min(waits) >= wait
    assert [each.text for message in result.messages for each in message.results] == ["«É 😀» is empty"]


FINAL: list[Any] = [
    ("401", Status("401 Unauthorized", message=f"bad key {KEY}"), "authentication", False, "key is missing or wrong"),
    ("403", Status("403 Forbidden"), "authentication", False, "API key may not use this model"),
    ("404", Status("404 Not Found"), "not_found", False, ""),
    ("400", Status("400 Bad Request"), "bad_request", False, "that is why"),
    ("429 for long", Status("429 Too Many", ("retry-after: 900",)), "rate_limit", True, "try again then"),
    ("reset", Breaks("reset"), "connection", True, "the connection dropped after 18 characters"),
    ("reset within a call", Breaks("reset", CALL), "connection", True, "the connection dropped after"),
    ("stall", Breaks("stall"), "connection", True, "sent nothing for 1 seconds after 18 characters"),
    ("stall before anything", Breaks("stall", SILENT), "connection", True, "sent nothing for 1 seconds"),
    ("error", Breaks("error"), "overloaded", True, "unexpected EOF"),
    ("no JSON", Breaks("nonsense"), "ill_formed", False, "not JSON: '{nonsense'"),
]


@each_api
@pytest.mark.parametrize(
    ("fault", "code", "retryable", "problem"), [each[1:] for each in FINAL], ids=[f[0] for f in FINAL]
)
def test_what_ends_the_run(api: Api, fault: Any, code: str, retryable: bool, problem: str):
    attempts = 3 if fault == FINAL[8][1] else 1  # nothing was said
    error, requests, _ = run(api, CALL, *[fault] * attempts, "never asked")
    assert isinstance(error, ProviderError)
    assert (error.code, error.retryable, requests) == (code, retryable, 1 + attempts)
    assert problem in str(error)
    assert KEY not in str(error)
    assert error.result is not None
    assert [each.text for message in error.result.messages for each in message.results] == ["«É 😀» is empty"]


@each_api
def test_a_server_that_stays_down(api: Api):
    error, requests, waits = run(api, *[Status("500 Internal Server Error")] * 3)
    assert (error.code, error.status, requests, len(waits)) == ("overloaded", 500, 3, 2)
    assert "Tried 3 times" in str(error)


@each_api
@pytest.mark.parametrize("what", ["unknown", "empty"])
def test_what_is_passed_over(api: Api, what: str):
    result, requests, _ = run(api, Odd(what, CALL), Odd(what, turn("Done. 😀", thought="hm")))
    assert (result.answer, requests) == ("Done. 😀", 2)
    assert [each.text for message in result.messages for each in message.results] == ["«É 😀» is empty"]


@each_api
def test_an_empty_answer_is_asked_for_again(api: Api):
    result, requests, _ = run(api, SILENT, "Done.")
    assert (result.answer, requests) == ("Done.", 2)
