"""The cases of other engines' tests that we read differently, reviewed one by one: a class and a reason for each.

`CLASSES` says what the classes mean. `LISTED` are rows of tests/samples; `ELSEWHERE` are rows of SGLang's tests, which
are not part of this project: only their ids and our reasons are. `SOFT` and `ELSEWHERE_SOFT` are those of malformed
input. Those cases only record what their engine does: a different answer is not a disagreement.
"""

from __future__ import annotations

CLASSES = {
    "mock": "The case holds what no model writes: tokens that the test's mock tokenizer makes up, or marks of "
    "byte-level tokens, which a detokenizer removes.",
    "setting": "A setting, which the case does not hold, decides: whether calls or reasoning are read at all, and in "
    "which form the request asked for calls.",
    "contradiction": "The engines contradict each other. For a call: vLLM 0.33.0's parser, run on SGLang's case, gives "
    "what ours gives. For text around calls: one keeps it and another drops it, or one keeps it before calls and "
    "drops it after them; we keep it, and set it aside after calls where all agree.",
    "safer": "Ours is the safer reading. What the model did not write is never made up (a name, an argument, a value, "
    "an end): the call is malformed, does not run, and the model gets the reason. What began as a call is never shown "
    "as the answer. A call of an unknown tool is reported, so that the model learns which tools exist. Text "
    "that holds no call is not dropped.",
}

_AROUND = "text around the calls"
_MOCK = "`<bos>` and `<eos>` in the text, tokens of the mock tokenizer and not of the model"
_UNCLOSED = "a call that is not closed when the turn ends is shown as text"
_UNREADABLE = "a call whose body cannot be read is shown as text"
_OFF = "recorded with the reading of calls switched off"
_UNKNOWN = "the call of an unknown tool is dropped, or shown as text"
_TAIL = "what may be half a marker at the end of the turn is dropped"

LISTED: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        [
            *("vllm-deepseek_v4-059", "vllm-deepseek_v4-062", "vllm-deepseek_v4-063", "vllm-deepseek_v41-017"),
            *("vllm-kimi_k2-051", "vllm-kimi_k2-056", "vllm-mimo-024", "vllm-mimo-028"),
            *("vllm-minimax_m2-049", "vllm-minimax_m2-051", "vllm-nemotron_v3-022"),
            *("vllm-qwen3_coder-042", "vllm-qwen3_coder-044", "vllm-seed_oss-021", "vllm-seed_oss-022"),
            *("vllm-step3p5-032", "vllm-step3p5-033", "vllm-step3p5-035"),
        ],
        ("mock", _MOCK),
    ),
    **dict.fromkeys(
        [
            *("vllm-kimi_k2-026", "vllm-llama3_json-008", "vllm-minicpm5-002", "vllm-minicpm5-012"),
            "vllm-phi4_mini-005",
        ],
        ("contradiction", _AROUND),
    ),
    "vllm-k2_horizon-006": ("safer", _UNKNOWN),
    "vllm-deepseek_v4-002": ("safer", "the start of a block of V3.2 is shown as text, and the call in it is read"),
    "vllm-minimax_m3-010": ("safer", "a call without the block around it is shown as text"),
    **dict.fromkeys(
        [
            *("vllm-glm47-034", "vllm-glm47-035", "vllm-glm47-036"),
            *("vllm-minimax_m2-043", "vllm-minimax_m2-047"),
        ],
        ("setting", _OFF),
    ),
    "vllm-k2_horizon-005": ("setting", "pairs with a type are a call where the request asked for them"),
    "vllm-nemotron_v3_reasoning-004": ("setting", "reasoning that never ends is text where the request wants some"),
    "vllm-minicpm5-026": ("safer", "another tool replaces an unknown one"),
    "vllm-plamo3-022": ("safer", "no arguments for a call whose arguments were cut off"),
    "vllm-minicpm5-018": ("mock", "marks of byte-level tokens in text, which are the detokenizer's to remove"),
}
SOFT: dict[str, tuple[str, str]] = {
    "vllm-minimax_m2-021": ("safer", _UNKNOWN),
    **dict.fromkeys(["vllm-hermes-010", "vllm-k2_horizon-007", "vllm-step3-002"], ("safer", _UNCLOSED)),
    **dict.fromkeys(["vllm-gemma4-089", "vllm-gemma4-123"], ("safer", "an argument of a string without its end")),
    "vllm-mistral_v11-009": ("safer", "a call without a name"),
    "vllm-seed_oss-024": ("safer", "a call without arguments for a start tag that cannot be read"),
    "vllm-granite3-009": ("safer", "one whole call without the array around it: read and noted, not shown as text"),
}

_ALONE = "a message to=self, which is reasoning where reasoning is read"
ELSEWHERE: dict[str, tuple[str, str]] = {
    **dict.fromkeys(["sglang-gemma4-002", "sglang-lfm2-005"], ("contradiction", _AROUND)),
    "sglang-pythonic-009": ("safer", _TAIL),
    "sglang-gemma4-007": (
        "safer",
        "a call in the middle of a line of text is a mention of one, and stays text: an example that runs is worse",
    ),
    "sglang-poolside_v1-010": ("safer", "arguments without a call around them are shown as text"),
    **dict.fromkeys(["sglang-inkling-013", "sglang-inkling-014"], ("safer", "a header of a call inside a header")),
    **dict.fromkeys(
        [
            *("sglang-hy_v3-004", "sglang-hy_v3-010", "sglang-lfm2-013", "sglang-minicpm5-003"),
            "sglang-poolside_v1-019",
        ],
        ("safer", _UNKNOWN),
    ),
    **dict.fromkeys(["sglang-inkling-010", "sglang-minimax_m3-014"], ("safer", _UNREADABLE)),
    **dict.fromkeys(
        [
            *("sglang-muse-002", "sglang-muse-003", "sglang-muse-006", "sglang-muse-007"),
            *("sglang-muse-017", "sglang-muse-019", "sglang-muse-022"),
        ],
        ("setting", _ALONE),
    ),
    "sglang-inkling-002": ("setting", "a thinking message, which is reasoning where reasoning is read"),
    "sglang-kimi_k2-027": (
        "contradiction",
        "a bare number instead of the tool's name: with two tools there it is inferred from the arguments",
    ),
    "sglang-inkling-004": ("contradiction", "an empty name is handed on there; vLLM drops the call, ours is malformed"),
    "sglang-inkling-012": ("contradiction", "the text of a raw tool call, which names no tool, is a call there"),
    **dict.fromkeys(
        ["sglang-poolside_v1-001", "sglang-poolside_v1-005", "sglang-poolside_v1-009"],
        ("safer", "an argument that lacks its value is left out: what it was to narrow down, then runs without it"),
    ),
    "sglang-inkling-008": ("safer", "NaN is no JSON, and cannot be sent on as such: malformed"),
}
ELSEWHERE_SOFT: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        ["sglang-hy_v3-021", "sglang-kimi_k3-012"],
        ("safer", _TAIL),
    ),
    "sglang-harmony-010": ("safer", "a message on a channel that does not exist"),
    "sglang-kimi_k2-030": ("safer", "special tokens outside of any call: dropped here, kept there"),
    **dict.fromkeys(["sglang-glm45-008", "sglang-glm47-007"], ("safer", _UNKNOWN)),
    "sglang-minicpm5-009": ("safer", "an argument that the tool does not have: the runtime says so"),
    **dict.fromkeys(
        [
            "sglang-gigachat3-004",
            "sglang-hermes-006",
            "sglang-inkling-007",
            "sglang-minicpm5-007",
            "sglang-minicpm5-008",
        ],
        ("safer", _UNREADABLE),
    ),
    "sglang-inkling-009": ("safer", "of two calls one cannot be read: there none counts, here the other one runs"),
    **dict.fromkeys(["sglang-minicpm5-006", "sglang-minimax_m3-015"], ("safer", _UNCLOSED)),
    **dict.fromkeys(["sglang-muse-004", "sglang-muse-020"], ("setting", _ALONE)),
    **dict.fromkeys(
        ["sglang-glm45-011", "sglang-glm47-010"],
        (
            "contradiction",
            "a text is everything between its tags, as the chat template writes it; that engine removes quotes",
        ),
    ),
    "sglang-qwen3_coder-006": ("safer", "a call that the end of the turn cut off inside of a value"),
    "sglang-llama3_json-001": ("safer", "a call out of braces that do not match"),
}
