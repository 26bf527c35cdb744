"""Forms as clients send files (multipart/form-data, RFC 7578), read strictly. Pure.

Servers read what is not in order in different ways: a second `model`, say. A form that one of them could read otherwise
than the gateway is refused, for the gateway decides by it which models a key may use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from toolspeak.gateway.http.error_responses import Failure

FORM = "multipart/form-data"
MOST_PARTS = 1000

_TYPE = re.compile(
    r"""multipart/form-data\s*;\s*boundary=(?P<q>"?)(?P<boundary>[\w'()+,./:=?-]{1,70})(?P=q)\s*""",
    re.IGNORECASE | re.ASCII,
)
_TOKEN = r"[\w!#$%&'*+.^`|~-]+"
_DISPOSITION = re.compile(
    r"content-disposition:[ \t]*form-data;[ \t]*"
    rf'name=(?:"(?P<quoted>[^"\\]*)"|(?P<name>{_TOKEN}))'
    rf"(?P<file>[ \t]*;[ \t]*filename=(?:\"(?:[^\"\\]|\\(?![\"\\]))*\"|{_TOKEN})"
    r"(?:[ \t]*;[ \t]*filename\*=[\w!#$&+.^`|~%'-]+)?)?[ \t]*",
    re.IGNORECASE | re.ASCII,
)
_PLAIN = ("7bit", "8bit", "binary")
_FIELDS = ("model", "stream")
"""The fields that the gateway reads."""


@dataclass(frozen=True, slots=True)
class MultipartForm:
    """A form's body, with the fields that the gateway reads: the place of each, and its text."""

    body: bytes
    places: Mapping[str, slice]

    def text(self, name: str) -> str | None:
        """The text of a field, None if the form has none of this name. Raises Failure for one that is not UTF-8."""
        place = self.places.get(name)
        try:
            return None if place is None else self.body[place].decode()
        except UnicodeDecodeError:
            raise _invalid_form(f"the field {name!r} is not UTF-8") from None

    def with_model(self, model: str) -> bytes:
        """The body with another model's name."""
        place = self.places["model"]
        return self.body[: place.start] + model.encode() + self.body[place.stop :]


def read_form(content_type: str, body: bytes) -> MultipartForm:
    """Finds the fields that the gateway reads in a form of at most `MOST_PARTS`. Raises Failure."""
    match = _TYPE.fullmatch(content_type.strip())
    if match is None:
        raise _invalid_form("the request's content-type has to be multipart/form-data; boundary=X, and nothing else")
    delimiter = b"--" + match["boundary"].encode()
    if body.count(delimiter) > MOST_PARTS + 1:
        raise Failure(413, f"the form has more than {MOST_PARTS} parts: send fewer", "request_too_large")
    if not body.startswith(delimiter):
        raise _invalid_form("the body does not begin with the boundary")
    places: dict[str, slice] = {}
    start = len(delimiter)
    while (end := body.find(delimiter, start)) >= 0:
        # A boundary counts only at the beginning of a line; some servers accept one elsewhere, too.
        if body[start : start + 2] != b"\r\n" or body[end - 2 : end] != b"\r\n":
            raise _invalid_form("a boundary is not between line breaks")
        head_end = body.find(b"\r\n\r\n", start, end - 2)
        if head_end < 0:
            raise _invalid_form("a part has no empty line after its headers")
        name = _name_of(body[start + 2 : head_end])
        if name in _FIELDS:
            if name in places:
                raise _invalid_form(f"the field {name!r} appears twice; send it once")
            places[name] = slice(head_end + 4, end - 2)
        start = end + len(delimiter)
    if body[start:].rstrip(b"\r\n") != b"--":
        raise _invalid_form("the last boundary is missing, so the form is not whole")
    return MultipartForm(body, places)


def _name_of(head: bytes) -> str:
    """The name of the field that a part with these headers holds."""
    try:
        lines = head.decode().split("\r\n")
    except UnicodeDecodeError:
        raise _invalid_form("the headers of a part are not UTF-8") from None
    if any(":" not in line or line[0] in " \t" or "\n" in line or "\r" in line or "\0" in line for line in lines):
        raise _invalid_form("a header of a part is folded, has no colon, or has a bare line break")
    dispositions = [line for line in lines if line.lower().partition(":")[0].strip() == "content-disposition"]
    match = _DISPOSITION.fullmatch(dispositions[0]) if len(dispositions) == 1 else None
    if match is None:
        raise _invalid_form('each part needs one header of the form: Content-Disposition: form-data; name="X"')
    name = match["quoted"] if match["name"] is None else match["name"]
    plain_name = name.lower()
    if plain_name in _FIELDS:
        others = {line.lower().partition(":")[0].strip(): line.partition(":")[2].strip().lower() for line in lines}
        if name != plain_name or match["file"] or others.get("content-transfer-encoding", "8bit") not in _PLAIN:
            raise _invalid_form(f"the field {plain_name!r} has to be plain text under this name")
    return name


def _invalid_form(why: str) -> Failure:
    return Failure(400, f"the form cannot be read: {why}", "invalid_form")
