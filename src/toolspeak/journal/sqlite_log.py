"""Counts the transactions that are lost in a damaged or shortened SQLite write-ahead log.

SQLite does not report such damage. It uses a log as far as the checksums are right and drops the rest, because a
process that dies while it writes leaves a part of one transaction there (https://www.sqlite.org/walformat.html).

Two kinds of transactions are lost: whole transactions after a bad frame, and transactions that the log's index (a file
in the machine's memory) counts and the log does not have.
"""

from __future__ import annotations

import struct
import sys
from typing import NamedTuple

_HEAD = 32
_FRAME = 24
_VERSION = 3007000
MAGIC = {0x377F0682: "<", 0x377F0683: ">"}  # the order of the bytes in checksums; numbers in headers are big-endian
_INDEX = 48  # the bytes of the index's header, which the index holds twice, in the machine's byte order
_NATIVE = "<" if sys.byteorder == "little" else ">"


class LogScan(NamedTuple):
    """The contents of a write-ahead log.

    - `salts`: identify the log, since a file holds one log after the other.
    - `frames`: the number of frames in the transactions that SQLite uses.
    - `lost_transactions`: the number of whole transactions after the place where SQLite stops.
    """

    salts: bytes
    frames: int
    lost_transactions: int


def log_in(log: bytes) -> LogScan:
    """Scans a log. An undamaged log, or a log that ends in the middle of its last transaction, has lost nothing."""
    if len(log) < _HEAD:
        return LogScan(b"", 0, 0)
    magic, version, size, _, _, _, *sums = struct.unpack(">8I", log[:_HEAD])
    order, salts = MAGIC.get(magic, ""), log[16:24]
    if not order or version != _VERSION or _checksum(log[:24], (0, 0), order) != tuple(sums):
        # The header is written in one piece before the first frame, so it was whole at that time.
        return LogScan(salts, 0, max(1, _commits_of_unknown(log)) if len(log) >= _HEAD + _FRAME + 512 else 0)
    starts = range(_HEAD, len(log) - _FRAME - size + 1, _FRAME + size)
    seed = (sums[0], sums[1])
    frames = 0
    for number, at in enumerate(starts, 1):
        checksum = _sum_of(log, at, size, seed, order)
        if log[at + 8 : at + 16] != salts or checksum != _stored_sum(log, at):
            return LogScan(salts, frames, _commits_lost_after(log, at, size, salts, checksum, order))
        if any(log[at + 4 : at + 8]):
            frames = number
        seed = checksum
    return LogScan(salts, frames, 0)


def frames_missing(log: LogScan, index: bytes) -> int:
    """Returns the number of frames that the log's index counts and neither the log nor the file has; 0 if the index is
    unreadable.

    `index` must be the same before and after the log was read.
    """
    head = index[:_INDEX]
    if len(index) < 2 * _INDEX + 4 or head != index[_INDEX : 2 * _INDEX]:
        return 0
    version, _, _, is_initialised, *_ = struct.unpack(f"{_NATIVE}3I4B", head[:16])
    if (
        version != _VERSION
        or not is_initialised
        or _checksum(head[:40], (0, 0), _NATIVE) != struct.unpack("=2I", head[40:])
    ):
        return 0
    (frame_count,) = struct.unpack("=I", head[16:20])
    (in_file,) = struct.unpack("=I", index[2 * _INDEX : 2 * _INDEX + 4])
    if log.salts != head[32:40]:  # the index of an earlier or later log
        return frame_count
    # A log that holds only the first frames hides newer pages that are already in the file.
    return frame_count - log.frames if frame_count > log.frames and (log.frames or frame_count > in_file) else 0


def _commits_lost_after(log: bytes, bad: int, size: int, salts: bytes, frame_sum: tuple[int, int], order: str) -> int:
    """The number of whole transactions after a bad frame.

    `bad`: the offset of the first bad frame.
    `frame_sum`: the checksum that the frame should have.
    """

    def follows(at: int) -> bool:
        """Whether the frame is whole and was written directly after the one before it."""
        if log[at + 8 : at + 16] != salts:
            return False
        before = at - _FRAME - size
        seeds = (_stored_sum(log, before), frame_sum) if before == bad else (_stored_sum(log, before),)
        return any(_sum_of(log, at, size, seed, order) == _stored_sum(log, at) for seed in seeds)

    has_ended = False  # whether the bad frame's own transaction has ended
    lost_commits = 0
    for at in range(bad, len(log) - _FRAME - size + 1, _FRAME + size):
        following = at + _FRAME + size
        if not log[at + 4 : at + 8].strip(b"\0"):
            continue  # not the last frame of a transaction
        if has_ended:
            lost_commits += follows(at)
        elif log[at + 8 : at + 16] == salts:
            has_ended = True
        elif at == bad and following + _FRAME + size <= len(log):
            has_ended = follows(following)
    return lost_commits


def _commits_of_unknown(log: bytes) -> int:
    """The transactions of a log with a damaged header."""
    size = int.from_bytes(log[8:12], "big")
    if size not in (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536):
        size = 4096
    starts = range(_HEAD, len(log) - _FRAME - size + 1, _FRAME + size)
    salts = log[_HEAD + 8 : _HEAD + 16]
    return sum(log[at + 8 : at + 16] == salts and any(log[at + 4 : at + 8]) for at in starts)


def _stored_sum(log: bytes, at: int) -> tuple[int, int]:
    return struct.unpack_from(">2I", log, at + 16)


def _sum_of(log: bytes, at: int, size: int, seed: tuple[int, int], order: str) -> tuple[int, int]:
    """The checksum of the frame at `at`, which continues the checksum of the frame before it."""
    seed = _checksum(log[at : at + 8], seed, order)
    return _checksum(log[at + _FRAME : at + _FRAME + size], seed, order)


def _checksum(data: bytes, seed: tuple[int, int], order: str) -> tuple[int, int]:
    first, second = seed
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for one, other in zip(words, words, strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second
