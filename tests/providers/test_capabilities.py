"""What is known of models, and who may say otherwise."""

from __future__ import annotations

import datetime

import pytest
from every_api import ApiCase, every_api

from toolspeak.errors import UnknownProvider
from toolspeak.providers import PROVIDERS, Capabilities, capabilities_of, get_provider
from toolspeak.providers.capabilities import APIS
from toolspeak.providers.families import families, family_of
from toolspeak.providers.openai import OpenAIProvider

SERVICES = ("OPENAI", "ANTHROPIC", "GEMINI", "OPENROUTER", "GROQ", "MISTRAL", "DEEPSEEK", "TOGETHER")
KEYS = {f"{service}_API_KEY": "secret" for service in SERVICES}

CONTEXTS = [
    ("openai:gpt-5", 400_000),
    ("openai:gpt-5.2-2025-12-11", 400_000),
    ("openai-responses:gpt-5.4", 1_050_000),
    ("openai:gpt-5-chat-latest", None),
    ("openai:gpt-4.1", 1_047_576),
    ("openai:gpt-4o", 128_000),
    ("openai:gpt-4o-audio-preview", None),
    ("openai:o3", 200_000),
    ("openai:o4-mini-deep-research", None),
    ("openai:something-new", None),
    ("openrouter:openai/gpt-4o", 128_000),
    ("openrouter:anthropic/claude-sonnet-4.5", 200_000),
    ("openrouter:gpt-4o", 128_000),
    ("anthropic:claude-sonnet-4-5-20250929", 200_000),
    ("anthropic:claude-opus-4-7", 1_000_000),
    ("anthropic:claude-opus-5", 1_000_000),
    ("gemini:gemini-2.5-flash", 1_048_576),
    ("gemini:gemini-2.5-flash-image", None),
    ("gemini:gemini-3.1-pro-preview", 1_048_576),
    ("mistral:mistral-large-2512", 262_144),
    ("mistral:mistral-large-latest", None),
    ("deepseek:deepseek-chat", None),
    ("deepseek:deepseek-v4-flash", 1_000_000),
    ("groq:openai/gpt-oss-120b", 131_072),
    ("together:meta-llama/Llama-3.3-70B-Instruct-Turbo", 131_072),
    # Where people run models themselves, the server's settings decide.
    ("ollama:qwen3:8b", None),
    ("vllm:openai/gpt-oss-120b", None),
    ("llamacpp:m", None),
]


@pytest.mark.parametrize(("model", "context"), CONTEXTS)
def test_the_context_of_a_model(model: str, context: int | None):
    assert get_provider(model, KEYS).capabilities.context == context


def test_every_api_has_a_row_and_every_row_an_api():
    assert set(APIS) == set(PROVIDERS) - {"scripted"}
    for name, capabilities in APIS.items():
        assert capabilities.context is None
        assert get_provider(f"{name}:no-such-model", KEYS).capabilities == capabilities


def test_the_rows_say_where_they_come_from():
    for row in families():
        assert set(row.providers) <= set(APIS), row
        assert ".toml" in row.source or row.source.startswith("https://github.com/")
        assert datetime.date.fromisoformat(row.date) <= datetime.date(2030, 1, 1)
        assert row.context is None or 4_000 < row.context < 20_000_000
        values = [row.context, row.tools, row.parallel, row.output, row.output_with_tools, row.reasoning]
        assert values != [None] * 6


def test_a_model_has_no_more_than_its_api_and_less_where_it_is_known():
    assert capabilities_of("openai", "o1-mini").tools is False
    assert capabilities_of("openai", "gpt-4-turbo").output is False
    assert capabilities_of("openai", "gpt-4o").output is True
    assert capabilities_of("gemini", "gemini-3-flash-preview").output_with_tools is True
    assert capabilities_of("gemini", "gemini-2.5-flash").output_with_tools is False
    assert capabilities_of("gemini", "gemini-2.0-flash-lite").output_with_tools is False
    assert capabilities_of("gemini", "gemini-2.5-pro").output is True
    assert capabilities_of("openai-responses", "gpt-4o").reasoning is False
    assert capabilities_of("openai-responses", "gpt-5").reasoning is True
    assert capabilities_of("openai", "gpt-5").reasoning is False  # Chat Completions does not show it
    for row in families():
        for name in row.providers:
            for flag in ("tools", "parallel", "output", "reasoning"):
                assert not (getattr(row, flag) and not getattr(APIS[name], flag)), row


def test_an_unknown_provider_has_nothing():
    assert capabilities_of("nowhere", "gpt-4o") == Capabilities()
    assert family_of("nowhere", "gpt-4o") is None


def test_a_server_of_ones_own_decides_about_the_context():
    environ = {**KEYS, "ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "GEMINI_BASE_URL": "http://127.0.0.1:1"}
    environ["OPENAI_BASE_URL"] = "http://127.0.0.1:1/v1"
    for model in ("anthropic:claude-opus-5", "gemini:gemini-2.5-flash", "openai-responses:gpt-5"):
        assert get_provider(model, environ).capabilities.context is None
        assert get_provider(model, environ).capabilities.tools
    assert OpenAIProvider("gpt-5", base_url="http://127.0.0.1:1/v1").capabilities == Capabilities()


@every_api
def test_a_user_knows_better(api_case: ApiCase):
    mine = Capabilities(tools=False, context=32_768, grammar="gbnf")
    assert api_case.make("http://127.0.0.1:9", capabilities=mine).capabilities is mine


def test_names_without_a_key_still_say_what_is_missing():
    with pytest.raises(UnknownProvider):
        get_provider("openrouter:openai/gpt-4o", {})
