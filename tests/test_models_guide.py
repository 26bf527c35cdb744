"""What docs/reference/models.md says of strings, addresses, keys, errors and times is what the code has."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from toolspeak import Agent, DialectSettings
from toolspeak.agent import ReActDriver
from toolspeak.agent.drivers.choose import DEFAULT_DIALECT
from toolspeak.agent.drivers.native import NativeDriver
from toolspeak.data.messages import ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import ProviderErrorCode, UnknownProvider
from toolspeak.providers import PROVIDERS, Capabilities, get_provider
from toolspeak.providers.anthropic import ANTHROPIC_URL, API_VERSION, AnthropicProvider
from toolspeak.providers.compatible import COMPATIBLE
from toolspeak.providers.gemini import GEMINI_URL, GeminiProvider
from toolspeak.providers.http_settings import ConnectionOptions, Timeouts
from toolspeak.providers.ollama import OllamaProvider, host_url
from toolspeak.providers.openai import OPENAI_URL, OpenAIProvider
from toolspeak.providers.openai_responses import OpenAIResponsesProvider
from toolspeak.providers.provider_failures import BASE_SECONDS, CAP_SECONDS, LONGEST_SECONDS, RETRIES
from toolspeak.wire.anthropic.request_writer import MAX_TOKENS

GUIDE = (Path(__file__).parents[1] / "docs" / "reference" / "models.md").read_text("utf-8")
TEXT = " ".join(GUIDE.split())
USUAL = Timeouts()


def table(header: str) -> list[list[str]]:
    """The rows of the table whose first heading this is."""
    (table_text,) = re.findall(rf"^\| {re.escape(header)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", GUIDE, re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table_text.splitlines()]


STRINGS = {row[0].strip("`").partition(":")[0]: row for row in table("string")}
ADDRESSES = {
    "openai": OPENAI_URL,
    "openai-responses": OPENAI_URL,
    "anthropic": ANTHROPIC_URL,
    "gemini": GEMINI_URL,
    "ollama": host_url(""),
    "scripted": "",
    **{name: each.base_url for name, each in COMPATIBLE.items()},
}


def example(name: str) -> str:
    return re.sub("VENDOR/MODEL|MODEL", "m", STRINGS[name][0].strip("`"))


def test_the_table_has_every_provider_and_no_other():
    assert set(STRINGS) == set(PROVIDERS)


@pytest.mark.parametrize("name", [name for name in STRINGS if name != "scripted"])
def test_a_string_reaches_what_the_table_says(name: str):
    _, api, addresses, keys = STRINGS[name]
    words = re.findall(r"`([^`]+)`", addresses)
    assert words[0] == ADDRESSES[name]
    assert (api == "OpenAI Chat Completions") == (name == "openai" or name in COMPATIBLE)
    variables = re.findall(r"`(\w+)`", keys)
    for variable in variables:
        assert get_provider(example(name), {variable: "sk-1234567890"}).name == example(name)
    for variable in (each for each in words[1:] if each.endswith("_URL")):
        assert get_provider(example(name), {variable: "http://127.0.0.1:9/v1"}).name == example(name)
    if "if the server has one" in keys or name == "ollama":
        assert get_provider(example(name), {}).name == example(name)
        return
    with pytest.raises(UnknownProvider) as error:
        get_provider(example(name), {})
    assert all(variable in str(error.value) for variable in variables)


def test_a_bare_name_goes_to_openai():
    assert get_provider("m", {"OPENAI_API_KEY": "sk-1234567890"}).name == "openai:m"


def test_every_kind_of_error_has_its_row():
    rows = table("`code`")
    assert {row[0].strip("`") for row in rows} == set(get_args(ProviderErrorCode))


@pytest.mark.parametrize(
    "phrase",
    [
        f"is sent up to {RETRIES} more times (`retries=`)",
        f"from 0 to {BASE_SECONDS:g} · 2ⁿ⁻¹ seconds, at most {CAP_SECONDS:g}",
        f"longer than {LONGEST_SECONDS:g} seconds, the request fails at once",
        f"Timeouts(connect={USUAL.connect:g}, first_byte={USUAL.first_byte:g}, silence={USUAL.silence:g})",
        f"API version {API_VERSION}",
        f"`max_tokens`** is required by the API. The default is {MAX_TOKENS:,}.",
        f"else `{DEFAULT_DIALECT}`",
    ],
)
def test_its_numbers_and_names_are_the_codes(phrase: str):
    assert phrase in TEXT


CLASSES: dict[str, Any] = {
    each.__name__: each
    for each in (
        Agent, AnthropicProvider, Capabilities, DialectSettings, GeminiProvider, NativeDriver, OllamaProvider,
        OpenAIProvider, OpenAIResponsesProvider, ReActDriver, ToolChoice, ToolSpec,
    )
}  # fmt: skip
CALLS = [call for call in re.findall(r"`([A-Z]\w+\([^`]*\))`", GUIDE) if "SomeType" not in call]


@pytest.mark.parametrize("source", CALLS)
def test_what_it_shows_of_classes_can_be_called_so(source: str):
    call: Any = ast.parse(source.replace("…", "_"), mode="eval").body
    for each in (node for node in ast.walk(call) if isinstance(node, ast.Call)):
        name = ast.unparse(each.func)
        if name not in CLASSES:
            assert name == "Timeouts"
            continue
        parameters_of_class = inspect.signature(CLASSES[name]).parameters
        parameters = {
            *parameters_of_class,
            *(ConnectionOptions.__annotations__ if "connection" in parameters_of_class else ()),
        }
        assert [keyword.arg for keyword in each.keywords if keyword.arg not in parameters] == []


def test_what_is_known_of_a_model_is_changed_in_part(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GROQ_API_KEY", "gsk_test")
    example, _ = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(compile(example, "models.md", "exec"), namespace)
    can = namespace["agent"].driver.provider.capabilities
    assert (can.output, can.context, can.tool_choice) == (True, 131_072, True)


def test_an_agent_takes_what_it_names():
    names = re.findall(
        r"`(?:Agent\()?(\w+)=?[^`]*`", GUIDE.split("## How a model is asked")[1].split("**Your own driver")[0]
    )
    agent_parameters = inspect.signature(Agent).parameters
    assert {"tool_choice", "output", "dialect"} <= {name for name in names if name in agent_parameters}
