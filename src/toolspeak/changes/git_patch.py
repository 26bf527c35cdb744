"""Changes as one patch that `git apply` and `patch -p1` take."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence

from toolspeak.changes.file_states import FileState
from toolspeak.changes.run_changes import NetChange
from toolspeak.data.values import quick
from toolspeak.tools.files.diff import opcode_groups, span
from toolspeak.tools.files.text_format import split_lines, visible

_LINE_BYTES = 52
_LENGTHS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NO_BLOB = "0" * 40


@quick()
class PathPatch:
    """One path's part of a patch.

    - `kind`: what happened to it: "created", "deleted" or "changed".
    - `lines_added`, `lines_removed`: the lines; None if they are no text, or not in the patch.
    - `note`: why the patch does not hold the change; "" if it does.
    - `data`: the part itself.
    """

    path: str
    kind: str
    lines_added: int | None
    lines_removed: int | None
    note: str
    data: bytes


def path_patches(
    nets: Sequence[NetChange], content: Callable[[bytes], bytes], *, binary: bool = False
) -> Iterator[PathPatch]:
    """Yields the part of each path.

    `content`: returns the content with a digest. `binary`: write binary files too, as only git reads them.
    """
    for net in nets:
        kind = "created" if net.before is None else "deleted" if net.after is None else "changed"
        sides = [_blob(net.before, content), _blob(net.after, content)]
        if (note := _note(net, sides)) and not (binary and note == "binary"):
            yield PathPatch(net.path, kind, None, None, note, b"")
            continue
        before, after = net.before, net.after
        parts = [(before, after)]
        if before is not None and after is not None and before.kind != after.kind:
            parts = [(before, None), (None, after)]  # a file and a link are two patches to git
        data, lines_added, lines_removed = b"", 0, 0
        for one, two in parts:
            is_text = not any(side is not None and b"\0" in side for side in sides)
            blobs = _blob(one, content), _blob(two, content)
            data += _head(net.path, one, two, blobs, full=not is_text)
            if not is_text:
                data += _binary_body(*blobs)
            elif blobs[0] != blobs[1]:
                body, more, fewer = _text_body(net.path, *blobs)
                data, lines_added, lines_removed = data + body, lines_added + more, lines_removed + fewer
        is_text = b"GIT binary patch" not in data
        yield PathPatch(net.path, kind, lines_added if is_text else None, lines_removed if is_text else None, "", data)


def patch_of(parts: Sequence[PathPatch]) -> bytes:
    """The whole patch. What it does not hold is named in its first lines, which `git apply` and `patch` skip."""
    notes = [f"# {part.kind}, {part.note}: {visible_name(part.path)}\n" for part in parts if part.note]
    return "".join(notes).encode() + b"".join(part.data for part in parts)


def visible_name(path: str) -> str:
    """A path for people, on one line, without anything that a terminal would obey."""
    text = path.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _note(net: NetChange, sides: Sequence[bytes | None]) -> str:
    """Why a patch for people does not hold a change; "" if it does."""
    kinds = {state.kind for state in (net.before, net.after) if state is not None}
    if kinds == {"folder"}:
        return "folder"
    if "folder" in kinds:
        return "folder in place of a file" if net.after is not None and net.after.kind == "folder" else "was a folder"
    if "unread" in kinds:
        return "content not kept"
    return "binary" if any(side is not None and b"\0" in side for side in sides) else ""


def _blob(state: FileState | None, content: Callable[[bytes], bytes]) -> bytes | None:
    """What git stores of a state: a file's content, a link's target."""
    if state is None or state.kind not in ("file", "link"):
        return None
    return state.content if state.kind == "link" else content(state.content)


def _git_mode(state: FileState) -> str:
    return "120000" if state.kind == "link" else "100755" if state.mode & 0o100 else "100644"


def _head(
    path: str,
    before: FileState | None,
    after: FileState | None,
    blobs: tuple[bytes | None, bytes | None],
    *,
    full: bool,
) -> bytes:
    lines = [b"diff --git %s %s" % (_git_path("a/", path), _git_path("b/", path))]
    if before is None and after is not None:
        lines.append(f"new file mode {_git_mode(after)}".encode())
    elif after is None and before is not None:
        lines.append(f"deleted file mode {_git_mode(before)}".encode())
    elif before is not None and after is not None and _git_mode(before) != _git_mode(after):
        lines += [f"old mode {_git_mode(before)}".encode(), f"new mode {_git_mode(after)}".encode()]
    if blobs[0] != blobs[1]:
        names = [_NO_BLOB if blob is None else _blob_name(blob) for blob in blobs]
        if not full:
            names = [name[:12] for name in names]
        lines.append(f"index {names[0]}..{names[1]}".encode())
    return b"\n".join(lines) + b"\n"


def _blob_name(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _text_body(path: str, before: bytes | None, after: bytes | None) -> tuple[bytes, int, int]:
    """The hunks of a text, and how many lines they add and remove."""
    old, new = (split_lines((data or b"").decode(errors="surrogateescape")) for data in (before, after))
    ends = "\t" if " " in path else ""
    names = [b"/dev/null" if before is None else _git_path("a/", path) + ends.encode()]
    names.append(b"/dev/null" if after is None else _git_path("b/", path) + ends.encode())
    lines: list[str] = []
    lines_added = lines_removed = 0
    for group in opcode_groups(old, new):
        first, last = group[0], group[-1]
        lines.append(f"@@ -{span(first[1], last[2])} +{span(first[3], last[4])} @@\n")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += [_hunk_line(" ", line) for line in old[i1:i2]]
                continue
            lines += [_hunk_line("-", line) for line in old[i1:i2]]
            lines += [_hunk_line("+", line) for line in new[j1:j2]]
            lines_added, lines_removed = lines_added + j2 - j1, lines_removed + i2 - i1
    if not lines:
        return b"", 0, 0
    head = b"--- %s\n+++ %s\n" % (names[0], names[1])
    return head + "".join(lines).encode(errors="surrogateescape"), lines_added, lines_removed


def _hunk_line(sign: str, line: str) -> str:
    return f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"


def _binary_body(before: bytes | None, after: bytes | None) -> bytes:
    """Both contents as git writes them (`git diff --binary`): to apply, and to apply in reverse."""
    return b"GIT binary patch\n" + _literal(after or b"") + _literal(before or b"")


def _literal(data: bytes) -> bytes:
    compressed_data = zlib.compress(data)
    lines = [b"literal %d" % len(data)]
    for start in range(0, len(compressed_data), _LINE_BYTES):
        piece = compressed_data[start : start + _LINE_BYTES]
        lines.append(_LENGTHS[len(piece) - 1].encode() + base64.b85encode(piece, pad=True))
    return b"\n".join(lines) + b"\n\n"


def _git_path(prefix: str, path: str) -> bytes:
    """A name as git writes it: in C's quotation if it holds anything but plain characters."""
    name = prefix.encode() + path.encode(errors="surrogateescape")
    if all(32 <= byte < 127 and byte not in b'"\\' for byte in name):
        return name
    return b'"' + b"".join(_ESCAPES.get(byte) or _escape(byte) for byte in name) + b'"'


_ESCAPES = {ord(letter): f"\\{name}".encode() for letter, name in zip('\a\b\t\n\v\f\r"\\', 'abtnvfr"\\', strict=True)}


def _escape(byte: int) -> bytes:
    return bytes([byte]) if 32 <= byte < 127 else b"\\%03o" % byte
