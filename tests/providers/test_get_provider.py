from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from toolspeak.errors import ConfigurationError, UnknownProvider
from toolspeak.providers import PROVIDERS, get_provider
from toolspeak.providers.compatible import COMPATIBLE

LOCAL = {"OPENAI_BASE_URL": "http://127.0.0.1:11434/v1", "ANTHROPIC_API_KEY": "sk-ant-test"}


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("openai:gpt-4o", "openai:gpt-4o"),
        ("anthropic:claude-opus-5-5", "anthropic:claude-opus-5-5"),
        ("gpt-4o", "openai:gpt-4o"),
        ("qwen3:8b", "openai:qwen3:8b"),
        ("openai:qwen3:8b", "openai:qwen3:8b"),
        ("openai:mistral:7b-instruct", "openai:mistral:7b-instruct"),
        ("deepseek-r1:7b", "openai:deepseek-r1:7b"),
        ("mistral-nemo:12b", "openai:mistral-nemo:12b"),
        ("openchat:7b", "openai:openchat:7b"),
        ("llama3:8b", "openai:llama3:8b"),
        ("codellama:13b", "openai:codellama:13b"),
        ("gemma3:4b", "openai:gemma3:4b"),
        ("ollama:qwen3:8b", "ollama:qwen3:8b"),
        ("openai/gpt-oss-20b:free", "openai:openai/gpt-oss-20b:free"),
        ("openai:google:x", "openai:google:x"),
        ("hf.co/bartowski/x-GGUF:Q4_K_M", "openai:hf.co/bartowski/x-GGUF:Q4_K_M"),
    ],
)
def test_a_model_string_names_its_provider(model: str, name: str):
    assert get_provider(model, LOCAL).name == name


def test_a_playbook_is_a_model(tmp_path: Path):
    path = tmp_path / "book.json"
    path.write_text(json.dumps({"turns": ["hi"]}), encoding="utf-8")
    assert get_provider(f"scripted:{path}", {}).name == f"scripted:{path}"


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("", "the model's name is empty"),
        ("  ", "the model's name is empty"),
        ("openai:", "names no model: write openai:<model>"),
        ("scripted:", "names no model: write scripted:<file>"),
        ("opnai:gpt-4o", "unknown provider 'opnai'. Did you mean 'openai'?"),
        ("OpenAI:gpt-4o", "unknown provider 'OpenAI'. Did you mean 'openai'?"),
        ("script:book.json", "Did you mean 'scripted'?"),
        ("llama.cpp:qwen3", "Did you mean 'llamacpp'?"),
        ("lm-studio:qwen3", "Did you mean 'lmstudio'?"),
        ("openruter:x/y", "Did you mean 'openrouter'?"),
        ("groq:", "names no model: write groq:<model>"),
        ("mistral:7b", "needs a key: MISTRAL_API_KEY is not set"),
        ("mistral:7b", "set OPENAI_BASE_URL and write 'openai:mistral:7b'"),
        ("olama:qwen3:8b", "unknown provider 'olama'. Did you mean 'ollama'?"),
        ("Gemini:gemini-3-pro", "unknown provider 'Gemini'. Did you mean 'gemini'?"),
        ("gemini:", "names no model: write gemini:<model>"),
        ("google:gemini-2.5-pro", "unknown provider 'google'. Here it is 'gemini'"),
        ("Claude:claude-opus-5-5", "Here it is 'anthropic'"),
        ("xai:grok-4", "If xai has an OpenAI-compatible API, set OPENAI_BASE_URL"),
        ("http://127.0.0.1:8080/v1", "an address is not a model: set OPENAI_BASE_URL"),
    ],
)
def test_a_model_string_that_names_no_provider(model: str, problem: str):
    with pytest.raises(UnknownProvider) as raised_error:
        get_provider(model, LOCAL)
    assert problem in str(raised_error.value)


def test_what_the_provider_needs_is_missing():
    with pytest.raises(UnknownProvider, match="neither OPENAI_API_KEY nor OPENAI_BASE_URL is set"):
        get_provider("gpt-4o", {})
    with pytest.raises(UnknownProvider, match="Set ANTHROPIC_API_KEY"):
        get_provider("anthropic:claude-opus-5-5", {})
    with pytest.raises(ConfigurationError, match="cannot be read"):
        get_provider("scripted:absent.json", {})


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_every_provider_of_the_table_can_be_made(name: str, tmp_path: Path):
    path = tmp_path / "book.json"
    path.write_text('{"turns": []}', encoding="utf-8")
    keys = {"GEMINI_API_KEY": "k", **{each.key_variable: "k" for each in COMPATIBLE.values()}}
    provider = get_provider(f"{name}:{path}", {**LOCAL, **keys})
    assert provider.name == f"{name}:{path}"
    assert provider.capabilities.tool_role is (name in ("ollama", "vllm", "sglang", "llamacpp"))
    asyncio.run(provider.aclose())
