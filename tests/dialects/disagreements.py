"""The cases of other engines' tests that we read otherwise, reviewed one by one: a class and a reason for each.

`CLASSES` says what the classes mean. `LISTED` are rows of tests/samples; `ELSEWHERE` are rows of SGLang's tests, which
are not part of this project: only their ids and our reasons are. `SOFT` and `ELSEWHERE_SOFT` are those of malformed
input, of which the cases only tell what their engine does: another answer is no disagreement.
"""

from __future__ import annotations

CLASSES = {
    "text": "The engine drops text that stands before, between or behind calls, or what may be half a marker at the "
    "end. We drop none; text behind calls is set aside, and reported, where the engines agree. What stands before them "
    "has left by then, and elsewhere the engines differ, one even between its streams and its whole texts.",
    "unknown-tool": "The engine drops or shows as text the call of a tool it was not given. We report the call, and "
    "the model is told which tools there are.",
    "malformed": "The engine shows as text what was begun as a call and cannot be read. We report it as malformed, so "
    "that the model is told what is wrong with it; either way nothing runs.",
    "alone": "The case runs a tool parser alone, for which reasoning is text of the turn.",
    "twofold": "A setting of the request, which the case does not hold, makes the same text a call or none, or text or "
    "reasoning.",
    "contradicted": "Two engines contradict each other: vLLM 0.33.0's parser, run on SGLang's case, gives the text and "
    "the calls that ours gives.",
    "guess": "The engine completes or invents what the model did not write: a name, an argument, a value. A guessed "
    "call never runs; ours is malformed.",
    "reading": "Anything else.",
}
COUNTED = ("guess", "reading")
"""The classes of what may be held against us: together under 2 % of the rows."""

_AFTER = "text around the calls"
_UNCLOSED = "a call that is not closed when the turn ends"
_UNREADABLE = "a call whose body cannot be read"
_OFF = "recorded with the reading of calls switched off"
_ELSEWHERE_UNKNOWN = "dropped or shown as text there"

LISTED: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        [
            *("vllm-kimi_k2-026", "vllm-llama3_json-008", "vllm-minicpm5-002", "vllm-minicpm5-012"),
            "vllm-phi4_mini-005",
        ],
        ("text", _AFTER),
    ),
    "vllm-k2_horizon-006": ("unknown-tool", "the call is shown as text"),
    **dict.fromkeys(
        [
            *("vllm-glm47-034", "vllm-glm47-035", "vllm-glm47-036"),
            *("vllm-minimax_m2-043", "vllm-minimax_m2-047"),
        ],
        ("twofold", _OFF),
    ),
    "vllm-k2_horizon-005": ("twofold", "pairs with a type are a call where the request asked for them"),
    "vllm-nemotron_v3_reasoning-004": ("twofold", "reasoning that never ends is text where the request wants some"),
    "vllm-minicpm5-026": ("guess", "another tool is put in place of an unknown one"),
    "vllm-plamo3-022": ("guess", "no arguments for a call whose arguments were cut off"),
    "vllm-minicpm5-018": ("reading", "marks of byte-level tokens in text, which are the detokenizer's to remove"),
}
SOFT: dict[str, tuple[str, str]] = {
    "vllm-minimax_m2-021": ("unknown-tool", "dropped there"),
    **dict.fromkeys(["vllm-hermes-010", "vllm-k2_horizon-007", "vllm-step3-002"], ("malformed", _UNCLOSED)),
    **dict.fromkeys(["vllm-gemma4-089", "vllm-gemma4-123"], ("guess", "an argument of a string without its end")),
    "vllm-mistral_v11-009": ("guess", "a call without a name"),
    "vllm-seed_oss-024": ("guess", "a call without arguments for a start tag that cannot be read"),
    "vllm-granite3-009": ("reading", "one whole call without the array around it: read and noted, not shown as text"),
}

_ALONE = "a message to=self"
ELSEWHERE: dict[str, tuple[str, str]] = {
    **dict.fromkeys(["sglang-gemma4-002", "sglang-lfm2-005"], ("text", _AFTER)),
    **dict.fromkeys(
        ["sglang-glm45-007", "sglang-pythonic-009"],
        ("text", "a marker, or the beginning of one, at the end of the turn"),
    ),
    **dict.fromkeys(["sglang-inkling-013", "sglang-inkling-014"], ("text", "a header of a call inside a header")),
    **dict.fromkeys(
        [
            *("sglang-hy_v3-004", "sglang-hy_v3-010", "sglang-lfm2-013", "sglang-minicpm5-003"),
            "sglang-poolside_v1-019",
        ],
        ("unknown-tool", _ELSEWHERE_UNKNOWN),
    ),
    **dict.fromkeys(["sglang-inkling-010", "sglang-minimax_m3-014"], ("malformed", _UNREADABLE)),
    **dict.fromkeys(
        [
            *("sglang-muse-002", "sglang-muse-003", "sglang-muse-006", "sglang-muse-007"),
            *("sglang-muse-017", "sglang-muse-019", "sglang-muse-022"),
        ],
        ("alone", _ALONE),
    ),
    "sglang-inkling-002": ("alone", "a thinking message"),
    "sglang-kimi_k2-027": (
        "contradicted",
        "a bare number in place of the tool's name: with two tools there it is inferred from the arguments",
    ),
    "sglang-inkling-004": ("contradicted", "an empty name is handed on there; vLLM drops the call, ours is malformed"),
    "sglang-inkling-012": ("contradicted", "the text of a raw tool call, which names no tool, is a call there"),
    **dict.fromkeys(
        ["sglang-poolside_v1-001", "sglang-poolside_v1-005", "sglang-poolside_v1-009"],
        ("guess", "an argument that lacks its value is left out: what it was to narrow down, then runs without it"),
    ),
    "sglang-inkling-008": ("reading", "NaN is no JSON, and cannot be sent on as such: malformed"),
}
ELSEWHERE_SOFT: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        ["sglang-hy_v3-021", "sglang-kimi_k3-012"],
        ("text", "a marker, or the beginning of one, at the end of the turn"),
    ),
    "sglang-harmony-010": ("text", "a message on a channel that does not exist"),
    "sglang-kimi_k2-030": ("text", "special tokens outside of any call: dropped here, kept there"),
    **dict.fromkeys(["sglang-glm45-008", "sglang-glm47-007"], ("unknown-tool", _ELSEWHERE_UNKNOWN)),
    "sglang-minicpm5-009": ("unknown-tool", "an argument that the tool does not have: the runtime says so"),
    **dict.fromkeys(
        ["sglang-gigachat3-004", "sglang-inkling-007", "sglang-minicpm5-007", "sglang-minicpm5-008"],
        ("malformed", _UNREADABLE),
    ),
    "sglang-inkling-009": ("malformed", "of two calls one cannot be read: there none counts, here the other one runs"),
    **dict.fromkeys(["sglang-minicpm5-006", "sglang-minimax_m3-015"], ("malformed", _UNCLOSED)),
    **dict.fromkeys(["sglang-muse-004", "sglang-muse-020"], ("alone", _ALONE)),
    **dict.fromkeys(
        ["sglang-glm45-011", "sglang-glm47-010"],
        (
            "contradicted",
            "a text is what stands between its tags, as the chat template writes it; there quotes are taken off",
        ),
    ),
    "sglang-qwen3_coder-006": ("guess", "a call that the end of the turn cut off inside of a value"),
    "sglang-llama3_json-001": ("guess", "a call out of braces that do not match"),
}
