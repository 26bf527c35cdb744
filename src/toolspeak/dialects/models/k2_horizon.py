"""K2-Horizon: GLM's pairs in `<ifm|…>` tags.

The template can ask for three forms: pairs, pairs with a type, and JSON objects. Only the prompt says which, so all
three are read, and pairs are written. A JSON value keeps its type, as in every dialect of JSON; only text is typed by
the schema. (vLLM's parser makes the text "5" of the number 5 if the schema asks for a text.)
"""

from __future__ import annotations

from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import ResultLayout
from toolspeak.dialects.declarations.pair_dialect import LINES, pair_dialect
from toolspeak.dialects.readers.pair_tags import PairTags
from toolspeak.dialects.text.markers import Marker

K2_HORIZON = pair_dialect(
    DialectInfo(
        "k2-horizon",
        "<ifm|tool_calls> with <ifm|tool_call>name, <ifm|arg_key> and <ifm|arg_value> in it",
        "chat template of IFM/K2-Horizon",
        aliases=("k2-horizon-reasoning",),
        models=("k2-horizon", "jais-3"),
        arguments="strings as they are, other values as JSON, by the written type if there is one, else by schema",
        results="the text of a tool turn",
        reasoning="<ifm|think>",
        stop=("<|ifm|im_end|>",),
    ),
    PairTags(block="tool_calls", kind="arg_type", json=True, prefix="ifm|"),
    LINES,
    ResultLayout(),
    thoughts=[
        Marker("reasoning", f"<ifm|{effort}>", f"</ifm|{effort}>") for effort in ("think", "think_fast", "think_faster")
    ],
    live=("ifm|", "|ifm|"),
)
