"""Solar Open: an id, the tool's name and the arguments as JSON, between special tokens."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from toolspeak.data.messages import ToolResult
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect
from toolspeak.dialects.declarations.named_layout import NamedLayout
from toolspeak.dialects.grammar.avoid import texts
from toolspeak.dialects.grammar.ir import Chars, Repeat, Token, optional, series
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.prompt import EarlierThoughts
from toolspeak.dialects.prompts.rendering import malformed_text, result_text
from toolspeak.dialects.readers.named_calls import Header, NamedCalls, NamedShape, plain_name
from toolspeak.dialects.text.block_delimiters import Follows, followed_by
from toolspeak.dialects.text.markers import Marker, MarkerTable

_SECTION, _SECTION_END = "<|tool_calls|>", "<|calls|>"
_CALL, _NAME, _ARGS, _CALL_END = (f"<|tool_call:{part}|>" for part in ("begin", "name", "args", "end"))
_RESULTS = "<|tool_response|>"
_RESULT, _OF, _SAYS, _RESULT_END = (f"<|tool_response:{part}|>" for part in ("begin", "name", "result", "end"))
_TURN, _CONTENT, _THINK, _END = "<|begin|>assistant", "<|content|>", "<|think|>", "<|end|>"
_LIVE = re.compile(r"<(?=\|(?:tool_|calls\|>|begin\|>|content\|>|think\|>|end\|>))")
_STOP = ("<|flush|>", "<|endoftext|>")
_EXAMPLE = f"{_CALL}a1b2c3d4e5{_NAME}name{_ARGS}{{…}}{_CALL_END}"

_WORD = r"[^\s<>{}\[\]\"'`]"
_TOOL = rf"{_WORD}(?:[^<>{{}}\[\]\"'`\n]*{_WORD})?"  # a tool's name may have spaces
_HEADER = re.compile(rf"\s*(?P<id>{_WORD}*)\s*{re.escape(_NAME)}\s*(?P<name>{_TOOL})\s*")
_CALL_START = re.compile(rf"\s*{_WORD}*\s*{re.escape(_NAME)}")
_CALL_STARTED = re.compile(rf"\s*{_WORD}*\s*(?P<marker><[^>]*)?")
_OWN_ID = re.compile("[a-z0-9]{10}")
_TEN = Token(Repeat(Chars("a-z0-9"), 10, 10))


def _read_header(text: str) -> Header | None:
    match = _HEADER.fullmatch(text)
    return Header(match["name"], match["id"] or None) if match else None


_SHAPE = NamedShape(_read_header, _EXAMPLE, _CALL, _ARGS, _CALL_END, (_SECTION_END, _END))
_ONE = NamedShape(_read_header, _EXAMPLE, separator=_ARGS, others=(_CALL_END, _CALL, _SECTION_END, _END))


def _call_follows(rest: str) -> bool | None:
    if _CALL_START.match(rest):
        return True
    match = _CALL_STARTED.fullmatch(rest)
    return None if match and _NAME.startswith(match["marker"] or "") else False


def _id(own: str) -> str:
    """An id as the template requires it: ten lowercase letters and digits. Another id always maps to the same new
    one."""
    if _OWN_ID.fullmatch(own):
        return own
    return hashlib.sha256(own.encode("utf-8", "surrogatepass")).hexdigest()[:10]


_LAYOUT = NamedLayout(
    live=_LIVE,
    head=lambda name, own: series(_CALL, own, f"{_NAME}{name}{_ARGS}"),
    tail=_CALL_END,
    start=_SECTION,
    end=_SECTION_END,
    write_malformed=lambda call: malformed_text(call, _CALL, _CALL_END),
    call_id=lambda call: _id(call.provider_id or call.id),
    any_id=_TEN,
)


def _write_results(results: Sequence[ToolResult]) -> str:
    parts = [
        f"{_RESULT}{_id(each.call_id)}{_OF}{plain_name(each.name)}{_SAYS}{result_text(each, _LIVE)}{_RESULT_END}"
        for each in results
    ]
    return _RESULTS + "".join(parts)


SOLAR_OPEN = DeclaredDialect(
    info=DialectInfo(
        "solar-open",
        f"{_SECTION}{_CALL}id{_NAME}name{_ARGS}{{…}}{_CALL_END}, repeated, {_SECTION_END}",
        "chat template of upstage/Solar-Open-100B",
        models=("solar-open",),
        results="<|tool_response:begin|> in a tool turn",
        reasoning="<|think|>",
        earlier=EarlierThoughts(_THINK, f"{_END}{_TURN}"),
        stop=_STOP,
    ),
    table=MarkerTable(
        [
            Marker("reasoning", _THINK, _END),
            Marker("calls", _SECTION, _SECTION_END, followed_by(_CALL, _SECTION_END)),
            # Models sometimes forget the section.
            Marker("calls", _CALL, _CALL_END, Follows(_call_follows)),
            Marker("results", _RESULT, _RESULT_END, plain=True),
            *(
                Marker("noise", text, None, ends_message=text == _END)
                for text in (_TURN, _CONTENT, _END, _RESULTS, _SECTION_END, _ARGS, _NAME, _CALL_END)
            ),
        ],
        specials=_STOP,
    ),
    new_body=lambda marker, first, caps, tools: NamedCalls(
        _ONE if marker.text == _CALL else _SHAPE, first, caps, tools
    ),
    write_calls=_LAYOUT.write_calls,
    write_results=_write_results,
    live=_LIVE,
    frame=Frame(
        call=_LAYOUT.call_node,
        start=_SECTION,
        end=_SECTION_END,
        lead=optional(_TURN),  # the prompt may have written it already
        text_start=_CONTENT,
        text_before_calls=(_CONTENT, _END, _TURN),
        reasoning=((_THINK, _END, _TURN),),
        avoid=lambda _: texts(_TURN, _CONTENT, _END),
    ),
    rules=(
        "- One section holds all calls of a turn. Each call has an id of its own, ten lowercase letters and digits;\n"
        "  its result carries the same. The arguments are one JSON object."
    ),
)
