"""Models by the names under which hubs, servers and files know them, and the dialects they were trained on."""

from __future__ import annotations

import pytest

from toolspeak.dialects import DIALECTS, PROTOCOLS, get_dialect
from toolspeak.errors import UnknownDialect, UsageError

MODELS = {
    "hermes": """NousResearch/Hermes-3-Llama-3.1-8B NousResearch/Hermes-4-70B nous-hermes2:34b Qwen/Qwen2.5-7B-Instruct
        Qwen/Qwen2.5-Coder-32B-Instruct-AWQ qwen2.5:14b-instruct-q4_K_M Qwen/Qwen3-8B qwen3:30b-a3b Qwen/QwQ-32B
        unsloth/Qwen3-235B-A22B-Instruct-2507-GGUF Qwen3-4B-Thinking-2507-FP8 XiaomiMiMo/MiMo-VL-7B-RL
        RekaAI/reka-flash-3 hermes3:8b QWEN3-14B""",
    "granite4": "ibm-granite/granite-4.0-h-tiny granite4:3b granite-4.0-micro-GGUF",
    "ernie45": "baidu/ERNIE-4.5-21B-A3B-Thinking",
    "longcat": "meituan-longcat/LongCat-Flash-Chat-FP8",
    "jamba": "ai21labs/AI21-Jamba-1.5-Mini ai21labs/AI21-Jamba-Large-1.7",
    "apriel": "ServiceNow-AI/Apriel-1.6-15b-Thinker",
    "hunyuan-a13b": "tencent/Hunyuan-A13B-Instruct-GPTQ-Int4",
    "nemotron-v2": "nvidia/NVIDIA-Nemotron-Nano-9B-v2 nvidia/Llama-3.1-Nemotron-Nano-8B-v1",
    "apertus": "swiss-ai/Apertus-8B-Instruct-2509",
    "internlm2": "internlm/internlm2_5-7b-chat internlm/internlm3-8b-instruct internlm2:7b",
    "inkling": "thinkingmachines/Inkling",
    "dots": "rednote-hilab/dots.llm1.inst",
    "granite3": "ibm-granite/granite-3.3-8b-instruct granite3.1-dense:8b ibm-granite/granite-3.0-2b-instruct",
    "granite-20b-fc": "ibm-granite/granite-20b-functioncalling",
    "phi4-mini": "microsoft/Phi-4-mini-instruct phi4-mini:3.8b fireworks-ai/llama-3-firefunction-v2",
    "mistral-v3": """mistralai/Mistral-7B-Instruct-v0.3 mistral:7b-instruct-v0.3-q4_0 mistral-nemo:12b
        mistralai/Mistral-Nemo-Instruct-2407 mistralai/Mixtral-8x7B-Instruct-v0.1 mistral-small3.1:24b
        mistralai/Mistral-Small-3.1-24B-Instruct-2503 mistralai/Mistral-Large-Instruct-2411""",
    "mistral-v11": "mistralai/Mistral-Medium-3",
    "mistral-ids": "mistralai/Mistral-Small-3.2-24B-Instruct-2506 mistral-small3.2",
    "mistral-args": """mistralai/Devstral-Small-2507 mistralai/Ministral-3-8B-Instruct-2512 devstral:24b
        mistralai/Magistral-Small-2509 mistralai/Mistral-Large-3-675B-Instruct-2512""",
    "llama3-json": """meta-llama/Llama-3.1-8B-Instruct meta-llama/Meta-Llama-3.1-405B-Instruct-FP8 llama3.1:8b
        llama3.3:70b-instruct-q4_K_M meta-llama/Llama-3.2-3B-Instruct Llama-3.2-1B-Instruct-Q4_K_M.gguf
        accounts/fireworks/models/llama-v3p1-70b-instruct hf.co/bartowski/Llama-3.3-70B-Instruct-GGUF:IQ3_M""",
    "xlam": "Salesforce/Llama-xLAM-2-8b-fc-r Salesforce/xLAM-1b-fc-r",
    "gigachat3": "ai-sage/GigaChat3-10B-A1.8B",
    "cohere-command": "CohereLabs/c4ai-command-r7b-12-2024 CohereLabs/c4ai-command-a-03-2025 command-r7b:7b",
    "command-r-plus": "CohereLabs/c4ai-command-r-plus-08-2024 command-r:35b",
    "deepseek-v3": """deepseek-ai/DeepSeek-V3 deepseek-ai/DeepSeek-V3-0324 deepseek-ai/DeepSeek-R1-0528
        deepseek-v3:671b
        deepseek-r1:8b-0528-qwen3-q4_K_M cognitivecomputations/DeepSeek-V3-0324-AWQ""",
    "deepseek-v31": "deepseek-ai/DeepSeek-V3.1-Terminus deepseek-v3.1:671b deepseek-ai/DeepSeek-V3.2-Exp",
    "deepseek-v32": "deepseek-ai/DeepSeek-V3.2 deepseek-ai/DeepSeek-V3.2-Speciale",
    "deepseek-v4": "deepseek-ai/DeepSeek-V4",
    "deepseek-v41": "deepseek-ai/DeepSeek-V4.1",
    "kimi-k2": "moonshotai/Kimi-K2-Instruct-0905 moonshotai/Kimi-K2-Thinking kimi-k2:1t-cloud",
    "kimi-k3": "moonshotai/Kimi-K3",
    "functionary-v31": "meetkai/functionary-medium-v3.1 functionary-small-v3.1.Q8_0.gguf",
    "functionary-v32": "meetkai/functionary-small-v3.2-GGUF",
    "harmony": "openai/gpt-oss-120b gpt-oss:20b unsloth/gpt-oss-20b-GGUF:F16",
    "qwen3-coder": """Qwen/Qwen3-Coder-30B-A3B-Instruct Qwen/Qwen3-Coder-30B qwen3-coder:30b-a3b-q4_K_M
        Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8 Qwen/Qwen3-Coder-Next Qwen/Qwen3.5-4B
        nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16
        lmstudio-community/Qwen3-Coder-30B-A3B-Instruct-MLX-4bit""",
    "step3p5": "stepfun-ai/Step-3.5-Flash step3p5",
    "step3": "stepfun-ai/step3 stepfun-ai/step3-fp8",
    "mimo": "XiaomiMiMo/MiMo-V2-Flash",
    "seed-oss": "ByteDance-Seed/Seed-OSS-36B-Instruct seed_oss:36b",
    "minimax-m2": "MiniMaxAI/MiniMax-M2 MiniMaxAI/MiniMax-M2.1 minimax-m2:cloud",
    "minimax-m3": "MiniMaxAI/MiniMax-M3",
    "minicpm5": "openbmb/MiniCPM5-1B",
    "muse": "meta/Muse-Spark",
    "claude-legacy": "claude-2.1 anthropic.claude-v2:1 claude-instant-1.2",
    "glm45": "zai-org/GLM-4.5-Air zai-org/GLM-4.6-FP8 glm-4.6:cloud cpatonn/GLM-4.5-Air-AWQ-4bit",
    "glm47": "zai-org/GLM-4.7-Flash zai-org/GLM-5 zai-org/GLM-5.1",
    "spark25": "iflytek/Spark2.5",
    "ling3": "inclusionAI/Ling-3.0-flash",
    "poolside-v1": "poolside/Laguna-XS.2",
    "hy-v3": "tencent/Hy3-preview",
    "hy-v3-opensource": "tencent/Hy3",
    "k2-horizon": "IFM/K2-Horizon",
    "plamo3": "pfnet/plamo-3-nict-8b-base",
    "pythonic": "Team-ACE/ToolACE-2-Llama-3.1-8B",
    "llama4-pythonic": "meta-llama/Llama-4-Scout-17B-16E-Instruct llama4:16x17b",
    "lfm2": "LiquidAI/LFM2-8B-A1B LiquidAI/LFM2-1.2B-Tool-GGUF",
    "olmo3": "allenai/Olmo-3-7B-Instruct allenai/OLMo-3-32B-Think",
    "gemma4": "google/gemma-4-31B-it gemma4:e4b",
    "functiongemma": "google/functiongemma-270m-it functiongemma:270m",
}  # fmt: skip
NAMES = [(model, dialect) for dialect, models in MODELS.items() for model in models.split()]


@pytest.mark.parametrize(("model", "dialect"), NAMES)
def test_a_model_is_known_by_the_names_it_goes_by(model: str, dialect: str):
    assert get_dialect("auto", model=model).name == dialect


def test_every_dialect_of_a_model_is_in_the_table():
    assert set(MODELS) == {dialect.name for dialect in DIALECTS if dialect not in PROTOCOLS}


@pytest.mark.parametrize(
    "model",
    [
        *("gpt-4o", "my-model", "", "/", "llama", "meta-llama/Meta-Llama-3-8B-Instruct", "llama2:7b", "qwen:7b"),
        *("mistral", "google/gemma-3-27b-it", "microsoft/phi-4", "zai-org/GLM-4-9B", "deepseek-ai/deepseek-coder-v2"),
        *("Qwen/unknown", "qwen3-coder/finetune", "deepseek-ai/DeepSeek-V5", "Qwen/Qwen3.9-8B", "stepfun/step-3.7"),
        *("CommandR", "museum-7b", "xhermesx", "dotsy", "granite-33b", "\ud800", "qwen" * 1000),
    ],
)
def test_an_unknown_model_is_an_error_that_says_how_to_choose(model: str):
    with pytest.raises(UnknownDialect, match=r"cogency-json.*\"auto\" without a model") as caught:
        get_dialect("auto", model=model)
    assert isinstance(caught.value, UsageError)


def test_no_two_dialects_claim_the_same_family():
    families = [family for dialect in DIALECTS for family in dialect.info.models]
    assert len(families) == len(set(families))


def test_a_named_dialect_needs_no_model():
    assert get_dialect("hermes", model="openai/gpt-oss-120b") is get_dialect("hermes")


@pytest.mark.parametrize(("model", "dialect"), [("qwen3", "hermes"), ("llama3.1", "llama3-json")])
def test_a_model_in_place_of_a_dialect_is_told_what_it_writes(model, dialect):
    with pytest.raises(UnknownDialect, match=f"models of that name write '{dialect}'. Known: apertus"):
        get_dialect(model)
