"""What a run records of its requests besides their messages, which follow from its records.

It is recorded in parts, so that one that changes does not bring the others along: journals store each equal part once.
`rebuilt_requests.py` makes the requests again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import msgspec

from toolspeak import dialects
from toolspeak.agent.drivers.base import Driver, TurnRequest
from toolspeak.agent.drivers.choose import dialects_of, model_name_for_lookup
from toolspeak.agent.drivers.native import NativeDriver
from toolspeak.agent.drivers.probing import ProbingDriver
from toolspeak.agent.drivers.react import ReActDriver
from toolspeak.agent.drivers.server_prompt import ServerPromptDriver
from toolspeak.agent.drivers.text import TextDriver
from toolspeak.data.codec import dump
from toolspeak.data.messages import JSON, no_extra
from toolspeak.dialects import Dialect
from toolspeak.errors import ToolspeakError
from toolspeak.providers.base import BodyFormat, Provider

DRIVER, INSTRUCTIONS, TOOLS, OPTIONS = "driver", "instructions", "tools", "options"
"""The names of the parts."""

NO_PARTS: Mapping[str, str] = no_extra()


class RecordedParts:
    """The parts that a run has recorded of its requests, as far as this process knows.

    `driver`: None: there is nothing to record. `hide`: writes placeholders for secrets.
    """

    def __init__(self, driver: Driver | None, hide: Callable[[str], str]) -> None:
        self._driver = driver
        self._hide = hide
        self._known_parts: Mapping[str, str] = {}

    def changes(self, request: TurnRequest) -> Mapping[str, str]:
        """The parts of a request that are not those of the last one. They count as recorded from then on."""
        if self._driver is None:
            return NO_PARTS
        parts = {name: self._hide(text) for name, text in request_parts(self._driver, request).items()}
        changes = {name: text for name, text in parts.items() if self._known_parts.get(name) != text}
        self._known_parts = parts
        return changes


def request_parts(driver: Driver, request: TurnRequest) -> Mapping[str, str]:
    """The parts of a turn's request besides its messages and its tool choice. Empty for a provider that does not say
    how it makes a body (`body_format`)."""
    provider: Provider | None = getattr(driver, "provider", None)
    body_format: BodyFormat | None = getattr(provider, "body_format", None)
    if provider is None or body_format is None:
        return {}
    output = request.output
    turn_settings = {
        "output": None if output is None else [output.name, dict(output.schema), output.strict, output.description],
        "approval": [spec.name for spec in request.tools if request.needs_approval(spec)],
        "parallel": request.parallel,
        "options": dict(request.options),
    }
    try:
        about = {
            "provider": provider.name,
            "api_name": model_name_for_lookup(provider),
            "capabilities": msgspec.to_builtins(provider.capabilities),
            "wire": {"format": body_format.wire.name, **body_format.wire.settings},
            "model": body_format.model,
            "options": dict(body_format.options),
            "kind": _driver_json(driver, model_name_for_lookup(provider)),
        }
        return {
            DRIVER: json.dumps(about, default=dict),
            INSTRUCTIONS: request.instructions,
            TOOLS: json.dumps([dump(spec) for spec in request.tools]),
            OPTIONS: json.dumps(turn_settings, default=dict),
        }
    except (TypeError, ValueError, ToolspeakError):  # options that are no JSON, a format of the caller's own
        return {}


def _driver_json(driver: object, model: str) -> JSON:
    """The driver as JSON; None for one that cannot be made again of it."""
    if type(driver) is NativeDriver:
        if driver.resumes:
            return None  # the server has a part of the request
        fallback = None if driver.fallback is None else _driver_json(driver.fallback, model)
        return {"native": True, "fallback": fallback}
    if type(driver) is ProbingDriver:
        return {"probes": [_driver_json(each, model) for each in driver.drivers]}
    if type(driver) is ReActDriver and driver.is_usual:
        return {"react": True}
    if type(driver) is TextDriver or type(driver) is ServerPromptDriver:
        dialect = _dialect_json(driver.dialect, model)
        return dialect and {
            "text": dialect,
            "starts_in": driver.starts_in,
            "listing": driver.listing,
            "server": type(driver) is ServerPromptDriver,
        }
    return None


def _dialect_json(dialect: Dialect, model: str) -> JSON:
    """The dialect's name, and whether it follows the model's name; None for a dialect of the caller's own."""
    for name, follows in (("auto", True), (dialect.name, True), (dialect.name, False)):
        if dialect_of(name, model, follows=follows) == dialect:
            return [name, follows]
    return None


def dialect_of(name: str, model: str, *, follows: bool) -> Dialect | None:
    """The dialect of a name, with the chat template of the model if it `follows` that; None if there is none."""
    try:
        if name == "auto":
            return dialects_of(model)[1]
        return dialects.get_dialect(name, model=model if follows else None)
    except ToolspeakError:
        return None
