"""Elements with the name in an attribute: MiniMax M2, Step 3, MiniCPM 5."""

from __future__ import annotations

from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import ResultLayout
from toolspeak.dialects.declarations.element_dialect import ElementLayout, Spelling, element_dialect
from toolspeak.dialects.prompt import EarlierThoughts
from toolspeak.dialects.readers.element_tags import ElementSyntax

_RULES = """\
- One element for each argument, its value between the tags as it is: no quotes, no escapes; objects and arrays as JSON.
- A text that holds one of these tags goes into <![CDATA[…]]>."""
_TYPING = "text, typed by the tool's schema"
_SYNTAX = ElementSyntax("<invoke", "<parameter")

MINIMAX_M2 = element_dialect(
    DialectInfo(
        "minimax-m2",
        '<minimax:tool_call> <invoke name="f"> <parameter name="k">value</parameter>',
        "chat template of MiniMaxAI/MiniMax-M2",
        aliases=("minimax-m2-reasoning",),
        models=("minimax-m2.x",),
        arguments=_TYPING,
        results="<response> in a tool turn",
        earlier=EarlierThoughts("<think>\n", "\n</think>\n\n"),
        stop=("[e~[",),
    ),
    _SYNTAX,
    ElementLayout(block=("<minimax:tool_call>", "</minimax:tool_call>")),
    wrappers=[("<minimax:tool_call>", "</minimax:tool_call>")],
    forms=("json", "function", "named_function"),
    # The model writes these too, mostly on a server with M1's template.
    also=[Spelling(_SYNTAX, [(f"<{name}>", f"</{name}>") for name in ("tool_calls", "function_calls")])],
    results=ResultLayout("<response>", "</response>"),
    results_marker=None,  # <response> is too common a word: a marker would swallow prose
    live=("minimax:tool_call", "tool_calls", "function_calls", "invoke", "response", "think"),
    rules=_RULES,
)

_STEP_BEGIN, _STEP_END = "<｜tool_call_begin｜>function<｜tool_sep｜>", "<｜tool_call_end｜>"
STEP3 = element_dialect(
    DialectInfo(
        "step3",
        '<｜tool_calls_begin｜> <｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="f">',
        "chat template of stepfun-ai/step3",
        models=("step3",),
        arguments=_TYPING,
        results="<｜tool_output_begin｜> in a tool turn",
        stop=("<|EOT|>", "<|im_end|>"),
    ),
    ElementSyntax(
        "<steptml:invoke",
        "<steptml:parameter",
        tight=True,
        fillers=("<｜tool_call_begin｜>", "function", "<｜tool_sep｜>", _STEP_END),
    ),
    ElementLayout(
        block=("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"),
        before=_STEP_BEGIN,
        after=_STEP_END,
        joint="",
        gap="",
    ),
    wrappers=[("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>")],
    results=ResultLayout(
        "<｜tool_output_begin｜>", "<｜tool_output_end｜>", "", "<｜tool_outputs_begin｜>", "<｜tool_outputs_end｜>"
    ),
    results_marker=("<｜tool_outputs_begin｜>", "<｜tool_outputs_end｜>"),
    live=("｜tool_", "steptml:", "think"),
    rules=_RULES,
)

MINICPM5 = element_dialect(
    DialectInfo(
        "minicpm5",
        '<function name="f"><param name="k">value</param></function>, CDATA allowed',
        "chat template of openbmb/MiniCPM5-1B",
        models=("minicpm-5",),
        arguments=_TYPING,
        results="<tool_response> in a user turn",
        earlier=EarlierThoughts("<think>\n", "\n</think>\n\n"),
        stop=("<|im_end|>", "</s>"),
    ),
    ElementSyntax("<function", "<param", tight=True, wrappers=("arguments", "properties")),
    ElementLayout(gap=""),
    results=ResultLayout("<tool_response>\n", "\n</tool_response>"),
    results_marker=("<tool_response>", "</tool_response>"),
    live=("function", "param", "tool_response", "think"),
    rules=_RULES,
)
