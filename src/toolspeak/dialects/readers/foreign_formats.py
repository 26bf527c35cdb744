"""Bodies in another dialect's format between the dialect's own markers.

Models know more than one format. Models of Qwen's and GLM's families write Hermes's JSON in `<tool_call>`, each other's
elements, and Python's notation. The reader of that format reads such a body.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.readers.body import Body
from toolspeak.dialects.readers.element_tags import ElementSyntax
from toolspeak.dialects.readers.elements import ElementCalls
from toolspeak.dialects.readers.json_call import CallShape
from toolspeak.dialects.readers.json_calls import JsonCalls
from toolspeak.dialects.readers.pair_calls import PairCalls
from toolspeak.dialects.readers.pair_tags import PairTags
from toolspeak.dialects.readers.python_calls import PythonCalls
from toolspeak.dialects.text.block_delimiters import Follows, Matches, Opening, Texts
from toolspeak.dialects.text.markers import Marker
from toolspeak.dialects.text.scan import Caps

FormBody = Callable[[Marker, Mapping[str, ToolSpec], int, Caps], Body]

_SHAPE = CallShape("arguments", array=False, arguments_required=False, arguments_text=True)
_PAIRS = PairTags()
_FUNCTION, _NAMED_FUNCTION, _INVOKE = (
    ElementSyntax("<function=", "<parameter=", trims=True),
    ElementSyntax("<function", "<parameter", trims=True),
    ElementSyntax("<invoke", "<parameter"),
)
_NAME = r"[^\W\d][\w.-]{0,63}"


@quick()
class _Form:
    """How a body in this format begins, and the maker of its reader."""

    opening: Opening
    new_body: FormBody


def _elements(syntax: ElementSyntax) -> FormBody:
    return lambda marker, tools, first_index, caps: ElementCalls(
        syntax, (marker.text, marker.end or ""), tools, first_index, caps
    )


_FORMS: Mapping[str, _Form] = {
    "json": _Form(
        Matches(re.compile(r"\{\s*+\"|\[\s*+\{"), re.compile(r"[{\[]\s*+")),
        lambda _marker, _tools, first_index, caps: JsonCalls(_SHAPE, first_index, caps),
    ),
    "python": _Form(
        Matches(
            re.compile(rf"{_NAME}\(\s*+(?:[^\W\d]\w*+\s*+=(?!=)|\)\s*+</)"),
            re.compile(rf"{_NAME}(?:\(\s*+(?:[^\W\d]\w*+\s*+=?|\)\s*+<?)?)?"),
        ),
        lambda _marker, _tools, first_index, caps: PythonCalls(False, first_index, caps),
    ),
    "pairs": _Form(
        Follows(_PAIRS.call_follows),
        lambda _marker, tools, first_index, caps: PairCalls(_PAIRS, False, tools, first_index, caps),
    ),
    "function": _Form(Texts(("<function=",)), _elements(_FUNCTION)),
    "named_function": _Form(
        Matches(
            re.compile(r"<function\s+(?:name\s*=|[\w.-]+\s*>)"),
            re.compile(r"<(?:f(?:u(?:n(?:c(?:t(?:i(?:o(?:n(?:\s[\w.\s-]*)?)?)?)?)?)?)?)?)?"),
        ),
        _elements(_NAMED_FUNCTION),
    ),
    "invoke": _Form(Texts(("<invoke ",)), _elements(_INVOKE)),
}


def with_forms(marker: Marker, names: Sequence[str]) -> Marker:
    """The marker with bodies in these formats, tried in this order."""
    return replace(marker, forms=tuple(replace(marker, opening=_FORMS[name].opening, form=name) for name in names))


def form_body(marker: Marker, tools: Mapping[str, ToolSpec], first_index: int, caps: Caps) -> Body:
    """The reader of a body in the format that `marker.form` names."""
    return _FORMS[marker.form].new_body(marker, tools, first_index, caps)
