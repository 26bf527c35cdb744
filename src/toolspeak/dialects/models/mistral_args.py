"""Mistral's newer form: `[TOOL_CALLS]`, the name and the arguments as JSON for each call, without an end marker."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache

from toolspeak.data.messages import ToolResult
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect, ResultLayout, Tools
from toolspeak.dialects.declarations.named_layout import NamedLayout
from toolspeak.dialects.grammar.avoid import texts
from toolspeak.dialects.grammar.ir import NINE, series
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.prompt import EarlierThoughts
from toolspeak.dialects.prompts.rendering import result_text
from toolspeak.dialects.readers.body import Body, ChosenBody, skip_space
from toolspeak.dialects.readers.json_call import CallShape
from toolspeak.dialects.readers.json_calls import JsonCalls
from toolspeak.dialects.readers.named_calls import Header, NamedCalls, NamedShape
from toolspeak.dialects.text.block_delimiters import Follows, Signature
from toolspeak.dialects.text.candidates import NAME, first_of, one_of
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.text.scan import Caps

_CALL, _ARGS, _CALL_ID, _END = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "</s>"
_RESULTS, _CONTENT, _RESULTS_END = "[TOOL_RESULTS]", "[TOOL_CONTENT]", "[/TOOL_RESULTS]"
_LIVE = re.compile(r"\[(?=TOOL_CALLS\]|ARGS\]|CALL_ID\]|/?TOOL_RESULTS\]|TOOL_CONTENT\]|/?THINK\])")
_HEADER = re.compile(rf"\s*(?P<name>{NAME})\s*(?:\[CALL_ID\]\s*(?P<id>{NAME})?\s*)?(?:\[ARGS\]\s*)?")
_SHAPE = NamedShape(
    lambda text: _read_header(text),
    f"{_CALL}name{_ARGS}{{…}}",
    others=(_CALL, _RESULTS, _END),
    bare=True,
    unended=True,
)
_JSON_SHAPE = CallShape("arguments", array=True, arguments_required=False, arguments_text=True, alone=True)
_NAME_FIRST = re.compile(rf"{NAME}|{{|\s*+\[\s*+\{{")  # a '{' without a name is a malformed call
_NAME_LATER = re.compile(rf"\s+{NAME}\s*[{{\[]")
_NAME_COMING = re.compile(rf"\s*(?:{NAME}\s*|\[\s*)?")


def _read_header(text: str) -> Header | None:
    match = _HEADER.fullmatch(text)
    return Header(match["name"], match["id"]) if match else None


def _call_follows(rest: str) -> bool | None:
    """Whether a call follows the marker; None asks for more text.

    A name follows directly after the marker. After white space a bracket has to follow it, else it may be prose. Older
    models of the family write an array.
    """
    if not rest:
        return None
    if _NAME_FIRST.match(rest) or _NAME_LATER.match(rest):
        return True
    return None if _NAME_COMING.fullmatch(rest) else False


class NamedOrJson(ChosenBody):
    """Implements `Body`: reads a name and its arguments, or the JSON of the family's older models."""

    def __init__(self, first_index: int, caps: Caps, tools: Tools) -> None:
        super().__init__(caps)
        self._first_index = first_index
        self._tools = tools

    def choose(self, text: str, start: int) -> Body | None:
        at = skip_space(text, start)
        if at == len(text):
            return None
        if text[at] in "[{":
            return JsonCalls(_JSON_SHAPE, self._first_index, self.caps, self._tools)
        return NamedCalls(_SHAPE, self._first_index, self.caps, self._tools)


def new_body(_marker: Marker, first_index: int, caps: Caps, tools: Tools) -> Body:
    return NamedOrJson(first_index, caps, tools)


def _write_results_with_ids(results: Sequence[ToolResult]) -> str:
    return "".join(
        f"{_RESULTS}{_nine(result.call_id)}{_CONTENT}{result_text(result, _LIVE)}{_RESULTS_END}" for result in results
    )


def _nine(own: str) -> str:
    """An id as Mistral's template requires it: nine letters and digits. Another id always maps to the same new one."""
    if re.fullmatch(r"[A-Za-z0-9]{9}", own):
        return own
    return hashlib.sha256(own.encode("utf-8", "surrogatepass")).hexdigest()[:9]


_LAYOUT = NamedLayout(
    live=_LIVE, head=lambda name, _id: f"{_CALL}{name}{_ARGS}", write_malformed=lambda call: _CALL + call.raw
)
_LAYOUT_V11 = NamedLayout(
    live=_LIVE, head=lambda name, _id: f"{_CALL}{name}", write_malformed=lambda call: _CALL + call.raw
)
_LAYOUT_WITH_IDS = NamedLayout(
    live=_LIVE,
    write_malformed=lambda call: _CALL + call.raw,
    head=lambda name, own: series(f"{_CALL}{name}{_CALL_ID}", own, _ARGS),
    call_id=lambda call: _nine(call.provider_id or call.id),
    any_id=NINE,
)


def _frame(layout: NamedLayout) -> Frame:
    return layout.frame(triggers=lambda _: [_CALL], avoid=lambda _: texts(_ARGS))


CALLS = Marker("calls", _CALL, None, Follows(_call_follows))


def _bare(names: tuple[str, ...]) -> list[Marker]:
    """The markers of a call whose own marker a server left out: a tool's name with `[ARGS]` after it."""
    gap = re.compile(r"\s*")
    live = ("[", re.escape(_ARGS[1:]))
    name_first = Signature((one_of(names), gap, _ARGS, gap, "{"), 0, first_of(names), live, names)
    return [Marker("calls", _CALL, None, name_first, place="word")] if names else []


@lru_cache(64)
def _table(names: tuple[str, ...] = ()) -> MarkerTable:
    return MarkerTable(
        [
            # A call in a thought is a mention: these models close their thoughts themselves.
            Marker("reasoning", "[THINK]", "[/THINK]"),
            CALLS,
            *_bare(names),
            Marker("results", _RESULTS, _RESULTS_END, plain=True),
        ],
        specials=(_END,),
    )


_RULES = (
    "- Each call begins with [TOOL_CALLS] and the tool's name right after it; the arguments are one JSON object.\n"
    "  Several calls follow each other without anything between them."
)

MISTRAL_ARGS = DeclaredDialect(
    info=DialectInfo(
        "mistral-args",
        "[TOOL_CALLS]name[ARGS]{…}, repeated",
        "mistral-common tokenizer v13; chat template of mistralai/Devstral-Small-2507",
        aliases=("mistral-v13",),
        models=("devstral", "ministral-3", "magistral", "mistral-large-3", "mistral-small-4", "mistral-medium-3.5"),
        results="[TOOL_RESULTS]…[/TOOL_RESULTS]",
        earlier=EarlierThoughts("[THINK]", "[/THINK]", "always"),
        reasoning="[THINK]",
        stop=("</s>",),
    ),
    table=_table(),
    by_tools=_table,
    new_body=new_body,
    write_calls=_LAYOUT.write_calls,
    results=ResultLayout(_RESULTS, _RESULTS_END, ""),
    live=_LIVE,
    frame=_frame(_LAYOUT),
    rules=_RULES,
)

MISTRAL_IDS = DeclaredDialect(
    info=DialectInfo(
        "mistral-ids",
        "[TOOL_CALLS]name[CALL_ID]id[ARGS]{…}, repeated",
        "mistral-common tokenizer v11; chat template of mistralai/Mistral-Small-3.2-24B-Instruct-2506",
        models=("mistral-small-3.2",),
        results="[TOOL_RESULTS]id[TOOL_CONTENT]…[/TOOL_RESULTS]",
        reasoning="[THINK]",
        stop=("</s>",),
    ),
    table=_table(),
    by_tools=_table,
    new_body=new_body,
    write_calls=_LAYOUT_WITH_IDS.write_calls,
    write_results=_write_results_with_ids,
    live=_LIVE,
    frame=_frame(_LAYOUT_WITH_IDS),
    rules=f"{_RULES}\n- Each call has an id of its own, nine letters and digits; its result carries the same.",
)

MISTRAL_V11 = DeclaredDialect(
    info=DialectInfo(
        "mistral-v11",
        "[TOOL_CALLS]name{…}, repeated",
        "vllm-project/vllm, vllm/tool_parsers/mistral_tool_parser.py (tokenizers from v11 on)",
        models=("mistral-medium-3",),
        results="[TOOL_RESULTS]…[/TOOL_RESULTS]",
        reasoning="[THINK]",
        stop=("</s>",),
        text_aside=True,
    ),
    table=_table(),
    by_tools=_table,
    new_body=new_body,
    write_calls=_LAYOUT_V11.write_calls,
    results=ResultLayout(_RESULTS, _RESULTS_END, ""),
    live=_LIVE,
    frame=_frame(_LAYOUT_V11),
    rules=_RULES,
)
