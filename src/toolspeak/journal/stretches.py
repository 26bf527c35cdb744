"""Where the records of a run are in a SQLite file.

Records are stored in the order in which they come, so that a commit of many runs writes few pages: with a key that
keeps each run together it writes a page a run. A stretch is a part of a run whose records came one right behind the
other. Stretches are noted for hundreds of records at once, up to the record `noted.upto`; later records are scanned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolspeak.journal.leases import Connection
from toolspeak.journal.sql_schema import SPAN

BATCH = 256
"""Records between two times that stretches are noted: as many are scanned for a run's newest."""

END = f"""\
coalesce(
    (SELECT max(pos) + 1 FROM records
     WHERE id > (SELECT upto FROM noted) AND pos >= runs.number * {SPAN} AND pos < (runs.number + 1) * {SPAN}),
    (SELECT pos + count FROM stretches
     WHERE pos >= runs.number * {SPAN} AND pos < (runs.number + 1) * {SPAN} ORDER BY pos DESC LIMIT 1))"""
"""The position behind the last record of a row of `runs`."""

INSERT = "INSERT INTO records (pos, data, sum) VALUES (?, ?, ?)"
UNNOTED = "SELECT coalesce((SELECT max(id) FROM records), 0) - (SELECT upto FROM noted)"
NOTE = (
    # Of two records of different runs, the positions are much further apart than the ids.
    """
INSERT INTO stretches SELECT min(pos), min(id), count(*) FROM records
WHERE id > (SELECT upto FROM noted) GROUP BY pos - id""",
    # SQLite reuses ids once the last rows are deleted, so this may also go down.
    "UPDATE noted SET upto = coalesce((SELECT max(id) FROM records), 0)",
)

_NOTED = """\
SELECT r.pos, r.data, r.places, r.sum FROM stretches AS s
JOIN records AS r ON r.id >= s.id + max(0, $1 - s.pos) AND r.id < s.id + s.count
WHERE s.pos >= coalesce((SELECT max(pos) FROM stretches WHERE pos <= $1), $1) AND s.pos + s.count > $1 AND s.pos < $2
ORDER BY s.pos, r.id LIMIT $3"""

_SINCE = """\
SELECT pos, data, places, sum FROM records WHERE id > (SELECT upto FROM noted) AND pos >= $1 AND pos < $2
ORDER BY pos LIMIT $3"""

_DELETE = (
    """\
DELETE FROM records WHERE id IN (
    SELECT r.id FROM stretches AS s JOIN records AS r ON r.id >= s.id AND r.id < s.id + s.count
    WHERE s.pos >= $1 AND s.pos < $2)""",
    "DELETE FROM stretches WHERE pos >= $1 AND pos < $2",
)


async def rows_of(db: Connection, start: int, end: int, limit: int) -> Sequence[Sequence[Any]]:
    """Returns the first rows (position, JSON, places, checksum) at a run's positions from `start` to before `end`, in
    order."""
    rows = [*await db.rows(_NOTED, start, end, limit)]
    if len(rows) < limit:
        rows += await db.rows(_SINCE, start, end, limit - len(rows))
    return rows


async def delete_run(db: Connection, number: int) -> None:
    """Removes the records of run `number`."""
    await note(db)
    for statement in _DELETE:
        await db.change(statement, number * SPAN, (number + 1) * SPAN)
    await note(db)


async def note(db: Connection) -> None:
    """Notes the stretches of the records since the last time."""
    for statement in NOTE:
        await db.change(statement)
