"""Each template, the name of a model with it, and how much of our prompt equals its prompt.

`whole`: every prompt of `conversations.py` is equal, byte for byte. `block`: the text of the tools is, and `why` says
what of its place or frame no message can say. `other`: of two templates of the same model this one is not followed, as
far as they differ. `none`: the template writes no tools. `history`: a conversation with
calls and results is whole too, with results in messages of this role.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Expected:
    model: str
    first: Literal["whole", "block", "other", "none", "to come"] = "to come"
    why: str = ""
    history: Literal["", "user", "tool"] = ""


_MISTRAL = "the template writes the tools between the system turn and `[INST]`; a message follows `[INST]`"
_NEMO = "the template writes the tools before `[INST]`; a message follows it"
_KIMI = "the template writes the tools in a turn named `tool_declare`; ours is a turn named `system`"
_KIMI_0905 = "without a system text the template writes a line break after its own; with one the prompt is whole"
_K3 = (
    "the template writes the tools in a turn of the type `tool-declare`, ahead of its own text on "
    "thinking; ours is a plain turn after that"
)
_LLAMA = "the template writes `Environment: ipython` into its own system text when there are tools"
_GRANITE = "without a system text the template names the day in its own; with one the prompt is whole"
_APERTUS = "the template writes the tools in a developer turn; ours are in the system turn before it"
_APRIEL = "without a system text the template writes its own twice, once with the tools; with one the prompt is whole"
_COHERE = "the template writes the tools in the middle of its own system text"
_R_PLUS = "the template writes the tools' heading even without tools"
_GIGACHAT = "the template writes the tools in a turn named `function descriptions`; ours is named `system`"
_SPARK = "the template writes the tools directly after its own text, and a line break before ours"
_FUNCTIONARY = "the template writes the tools in a system turn of its own, which it also writes without tools"
_FUNCTIONARY31 = (
    f"{_FUNCTIONARY}; transformers writes the quotes in its JSON as `&#34;`, where llama.cpp's engine and the model's "
    "own code write quotes, and so do we"
)
_SOLAR = (
    "without a system text the template writes its heading `System Prompt` above ours; with one the prompt is whole"
)
_MUSE = "the template names the tools among the valid recipients after the system text"

_HERMES = (
    "without tools the template writes its system turn with an empty list, before ours: servers have another "
    "template for that"
)
_GPT_OSS = (
    "the template tells the channel of calls in its own system text when there are tools, and always writes a heading "
    "and two line breaks around ours"
)
_GEMMA = "an older template of the same model, which misplaces commas in nested objects"

LEVELS: dict[str, Expected] = {
    "Apertus-8B-Instruct": Expected("Apertus-8B-Instruct", "block", _APERTUS),
    "Apriel-1.6-15b-Thinker-fixed": Expected("Apriel-1.6-15b-Thinker", "whole", history="tool"),
    "Bielik-11B-v3.0-Instruct": Expected("Bielik-11B-v3.0-Instruct", "whole"),
    "ByteDance-Seed-OSS": Expected("Seed-OSS-36B-Instruct", "whole", history="tool"),
    "Cohere2MoE": Expected("command-a-moe", "block", _COHERE),
    "CohereForAI-c4ai-command-r-plus-tool_use": Expected("c4ai-command-r-plus", "block", _R_PLUS),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": Expected("c4ai-command-r7b-12-2024", "block", _COHERE),
    "GLM-4.6": Expected("GLM-4.6", "whole", history="tool"),
    "GLM-4.7-Flash": Expected("GLM-4.7-Flash", "whole"),
    "GigaChat3-10B-A1.8B": Expected("GigaChat3-10B-A1.8B", "block", _GIGACHAT),
    "GigaChat3.1-10B-A1.8B": Expected("GigaChat3.1-10B-A1.8B", "block", _GIGACHAT),
    "HuggingFaceTB-SmolLM3-3B": Expected("SmolLM3-3B", "none"),
    "Kimi-K2-Instruct": Expected(
        "Kimi-K2-Instruct-0905",
        "block",
        _KIMI_0905,
    ),
    "Kimi-K2-Thinking": Expected("Kimi-K2-Thinking", "whole"),
    "Kimi-K3": Expected(
        "Kimi-K3",
        "block",
        _K3,
    ),
    "LFM2-8B-A1B": Expected("LFM2-8B-A1B", "whole"),
    "LFM2.5-8B-A1B": Expected("LFM2.5-8B-A1B", "whole", history="tool"),
    "LFM2.5-Instruct": Expected("LFM2.5-1.2B-Instruct", "whole"),
    "MiMo-VL": Expected("MiMo-VL-7B-RL", "whole", history="tool"),
    "MiniMax-M1": Expected("MiniMax-M1-80k", "whole"),
    "MiniMax-M2": Expected("MiniMax-M2", "whole"),
    "MiniMax-M3": Expected("MiniMax-M3", "whole"),
    "Mistral-Small-3.2-24B-Instruct-2506": Expected(
        "Mistral-Small-3.2-24B-Instruct-2506",
        "block",
        _MISTRAL,
    ),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": Expected("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "whole"),
    "NVIDIA-Nemotron-Nano-v2": Expected("NVIDIA-Nemotron-Nano-9B-v2", "whole", history="tool"),
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": Expected("Hermes-2-Pro-Llama-3-8B", "block", _HERMES),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": Expected("Hermes-3-Llama-3.1-8B", "block", _HERMES),
    "Qwen-QwQ-32B": Expected("QwQ-32B", "whole", history="tool"),
    "Qwen-Qwen2.5-7B-Instruct": Expected("Qwen2.5-7B-Instruct", "whole", history="tool"),
    "Qwen-Qwen3-0.6B": Expected("Qwen3-0.6B", "whole", history="tool"),
    "Qwen3-Coder": Expected("Qwen3-Coder-30B-A3B-Instruct", "whole", history="tool"),
    "Qwen3.5-4B": Expected("Qwen3.5-4B", "whole", history="tool"),
    "Reka-Edge": Expected("reka-edge", "whole", history="tool"),
    "Spark2.5": Expected("Spark-2.5", "block", _SPARK),
    "StepFun3.5-Flash": Expected("Step-3.5-Flash", "whole", history="tool"),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": Expected("DeepSeek-R1-Distill-Llama-8B", "none"),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": Expected("DeepSeek-R1-Distill-Qwen-32B", "none"),
    "deepseek-ai-DeepSeek-V3.1": Expected("DeepSeek-V3.1", "none"),
    "deepseek-ai-DeepSeek-V3.2": Expected("DeepSeek-V3.2", "whole"),
    "deepseek-ai-DeepSeek-V4": Expected("DeepSeek-V4", "whole"),
    "deepseek-ai-DeepSeek-V4-Flash-0731": Expected("DeepSeek-V4-Flash-0731", "whole"),
    "fireworks-ai-llama-3-firefunction-v2": Expected("firefunction-v2", "none"),
    "google-gemma-2-2b-it": Expected("gemma-2-2b-it", "none"),
    "google-gemma-4-31B-it": Expected("gemma-4-31B-it", "whole"),
    "google-gemma-4-31B-it-interleaved": Expected("gemma-4-31B-it", "other", _GEMMA),
    "ibm-granite-granite-3.3-2B-Instruct": Expected(
        "granite-3.3-2b-instruct",
        "block",
        _GRANITE,
    ),
    "ibm-granite-granite-4.0": Expected("granite-4.0-h-small", "whole", history="tool"),
    "ibm-granite-granite-4.1": Expected("granite-4.1-8b", "whole", history="tool"),
    "inclusionai-ling-3.0-flash": Expected("Ling-3.0-flash", "whole", history="tool"),
    "llama-cpp-deepseek-r1": Expected("DeepSeek-R1", "whole"),
    "llama-cpp-rwkv-world": Expected("rwkv-world", "none"),
    "meetkai-functionary-medium-v3.1": Expected("functionary-medium-v3.1", "block", _FUNCTIONARY31),
    "meetkai-functionary-medium-v3.2": Expected("functionary-medium-v3.2", "block", _FUNCTIONARY),
    "meta-llama-Llama-3.1-8B-Instruct": Expected(
        "Llama-3.1-8B-Instruct",
        "block",
        _LLAMA,
    ),
    "meta-llama-Llama-3.2-3B-Instruct": Expected(
        "Llama-3.2-3B-Instruct",
        "block",
        _LLAMA,
    ),
    "meta-llama-Llama-3.3-70B-Instruct": Expected(
        "Llama-3.3-70B-Instruct",
        "block",
        _LLAMA,
    ),
    "microsoft-Phi-3.5-mini-instruct": Expected("Phi-3.5-mini-instruct", "none"),
    "mistralai-Ministral-3-14B-Reasoning-2512": Expected(
        "Ministral-3-14B-Reasoning-2512",
        "block",
        _MISTRAL,
    ),
    "mistralai-Mistral-Nemo-Instruct-2407": Expected(
        "Mistral-Nemo-Instruct-2407",
        "block",
        _NEMO,
    ),
    "moonshotai-Kimi-K2": Expected(
        "Kimi-K2-Instruct",
        "block",
        _KIMI,
    ),
    "muse-glimmer": Expected("muse-glimmer", "block", _MUSE),
    "openai-gpt-oss-120b": Expected("gpt-oss-120b", "block", _GPT_OSS),
    "openbmb-MiniCPM5-1B": Expected("MiniCPM5-1B", "whole", history="tool"),
    "poolside-Laguna-S-2.1": Expected("Laguna-S-2.1", "whole", history="tool"),
    "poolside-Laguna-XS-2.1": Expected("Laguna-XS-2.1", "whole", history="tool"),
    "poolside-Laguna-XS.2": Expected("Laguna-XS.2", "whole", history="tool"),
    "tencent-Hy3": Expected("Hy3", "whole"),
    "unsloth-Apriel-1.5": Expected("Apriel-1.5-15b-Thinker", "block", _APRIEL),
    "unsloth-mistral-Devstral-Small-2507": Expected(
        "Devstral-Small-2507",
        "block",
        _MISTRAL,
    ),
    "upstage-Solar-Open-100B": Expected("Solar-Open-100B", "block", _SOLAR),
}
