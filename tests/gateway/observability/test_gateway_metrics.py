"""The codes by which metrics count refusals are those with which the gateway refuses."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

from toolspeak import gateway
from toolspeak.gateway.http.error_responses import UPSTREAM_CODES
from toolspeak.gateway.observability import REJECTION_CODES
from toolspeak.gateway.usage.usage_values import UsageLimit

REFUSALS = (401, 403, 408, 413, 415, 429, 431, 503)


def refusal_codes() -> set[str]:
    """The codes of all refusals that the gateway's sources make: `Failure(413, "…", "request_too_large")`."""
    codes: set[str] = set()
    for path in Path(str(gateway.__file__)).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(ast.Name("Failure"), [ast.Constant(status), _, ast.Constant(str(code)), *_]):
                    codes |= {code} if status in REFUSALS else set()
                case _:
                    pass
    return codes


def test_each_code_of_a_refusal_has_a_counter_from_the_start():
    of_limits = {f"{limit}_exceeded" for limit in get_args(UsageLimit)}
    of_upstreams = {UPSTREAM_CODES["rate_limit"], UPSTREAM_CODES["overloaded"]}
    assert {*refusal_codes(), *of_limits, *of_upstreams} == REJECTION_CODES
