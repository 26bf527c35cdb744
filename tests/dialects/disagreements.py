"""The cases of other engines' tests that we read differently, reviewed one by one: a class and a reason for each.

`CLASSES` says what the classes mean. `LISTED` are rows of tests/samples; `ELSEWHERE` are rows of SGLang's tests, which
are not part of this project: only their ids and our reasons are. `SOFT` and `ELSEWHERE_SOFT` are those of malformed
input. Those cases only record what their engine does: a different answer is not a disagreement.
"""

from __future__ import annotations

CLASSES = {
    "mock": "The case contains text that no model writes: tokens that the test's mock tokenizer makes up, or marks of "
    "byte-level tokens, which a detokenizer removes.",
    "setting": "The result depends on a setting that the case does not contain: whether the engine reads calls or "
    "reasoning at all, or the form in which the request asked for calls.",
    "contradiction": "The engines contradict each other. For a call: vLLM 0.33.0's parser gives the same result as "
    "ours for SGLang's case. For text around calls: one engine keeps it and another drops it, or one engine keeps it "
    "before calls and drops it after them. We keep the text. Where all engines agree, we set it aside after calls.",
    "safer": "Our reading is safer. Our parsers never invent what the model did not write (a name, an argument, a "
    "value, an end): the call is malformed and does not run, and the model gets the reason. The start of a call is "
    "never shown as the answer. A call of an unknown tool is reported, so that the model learns which tools exist. "
    "Text without a call is not dropped.",
}

_AROUND = "text around the calls"
_MOCK = "`<bos>` and `<eos>` in the text are tokens of the mock tokenizer, not of the model"
_OPEN_CALL = "the engine shows a call that is still open at the end of the turn as text"
_UNREADABLE = "the engine shows a call with an unreadable body as text"
_OFF = "the case was recorded with tool-call parsing switched off"
_UNKNOWN_TOOL = "the engine drops a call of an unknown tool or shows it as text"
_TAIL = "the engine drops a possible half of a marker at the end of the turn"

DISAGREEMENTS: dict[str, tuple[str, str]] = {
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
    "vllm-k2_horizon-006": ("safer", _UNKNOWN_TOOL),
    "vllm-deepseek_v4-002": ("safer", "the engine shows the start of a V3.2 block as text and reads the call in it"),
    "vllm-minimax_m3-010": ("safer", "the engine shows a call without its surrounding block as text"),
    **dict.fromkeys(
        [
            *("vllm-glm47-034", "vllm-glm47-035", "vllm-glm47-036"),
            *("vllm-minimax_m2-043", "vllm-minimax_m2-047"),
        ],
        ("setting", _OFF),
    ),
    "vllm-k2_horizon-005": ("setting", "pairs with a type are a call if the request asked for that form"),
    "vllm-nemotron_v3_reasoning-004": ("setting", "unclosed reasoning is text if the request asks for text"),
    "vllm-minicpm5-026": ("safer", "the engine replaces an unknown tool with another tool"),
    "vllm-plamo3-022": ("safer", "the engine returns no arguments for a call whose arguments were cut off"),
    "vllm-minicpm5-018": ("mock", "the text has marks of byte-level tokens, which the detokenizer must remove"),
}
SOFT: dict[str, tuple[str, str]] = {
    "vllm-minimax_m2-021": ("safer", _UNKNOWN_TOOL),
    **dict.fromkeys(["vllm-hermes-010", "vllm-k2_horizon-007", "vllm-step3-002"], ("safer", _OPEN_CALL)),
    **dict.fromkeys(
        ["vllm-gemma4-089", "vllm-gemma4-123"], ("safer", "the engine returns an argument from an unclosed string")
    ),
    "vllm-mistral_v11-009": ("safer", "the engine returns a call without a name"),
    "vllm-seed_oss-024": ("safer", "the engine returns a call without arguments if it cannot read the start tag"),
    "vllm-granite3-009": (
        "safer",
        "one complete call without its surrounding array: we read and note it instead of showing it as text",
    ),
}

_ALONE = "a message with to=self is reasoning if reasoning is parsed"
ELSEWHERE: dict[str, tuple[str, str]] = {
    **dict.fromkeys(["sglang-gemma4-002", "sglang-lfm2-005"], ("contradiction", _AROUND)),
    "sglang-pythonic-009": ("safer", _TAIL),
    "sglang-gemma4-007": (
        "safer",
        "a call in the middle of a line of text is only a mention and stays text: running an example is worse",
    ),
    "sglang-poolside_v1-010": ("safer", "the engine shows arguments without a surrounding call as text"),
    **dict.fromkeys(
        ["sglang-inkling-013", "sglang-inkling-014"], ("safer", "the header of a call is inside another header")
    ),
    **dict.fromkeys(
        [
            *("sglang-hy_v3-004", "sglang-hy_v3-010", "sglang-lfm2-013", "sglang-minicpm5-003"),
            "sglang-poolside_v1-019",
        ],
        ("safer", _UNKNOWN_TOOL),
    ),
    **dict.fromkeys(["sglang-inkling-010", "sglang-minimax_m3-014"], ("safer", _UNREADABLE)),
    **dict.fromkeys(
        [
            *("sglang-muse-002", "sglang-muse-003", "sglang-muse-006", "sglang-muse-007"),
            *("sglang-muse-017", "sglang-muse-019", "sglang-muse-022"),
        ],
        ("setting", _ALONE),
    ),
    "sglang-inkling-002": ("setting", "a thinking message is reasoning if reasoning is parsed"),
    "sglang-kimi_k2-027": (
        "contradiction",
        "a bare number instead of the tool's name: with two tools, the engine infers the name from the arguments",
    ),
    "sglang-inkling-004": (
        "contradiction",
        "the engine passes on an empty name; vLLM drops the call; our call is malformed",
    ),
    "sglang-inkling-012": (
        "contradiction",
        "the engine reads the text of a raw tool call, which names no tool, as a call",
    ),
    **dict.fromkeys(
        ["sglang-poolside_v1-001", "sglang-poolside_v1-005", "sglang-poolside_v1-009"],
        ("safer", "the engine omits an argument without a value, so the call runs without that restriction"),
    ),
    "sglang-inkling-008": ("safer", "NaN is not valid JSON and cannot be passed on: our call is malformed"),
}
ELSEWHERE_SOFT: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        ["sglang-hy_v3-021", "sglang-kimi_k3-012"],
        ("safer", _TAIL),
    ),
    "sglang-harmony-010": ("safer", "the message is on a channel that does not exist"),
    "sglang-kimi_k2-030": ("safer", "we drop special tokens outside any call; the engine keeps them"),
    **dict.fromkeys(["sglang-glm45-008", "sglang-glm47-007"], ("safer", _UNKNOWN_TOOL)),
    "sglang-minicpm5-009": ("safer", "the tool does not have the argument: our runtime reports this"),
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
    "sglang-inkling-009": ("safer", "one of two calls is unreadable: the engine rejects both; we run the other call"),
    **dict.fromkeys(["sglang-minicpm5-006", "sglang-minimax_m3-015"], ("safer", _OPEN_CALL)),
    **dict.fromkeys(["sglang-muse-004", "sglang-muse-020"], ("setting", _ALONE)),
    **dict.fromkeys(
        ["sglang-glm45-011", "sglang-glm47-010"],
        (
            "contradiction",
            "a text value is everything between its tags, as the chat template writes it; the engine removes quotes",
        ),
    ),
    "sglang-qwen3_coder-006": ("safer", "the end of the turn cut the call off inside a value"),
    "sglang-llama3_json-001": ("safer", "the engine reads a call from unbalanced braces"),
}
