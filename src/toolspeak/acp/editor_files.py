"""Files as the editor has them: unsaved changes are read, and what is written appears in open buffers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

import msgspec

from toolspeak.acp.call_presentation import FileChange
from toolspeak.acp.client_messages import ClientCapabilities, FileText
from toolspeak.acp.json_rpc import Peer, PeerGone, RpcError, params_as
from toolspeak.data.messages import JSON, ToolCall
from toolspeak.data.tools import NO_VERSION
from toolspeak.errors import ToolError
from toolspeak.execute.sub_runs import CURRENT_SUB_RUNS
from toolspeak.tools.builtin.edit import edit_text
from toolspeak.tools.builtin.line_edit import lines_edited
from toolspeak.tools.files.text_format import decode
from toolspeak.tools.files.workspace import Workspace

MOST_BYTES = 8 * 1024 * 1024
"""The largest file that goes through the editor: each time, all of it is one message. A larger one is on the disk."""

MOST_SHOWN = 1024 * 1024
"""The longest text in bytes of which an editor is shown the change."""

_SECONDS = 30.0
"""How long an editor may take for one file."""

ValueT = TypeVar("ValueT")


class EditorFiles(Workspace):
    """A workspace whose text files are read and written by the editor (`fs/read_text_file`, `fs/write_text_file`).

    Which paths are allowed is decided here, as for any workspace. Binary files, and files above 8 MiB, are read and
    written on the disk. Use it in threads other than the event loop's: they wait for the editor's answer.
    """

    def __init__(
        self,
        root: str | Path,
        peer: Peer,
        session_id: str,
        capabilities: ClientCapabilities,
        changes: dict[tuple[str, str], dict[str, FileChange]],
    ) -> None:
        """`changes`: takes what calls change in buffers, by the ids of run and call, and by path."""
        super().__init__(root)
        self._peer = peer
        self._session_id = session_id
        self._capabilities = capabilities
        self._loop = asyncio.get_running_loop()
        self._changes = changes

    def version(self, path: str) -> str:
        """A buffer may change unnoticed."""
        return NO_VERSION if self._capabilities.reads else super().version(path)

    @contextmanager
    def open(self, path: str) -> Generator[BinaryIO, None, None]:
        """Opens the file as the editor has it."""
        text = self._text(path) if self._capabilities.reads else None
        if text is None:
            with super().open(path) as file:
                yield file
        else:
            yield io.BytesIO(text.encode())

    def _text(self, path: str) -> str | None:
        """The editor's text of a file; None if the file must be read from the disk, or the editor does not have it."""
        absolute = self._place(path)
        try:
            if os.path.getsize(absolute) > MOST_BYTES:
                return None
            with super().open(path) as file:
                decode(file.read(), path)
        except FileNotFoundError:
            pass  # a new buffer, which was never saved
        except (OSError, ToolError):
            return None
        try:
            answer = self._ask("fs/read_text_file", {"path": absolute})
            text = params_as(FileText, answer).content
            text.encode()
        except (RpcError, UnicodeEncodeError):
            return None  # the disk has the file, or says why not
        return text

    def replace(self, path: str, data: bytes, before: bytes | Literal["any"] | None = "any") -> None:
        """As `Workspace.replace`, in the editor's buffer. The editor saves it."""
        text = self._writable_text(data)
        if text is None:
            super().replace(path, data, before)
            return
        parts = self._writable(path)
        present = self.read_if_exists(path)
        if before not in ("any", present):
            raise ToolError(f"{path!r} was changed by another program meanwhile: nothing was written; read it again.")
        self._write(path, parts[:-1], text, present)

    def append(self, path: str, data: bytes) -> int:
        """As `Workspace.append`, in the editor's buffer."""
        parts = self._writable(path)
        present = self.read_if_exists(path)
        whole = (present or b"") + data
        text = self._writable_text(whole)
        if text is None:
            return super().append(path, data)
        self._write(path, parts[:-1], text, present)
        return len(whole)

    def _write(self, path: str, folder: tuple[str, ...], text: str, before: bytes | None) -> None:
        try:
            with self.folder(folder, create=True):
                pass
        except OSError as error:
            raise ToolError(f"{path!r} was not written: its folder cannot be made: {error.strerror}.") from error
        try:
            self._ask("fs/write_text_file", {"path": self._place(path), "content": text})
        except RpcError as error:
            raise ToolError(f"{path!r} was not written by the user's editor: {error}") from None
        call = CURRENT_SUB_RUNS.get()
        if call is not None and max(len(before or b""), len(text)) <= MOST_SHOWN:
            with suppress(ToolError):  # what was there is no text
                present = None if before is None else decode(before, path)
                place, changes = self._place(path), self._changes.setdefault((call.run_id, call.call_id), {})
                earlier = changes.get(place)
                changes[place] = FileChange(place, present if earlier is None else earlier.before, text)

    def _writable_text(self, data: bytes) -> str | None:
        """The text that the editor writes; None if it goes to the disk."""
        if not self._capabilities.writes or len(data) > MOST_BYTES or b"\0" in data:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError:
            return None

    def _place(self, path: str) -> str:
        return str(self.root.joinpath(*self.resolve(path)))

    def _ask(self, method: str, params: dict[str, JSON]) -> msgspec.Raw:
        """The editor's answer. Raises RpcError if it refuses, ToolError if it does not answer."""
        request = self._peer.call(method, {"sessionId": self._session_id, **params})
        future = asyncio.run_coroutine_threadsafe(request, self._loop)
        try:
            return future.result(_SECONDS)
        except (TimeoutError, concurrent.futures.CancelledError, PeerGone):
            future.cancel()
            raise ToolError(
                f"the user's editor did not answer {method} within {_SECONDS:g} seconds: try again, or use `shell`."
            ) from None


def file_change(workspace: Workspace, call: ToolCall) -> FileChange | None:
    """What a call would make of its file as it is now; None if it changes none, would fail, or the texts are long."""
    arguments = dict(call.arguments)
    path = arguments.get("path")
    if call.name not in ("write", "append", "edit", "line_edit") or not isinstance(path, str):
        return None
    try:
        place = workspace.real(path)
        data = workspace.read_if_exists(path)
        before = None if data is None else decode(data, path)
        match call.name, arguments:
            case "write", {"content": str(content)}:
                after = content
            case "append", {"content": str(content)}:
                after = (before or "") + content
            case "edit", {"old": str(old), "new": str(new)} if before is not None:
                after = edit_text(before, old, new, path)
            case "line_edit", {"startLine": int(start), "endLine": int(end), "newContent": str(content)}:
                after = lines_edited(before or "", start, end, content, path)
            case _:
                return None
    except ToolError:
        return None
    return None if max(len(before or ""), len(after)) > MOST_SHOWN else FileChange(place, before, after)
