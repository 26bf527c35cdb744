"""The bytes of a page as text: decompressed within a limit, and decoded by the charset that the page has in fact."""

from __future__ import annotations

import codecs
import re
import zlib

ENCODINGS = ("gzip", "deflate")
"""The compressions that requests ask for."""

_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
_STEP = 256 * 1024

_CHARSET = re.compile(rb"charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:+-]{1,40})", re.IGNORECASE)
_SNIFF_BYTES = 4096
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_LATIN = frozenset(("ascii", "us-ascii", "iso-8859-1", "iso8859-1", "iso_8859-1", "latin1", "latin-1", "l1"))
_CODECS = frozenset(
    [
        *("utf-8", "utf-16-le", "utf-16-be", "utf-16", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic"),
        *("gb18030", "gbk", "gb2312", "hz", "big5", "big5hkscs", "euc_jp", "shift_jis", "cp932", "iso2022_jp"),
        *("euc_kr", "cp949", "cp866", "cp874", "tis-620"),
        *(f"cp{number}" for number in range(1250, 1259)),
        *(f"iso8859-{number}" for number in range(1, 17)),
    ]
)
"""The charsets of web pages, by Python's names. Other codecs of Python decode no pages, and some take quadratic
time."""

_OF_ASCII = frozenset(("utf-16", "utf-16-le", "utf-16-be", "hz", "iso2022_jp"))
"""Charsets whose text may be valid UTF-8 too."""

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)


class Inflater:
    """Decompresses a body piece by piece, and keeps at most so many bytes. Raises ValueError for a compression that is
    not known."""

    def __init__(self, encoding: str, most_bytes: int) -> None:
        name = encoding.strip().lower()
        if name not in ("", "identity", *_WINDOWS):
            raise ValueError(encoding)
        self._most = most_bytes
        self._name = name
        self._inflate = zlib.decompressobj(_WINDOWS[name]) if name in _WINDOWS else None
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def is_full(self) -> bool:
        """Whether there was more than it keeps."""
        return self._size > self._most

    @property
    def content(self) -> bytes:
        """What was decompressed until now."""
        return b"".join(self._pieces)[: self._most]

    def feed(self, data: bytes) -> None:
        """Takes the next piece. Raises ValueError for damaged data."""
        if self._inflate is None:
            self._keep(data)
            return
        if not self._size and self._name == "deflate" and data and data[0] & 0x0F != 8:
            self._inflate = zlib.decompressobj(-15)  # without the header, as old servers send it
        while data and not self.is_full and not self._inflate.eof:
            try:
                self._keep(self._inflate.decompress(data, _STEP))
            except zlib.error as error:
                raise ValueError(str(error)) from None
            data = self._inflate.unconsumed_tail

    def _keep(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)


def text_of_page(body: bytes, content_type: str) -> str:
    """The text of a page. The first of these charsets that fits counts: that of a byte order mark, UTF-8, that of the
    header `Content-Type`, of the page itself, Windows-1252. What does not fit in the last one becomes U+FFFD.

    UTF-8 comes before what the server says: text that is valid UTF-8 is nothing else, and servers are often wrong.
    """
    for mark, name in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    label_matches = (_CHARSET.search(content_type.encode("ascii", "replace")), _CHARSET.search(body[:_SNIFF_BYTES]))
    names = ["" if match is None else _codec_of(match[1].decode("ascii")) for match in label_matches]
    if names[1].startswith("utf-16"):
        names[1] = ""  # it was read as ASCII, so the page is not UTF-16
    first = [name for name in names if name in _OF_ASCII]
    for name in (*first, "utf-8", *names):
        if name:
            try:
                # A cut body may end within a character.
                return codecs.getincrementaldecoder(name)().decode(body)
            except UnicodeError:
                continue
    return body.decode("cp1252", "replace")


def is_binary(body: bytes, content_type: str) -> bool:
    """Whether the body holds no text, whatever its type says."""
    is_wide = "utf-16" in content_type.lower() or body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return b"\0" in body[:4096] and not is_wide


def _codec_of(label: str) -> str:
    """Python's name of a charset of web pages; "" for any other."""
    label = label.lower()
    if label in _LATIN:
        return "cp1252"  # as browsers read it
    try:
        name = codecs.lookup(label).name
    except (LookupError, ValueError):
        return ""
    return name if name in _CODECS else ""


def seen_text(text: str) -> str:
    """The text without characters that nobody sees, but a model reads: controls, directions, tags, zero-width ones."""
    return _INVISIBLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
