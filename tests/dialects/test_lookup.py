"""Models by the names under which hubs, servers and files know them, and the dialects they were trained on."""

from __future__ import annotations

import re

import pytest
from dialect_strategies import TOOLS

from toolspeak.dialects import DIALECTS, PROTOCOLS, get_dialect
from toolspeak.errors import ConfigurationError, UnknownDialect

MODELS = {
    "hermes": """JetBrains/Mellum2-12B-A2.5B-Instruct arcee-ai/Trinity-Mini HuggingFaceTB/SmolLM3-3B
        qwen3:30b-a3b@q4_k_m qwen.qwen3-32b-v1:0 cerebras/qwen-3-32b Qwen/Qwen3-VL-30B-A3B-Instruct
        Qwen/Qwen3-Next-80B-A3B-Instruct qwen/qwen3-next-80b-a3b-instruct:free NousResearch/Hermes-3-Llama-3.1-8B
        NousResearch/Hermes-4-70B nous-hermes2:34b Qwen/Qwen2.5-7B-Instruct Qwen/Qwen2.5-Coder-32B-Instruct-AWQ
        qwen2.5:14b-instruct-q4_K_M Qwen/Qwen3-8B qwen3:30b-a3b Qwen/QwQ-32B
        unsloth/Qwen3-235B-A22B-Instruct-2507-GGUF Qwen3-4B-Thinking-2507-FP8 XiaomiMiMo/MiMo-VL-7B-RL
        RekaAI/reka-flash-3 hermes3:8b QWEN3-14B""",
    "granite4": """ibm-granite/granite-4.1-8b granite4.1:3b ibm-granite/granite-4.0-h-tiny granite4:3b
        granite-4.0-micro-GGUF""",
    "ernie45": "baidu/ERNIE-4.5-21B-A3B-Thinking",
    "longcat": "meituan-longcat/LongCat-2.0-FP8 meituan-longcat/LongCat-Flash-Chat-FP8",
    "jamba": "ai21labs/AI21-Jamba-1.5-Mini ai21labs/AI21-Jamba-Large-1.7",
    "apriel": "ServiceNow-AI/Apriel-1.6-15b-Thinker",
    "minimax-m1": "MiniMaxAI/MiniMax-M1-80k MiniMaxAI/MiniMax-M1-40k-hf",
    "solar-open": "upstage/Solar-Open-100B nota-ai/Solar-Open-100B-NotaMoEQuant-Int4",
    "hunyuan-a13b": "tencent/Hunyuan-A13B-Instruct-GPTQ-Int4",
    "nemotron-v2": "nvidia/NVIDIA-Nemotron-Nano-9B-v2 nvidia/Llama-3.1-Nemotron-Nano-8B-v1",
    "apertus": "swiss-ai/Apertus-8B-Instruct-2509",
    "internlm2": "internlm/internlm2_5-7b-chat internlm/internlm3-8b-instruct internlm2:7b",
    "inkling": "thinkingmachines/Inkling-Small thinkingmachines/Inkling",
    "dots": "rednote-hilab/dots.llm1.inst",
    "granite3": "ibm-granite/granite-3.3-8b-instruct granite3.1-dense:8b ibm-granite/granite-3.0-2b-instruct",
    "granite-20b-fc": "ibm-granite/granite-20b-functioncalling",
    "phi4-mini": "microsoft/Phi-4-mini-instruct phi4-mini:3.8b fireworks-ai/llama-3-firefunction-v2",
    "mistral-v3": """mistralai/Mistral-7B-Instruct-v0.3 mistral:7b-instruct-v0.3-q4_0 mistral-nemo:12b
        mistralai/Mistral-Nemo-Instruct-2407 mistralai/Mixtral-8x7B-Instruct-v0.1 mistral-small3.1:24b
        mistralai/Mistral-Small-3.1-24B-Instruct-2503 mistralai/Mistral-Large-Instruct-2411""",
    "mistral-v11": "mistralai/Mistral-Medium-3",
    "mistral-ids": "mistralai/Mistral-Small-3.2-24B-Instruct-2506 mistral-small3.2",
    "mistral-args": """mistralai/Mistral-Small-4-119B-2603 mistralai/Mistral-Medium-3.5-128B
        mistralai/Devstral-2-123B-Instruct-2512 mistral-small-4:119b mistralai/Devstral-Small-2507
        mistralai/Ministral-3-8B-Instruct-2512 devstral:24b mistralai/Magistral-Small-2509
        mistralai/Mistral-Large-3-675B-Instruct-2512""",
    "llama3-json": """us.meta.llama3-1-70b-instruct-v1:0 meta.llama3-3-70b-instruct-v1:0 llama-3.3-70b-versatile
        meta-llama/Llama-3.1-8B-Instruct meta-llama/Meta-Llama-3.1-405B-Instruct-FP8 llama3.1:8b
        llama3.3:70b-instruct-q4_K_M meta-llama/Llama-3.2-3B-Instruct Llama-3.2-1B-Instruct-Q4_K_M.gguf
        accounts/fireworks/models/llama-v3p1-70b-instruct hf.co/bartowski/Llama-3.3-70B-Instruct-GGUF:IQ3_M""",
    "xlam": "Salesforce/Llama-xLAM-2-8b-fc-r Salesforce/xLAM-1b-fc-r",
    "gigachat3": "ai-sage/GigaChat3-10B-A1.8B",
    "gigachat31": "ai-sage/GigaChat3.1-10B-A1.8B",
    "cohere-command": """CohereLabs/North-Mini-Code-1.0-fp8 CohereLabs/command-a-reasoning-08-2025
        CohereLabs/c4ai-command-r7b-12-2024 CohereLabs/c4ai-command-a-03-2025 command-r7b:7b""",
    "command-r-plus": "CohereLabs/c4ai-command-r-plus-08-2024 command-r:35b",
    "deepseek-v3": """deepseek.v3-v1:0 us.deepseek.r1-v1:0 deepseek-ai/DeepSeek-V3 deepseek-ai/DeepSeek-V3-0324
        deepseek-ai/DeepSeek-R1-0528 deepseek-v3:671b deepseek-r1:8b-0528-qwen3-q4_K_M
        cognitivecomputations/DeepSeek-V3-0324-AWQ""",
    "deepseek-v31": "deepseek-ai/DeepSeek-V3.1-Terminus deepseek-v3.1:671b deepseek-ai/DeepSeek-V3.2-Exp",
    "deepseek-v32": "deepseek-ai/DeepSeek-V3.2 deepseek-ai/DeepSeek-V3.2-Speciale",
    "deepseek-v4": """deepseek-ai/DeepSeek-V4-Flash deepseek-ai/DeepSeek-V4-Pro deepseek-v4-flash:cloud
        deepseek-ai/DeepSeek-V4""",
    "deepseek-v41": "deepseek-ai/DeepSeek-V4.1-Flash deepseek.v4-1-flash-v1:0 deepseek-ai/DeepSeek-V4.1",
    "kimi-k2": """moonshotai/Kimi-K2.5 moonshotai/Kimi-K2.6 moonshotai/Kimi-K2.7-Code
        accounts/fireworks/models/kimi-k2p5 kimi-k2.5:cloud moonshotai/Kimi-Linear-48B-A3B-Instruct
        moonshot.kimi-k2-thinking unsloth/Kimi-K2.6-GGUF moonshotai/Kimi-K2-Instruct-0905
        moonshotai/Kimi-K2-Thinking kimi-k2:1t-cloud""",
    "kimi-k3": "moonshotai/Kimi-K3",
    "functionary-v31": "meetkai/functionary-medium-v3.1 functionary-small-v3.1.Q8_0.gguf",
    "functionary-v32": "meetkai/functionary-small-v3.2-GGUF",
    "harmony": """openai.gpt-oss-120b-1:0 openai/gpt-oss-120b:free gpt-oss-20b-MXFP4.gguf openai/gpt-oss-120b
        gpt-oss:20b unsloth/gpt-oss-20b-GGUF:F16""",
    "qwen3-coder": """Qwen/Qwen3.6-35B-A3B qwen3.6:27b unsloth/Qwen3.6-27B-GGUF:UD-Q4_K_XL
        Qwen3.6-35B-A3B-UD-Q4_K_XL.gguf nvidia/Qwen3.6-35B-A3B-NVFP4 Qwen/Qwen3.8-27B Qwen/Qwen3.8-2.4T-A95B
        accounts/fireworks/models/qwen3p8-27b qwen.qwen3-coder-480b-a35b-v1:0
        nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16 nemotron-3-nano:30b nvidia/nemotron-nano-3.5-ea2
        nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16 Nanbeige/Nanbeige4.1-3B Qwen/Qwen3-Coder-30B-A3B-Instruct
        Qwen/Qwen3-Coder-30B qwen3-coder:30b-a3b-q4_K_M Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8
        Qwen/Qwen3-Coder-Next Qwen/Qwen3.5-4B nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16
        lmstudio-community/Qwen3-Coder-30B-A3B-Instruct-MLX-4bit""",
    "step3p5": """stepfun-ai/Step-3.7-Flash stepfun/step-3.7-flash:free stepfun-ai/Step-5 stepfun-ai/Step-3.5-Flash
        step3p5""",
    "step3": "stepfun-ai/step3 stepfun-ai/step3-fp8",
    "mimo": "XiaomiMiMo/MiMo-V2.5 XiaomiMiMo/MiMo-V2.5-Pro xiaomi/mimo-v2.5-pro XiaomiMiMo/MiMo-V2-Flash",
    "seed-oss": "ByteDance-Seed/Seed-OSS-36B-Instruct seed_oss:36b",
    "minimax-m2": """MiniMaxAI/MiniMax-M2.5 MiniMaxAI/MiniMax-M2.7 accounts/fireworks/models/minimax-m2p5
        minimax.minimax-m2 MiniMaxAI/MiniMax-M2 MiniMaxAI/MiniMax-M2.1 minimax-m2:cloud""",
    "minimax-m3": "MiniMaxAI/MiniMax-M3",
    "minicpm5": "openbmb/MiniCPM5-1B",
    "muse": "meta/Muse-Spark",
    "claude-legacy": "claude-2.1 anthropic.claude-v2:1 claude-instant-1.2",
    "glm45": """inclusionAI/Ring-2.6-1T zai-org/GLM-4.5V zai-org/GLM-4.6V zai-org/GLM-4.5-Air zai-org/GLM-4.6-FP8
        glm-4.6:cloud cpatonn/GLM-4.5-Air-AWQ-4bit""",
    "glm47": """zai-org/GLM-5.2 zai-org/GLM-5.3 zai-org/GLM-5.3-Flash unsloth/GLM-5.2-GGUF:UD-Q2_K_XL zai-glm-4.7
        glm-4-7-flash zai.glm-5-1 glm-5:cloud zai-org/GLM-4.7-Flash zai-org/GLM-5 zai-org/GLM-5.1""",
    "spark25": "iflytek/Spark2.5",
    "ling3": "inclusionAI/Ling-3.0-flash",
    "poolside-v1": "poolside/Laguna-XS-2.1 poolside/Laguna-XS.2",
    "laguna-s": "poolside/Laguna-S-2.1",
    "hy-v3": "tencent/Hy3-preview",
    "hy-v3-opensource": "tencent/Hy4-preview-FP8 tencent/Hy3",
    "k2-horizon": "IFM/Jais-3-7B IFM/K2-Horizon-375B-A23B IFM/K2-Horizon",
    "plamo3": "pfnet/plamo-3-nict-8b-base",
    "pythonic": "Team-ACE/ToolACE-2-Llama-3.1-8B",
    "llama4-pythonic": "meta-llama/Llama-4-Scout-17B-16E-Instruct llama4:16x17b",
    "lfm2": "LiquidAI/LFM2-8B-A1B LiquidAI/LFM2-1.2B-Tool-GGUF",
    "lfm25": "LiquidAI/LFM2.5-1.2B-Instruct LiquidAI/LFM2.5-8B-A1B-GGUF lfm2.5-thinking:1.2b",
    "olmo3": "allenai/Olmo-3.1-32B-Instruct allenai/Olmo-3-7B-Instruct allenai/OLMo-3-32B-Think",
    "gemma4": """google/gemma-4-26B-A4B-it unsloth/gemma-4-E4B-it-GGUF google/gemma-4-12B-it gemma4:31b-cloud
        lmstudio-community/gemma-4-31B-it-MLX-4bit google/gemma-4-31B-it gemma4:e4b""",
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
        *("Qwen/unknown", "qwen3-coder/finetune", "deepseek-ai/DeepSeek-V5", "Qwen/Qwen3.9-8B", "stepfun/step-3.9"),
        *(
            "CommandR",
            "museum-7b",
            "xhermesx",
            "dotsy",
            "granite-33b",
            "ai-sage/GigaChat3.5-432B",
            "\ud800",
            "qwen" * 1000,
        ),
    ],
)
def test_an_unknown_model_is_an_error_that_says_how_to_choose(model: str):
    with pytest.raises(UnknownDialect, match=r"cogency-json.*\"auto\" without a model") as raised_error:
        get_dialect("auto", model=model)
    assert isinstance(raised_error.value, ConfigurationError)


def test_no_two_dialects_claim_the_same_family():
    families = [family for dialect in DIALECTS for family in dialect.info.models]
    assert len(families) == len(set(families))


def test_a_named_dialect_needs_no_model():
    assert get_dialect("hermes", model="openai/gpt-oss-120b") is get_dialect("hermes")
    assert get_dialect("hermes", model="Qwen/Qwen3-8B") is get_dialect("hermes")


def test_a_named_dialect_lists_tools_as_the_template_of_the_model_does():
    hermes, qwen = get_dialect("hermes"), get_dialect("hermes", model="Qwen/Qwen2.5-7B-Instruct")
    assert qwen is get_dialect("hermes", model="qwen2.5:72b")
    assert (qwen.name, qwen.info) == (hermes.name, hermes.info)
    assert qwen.instructions(TOOLS).startswith("You are Qwen, created by Alibaba Cloud.")
    assert hermes.instructions(TOOLS).startswith("# Tools\n\nYou may call one or more functions")
    assert qwen.instructions(TOOLS, listing="prose") == hermes.instructions(TOOLS, listing="prose")


@pytest.mark.parametrize(
    ("family", "dialect"),
    [
        *(("qwen3", "hermes"), ("llama3.1", "llama3-json"), ("glm-4.5", "glm45"), ("GLM_5.2", "glm47")),
        *(("kimi-k2.5", "kimi-k2"), ("gemma-4", "gemma4"), ("deepseek-v3", "deepseek-v3"), ("gpt-oss", "harmony")),
    ],
)
def test_a_model_family_instead_of_a_dialect_is_its_dialect(family: str, dialect: str):
    assert get_dialect(family).name == dialect


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        *(("gemma", "gemma4"), ("mistral", "mistral-args"), ("qwen", "qwen3-coder"), ("glm", "glm47")),
        *(("deepseek", "deepseek-v41"), ("Qwen/Qwen3-8B-FP8", "hermes"), ("nemotron", "qwen3-coder")),
        *(("hermez", "hermes"), ("toolcall", "tool-call"), ("cogency_jsn", "cogency-json")),
        *(
            ("minimax-m1-80k", "minimax-m1"),
            ("solar", "solar-open"),
            ("xyzzy", "auto"),
            ("", "auto"),
            ("\ud800", "auto"),
        ),
    ],
)
def test_a_name_that_is_no_dialect_is_answered_with_the_one_that_is_meant(name: str, suggestion: str):
    with pytest.raises(UnknownDialect) as raised_error:
        get_dialect(name)
    suggestions = {each.strip("'") for each in re.findall(r"'[^']*'", str(raised_error.value).replace(repr(name), ""))}
    assert suggestions == {suggestion}
    assert get_dialect(suggestion)
