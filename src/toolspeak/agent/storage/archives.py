"""Groups of runs as lines of JSON: exported, read, and moved out of a journal into files.

A group is a line that says what it is, and the records of its runs. A session's line is that of `exports`; a run
outside of sessions has a line of its own. A file holds any number of groups.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import IO, Any, cast

from toolspeak.agent.storage.exports import record_of, session_line, session_of
from toolspeak.data.codec import dumps, load_text
from toolspeak.data.events import Record
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, FormatError, JournalError, RunBusy, RunConflict
from toolspeak.journal import Journal, SessionInfo
from toolspeak.journal.maintenance import MaintainedJournal, RunGroup

_fcntl: ModuleType | None = importlib.import_module("fcntl") if os.name == "posix" else None

EXPORT_OF_RUN = 1
"""The version of the line before a run outside of sessions."""

_PAGE = 500
_PARTIAL, _PENDING = ".partial", ".pending"
"""The ends of the names of a file that is being written, and of a complete one whose runs are being deleted."""


@quick()
class ReadGroup:
    """A group as a file holds it. `session` is None for a run outside of sessions. `line`: the number of its first
    line."""

    session: SessionInfo | None
    records: tuple[Record, ...]
    line: int


@dataclass(slots=True)
class Removal:
    """What was removed from a journal.

    - `place`: the file that has it, or the folder of several.
    - `busy`: the groups that a process holds, or that changed meanwhile. They stay in the journal.
    """

    place: Path | None = None
    groups: int = 0
    runs: int = 0
    records: int = 0
    busy: int = 0

    def add(self, group: RunGroup) -> None:
        self.groups += 1
        self.runs += len(group.runs)
        self.records += sum(run.records for run in group.runs)


async def export_group(journal: Journal, group: RunGroup) -> AsyncGenerator[str]:
    """Yields the group as lines of JSON, without line ends. Raises JournalError if records are missing."""
    count = sum(run.records for run in group.runs)
    if group.session is not None:
        yield session_line(group.session, count)
    else:
        yield _run_line(group.runs[0].run_id, count)
    async for record in _records(journal, group):
        yield dumps(record)


async def _records(journal: Journal, group: RunGroup) -> AsyncGenerator[Record]:
    for run in group.runs:
        start = 0
        while start < run.records:
            page = await journal.read(run.run_id, start, min(_PAGE, run.records - start))
            if not page:
                raise JournalError(f"run {run.run_id} has ended at record {start}: it was deleted, or is damaged")
            for record in page:
                yield record
            start += len(page)


def read_groups(lines: Iterable[str]) -> Iterator[ReadGroup]:
    """The groups in lines that `export_group` or `export_session` wrote, one after the other. Raises FormatError, which
    names the line."""
    head: tuple[SessionInfo | None, int, int] | None = None
    records: list[Record] = []
    number = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            if head is None:
                head = (*_head(load_text(line)), number)
            else:
                records.append(record_of(line))
        except FormatError as error:
            raise FormatError(f"line {number}: {error}") from error
        if len(records) == head[1]:
            yield ReadGroup(head[0], tuple(records), head[2])
            head, records = None, []
    if head is not None:
        raise FormatError(
            f"line {head[2]} says {head[1]} records, and only {len(records)} follow: the file is not complete"
        )


def _head(data: Any) -> tuple[SessionInfo | None, int]:
    if not isinstance(data, dict) or "toolspeak_run" not in data:
        return session_of(data)
    line = cast("dict[str, Any]", data)
    count = line.get("records")
    if line["toolspeak_run"] != EXPORT_OF_RUN or type(count) is not int or count < 1:
        raise FormatError(
            f"expected 'toolspeak_run': {EXPORT_OF_RUN} and a number of records; was it written by a later version?"
        )
    return None, count


async def prune(journal: MaintainedJournal, *, before: float, principal: str | None = None) -> Removal:
    """Deletes the finished groups that last changed before a time (Unix seconds), permanently."""
    removal = Removal()
    async for group in journal.groups(before=before, principal=principal):
        if group.is_finished:
            await _delete(journal, group, removal)
    return removal


async def _delete(journal: MaintainedJournal, group: RunGroup, removal: Removal) -> None:
    try:
        await journal.delete_group(group)
    except (RunBusy, RunConflict):
        removal.busy += 1
    else:
        removal.add(group)


async def archive(
    journal: MaintainedJournal, folder: Path, *, before: float, principal: str | None = None
) -> AsyncGenerator[Removal]:
    """Moves the finished groups that last changed before a time (Unix seconds) into files of `folder`, one for each
    month (UTC) of that change. Yields each file when its groups are deleted from the journal.

    A group is deleted once its file is on the disk and was read back. If the process ends at any moment, each group is
    in the journal or in a file, and the next call goes on: it finishes the files whose groups were being deleted.

    Raises FormatError for such a file that does not read, OSError if a file cannot be written, and ConfigurationError
    while another process archives into the folder. Nothing is lost then.
    """
    with ExitStack() as files:
        for pending in _begin(folder, files):
            yield await _settle(journal, pending)
        streams: dict[str, tuple[Path, IO[str]]] = {}
        async for group in journal.groups(before=before, principal=principal):
            if not group.is_finished:
                continue
            month = f"{datetime.fromtimestamp(_last_change(group), UTC):%Y-%m}"
            if month not in streams:
                name = _free_name(folder, month)
                streams[month] = name, files.enter_context(_create(name))
            async for line in export_group(journal, group):
                streams[month][1].write(line + "\n")
        archive_files = [_complete(*streams[month]) for month in sorted(streams)]
        for pending in archive_files:
            yield await _settle(journal, pending)


def _begin(folder: Path, files: ExitStack) -> list[Path]:
    """Makes the folder and keeps other processes out of it. Returns the files whose groups were being deleted when a
    process ended."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _fcntl is not None:
        descriptor = os.open(folder, os.O_RDONLY)
        files.callback(os.close, descriptor)
        try:
            _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(f"another process archives into {folder}: wait until it has ended") from None
    for file in folder.glob(f"runs-*{_PARTIAL}"):
        file.unlink()  # nothing of it was deleted from the journal
    return sorted(folder.glob(f"runs-*{_PENDING}"))


def _last_change(group: RunGroup) -> float:
    return group.runs[0].updated if group.session is None else group.session.updated


def _free_name(folder: Path, month: str) -> Path:
    number = 1
    while True:
        name = f"runs-{month}.jsonl" if number == 1 else f"runs-{month}-{number}.jsonl"
        if not any((folder / f"{name}{end}").exists() for end in ("", _PENDING)):
            return folder / f"{name}{_PARTIAL}"
        number += 1


def _create(file: Path) -> IO[str]:
    return open(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8", newline="\n")


def _complete(file: Path, stream: IO[str]) -> Path:
    """Brings a file to the disk. Returns its new name."""
    stream.flush()
    os.fsync(stream.fileno())
    if hasattr(os, "posix_fadvise"):  # so that it is read back from the disk
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    stream.close()
    return _rename(file, file.with_name(file.name.removesuffix(_PARTIAL) + _PENDING))


def _rename(file: Path, other: Path) -> Path:
    """Renames a file, durably, and returns its new name."""
    file.rename(other)
    if _fcntl is not None:  # elsewhere a folder cannot be opened
        descriptor = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return other


def erase_from_archives(folder: Path, principal: str) -> Removal:
    """Removes the runs of a principal, and what their tools started, from the files that `archive` wrote to a folder.

    A file is written anew beside the old one and replaces it, so a crash leaves one of the two. Raises FormatError for
    a file that does not read, and ConfigurationError while another process archives into the folder.
    """
    removal = Removal(folder)
    with ExitStack() as files:
        pending = _begin(folder, files)
        for file in [*sorted(folder.glob("runs-*.jsonl")), *pending]:
            _erase_from_file(file, principal, removal)
    return removal


def _erase_from_file(file: Path, principal: str, removal: Removal) -> None:
    partial = file.with_name(file.name.removesuffix(_PENDING) + _PARTIAL)
    runs_before = removal.runs
    try:
        with file.open(encoding="utf-8") as lines, _create(partial) as stream:
            for group in read_groups(lines):
                remaining = _without(group, principal, removal)
                if remaining is not None:
                    stream.writelines(line + "\n" for line in _lines(remaining))
            stream.flush()
            os.fsync(stream.fileno())
    except (FormatError, UnicodeDecodeError) as error:
        raise FormatError(f"{file}: {error}; nothing was erased from this file") from error
    if removal.runs != runs_before:
        _rename(partial, file)
    else:
        partial.unlink()


def _without(group: ReadGroup, principal: str, removal: Removal) -> ReadGroup | None:
    """The group without the runs of a principal; None if nothing of it remains."""
    erased_run_ids: set[str] = set()
    runs = dict.fromkeys(record.run_id for record in group.records)
    is_owner = group.session is not None and group.session.principal == principal
    for record in group.records:
        if is_owner or record.principal == principal or record.parent_run_id in erased_run_ids:
            erased_run_ids.add(record.run_id)
    remaining = tuple([record for record in group.records if record.run_id not in erased_run_ids])
    removal.runs += len(erased_run_ids)
    removal.records += len(group.records) - len(remaining)
    if is_owner or (runs and not remaining):
        removal.groups += 1
        removal.runs += is_owner and not runs  # a session without runs counts too
        return None
    return replace(group, records=remaining)


def _lines(group: ReadGroup) -> Iterator[str]:
    count = len(group.records)
    yield _run_line(group.records[0].run_id, count) if group.session is None else session_line(group.session, count)
    for record in group.records:
        yield dumps(record)


def _run_line(run_id: str, records: int) -> str:
    return json.dumps({"toolspeak_run": EXPORT_OF_RUN, "run_id": run_id, "records": records})


async def _settle(journal: MaintainedJournal, pending: Path) -> Removal:
    """Deletes the groups of a complete file that are in the journal as the file has them. Then gives the file its
    name."""
    removal = Removal(pending.with_name(pending.name.removesuffix(_PENDING)))
    try:
        with pending.open(encoding="utf-8") as lines:
            for _ in read_groups(lines):
                pass  # nothing is deleted before all of the file reads
            lines.seek(0)
            for copy in read_groups(lines):
                group = await _group_of(journal, copy)
                if group is None:
                    continue  # it was deleted before
                if copy.session != group.session or not await _is_copy(journal, group, copy):
                    removal.busy += 1
                    continue
                await _delete(journal, group, removal)
    except (FormatError, UnicodeDecodeError) as error:
        raise FormatError(
            f"{pending}: {error}. What the file does not have is still in the journal: move the file elsewhere, and"
            " archive again"
        ) from error
    _rename(pending, cast("Path", removal.place))
    return removal


async def _group_of(journal: MaintainedJournal, copy: ReadGroup) -> RunGroup | None:
    if copy.session is not None:
        return await journal.session_group(copy.session.session_id)
    return await journal.group_of(copy.records[0].run_id)


async def _is_copy(journal: Journal, group: RunGroup, copy: ReadGroup) -> bool:
    """Whether the copy has every record of the group, and no other."""
    position = 0
    async for record in _records(journal, group):
        if position >= len(copy.records) or copy.records[position] != record:
            return False
        position += 1
    return position == len(copy.records)
