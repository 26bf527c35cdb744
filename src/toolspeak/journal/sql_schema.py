"""The tables, as numbered steps. A database of an earlier version is upgraded step by step.

A released step never changes: every change is a new step. Each database fills in these placeholders: `{integer}`,
`{key}`, `{number}` (a key that the database counts), `{real}`, `{bytes}`, `{found}` (the table of searched words),
`{arrivals}`, `{sums}`, `{clocks}`, `{pieces}` and `{vacuums}`. Each of the last six holds statements, with `;` and a
line break between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SPAN = 1 << 32
"""The number of positions of a run. The records of run number n are at n·2³² to (n + 1)·2³² - 1."""

STEPS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE runs (
            number {number}, run_id TEXT NOT NULL UNIQUE, status TEXT, title TEXT, model TEXT, agent TEXT,
            created {real}, updated {real}, session_id TEXT, principal TEXT, parent_run_id TEXT,
            epoch {integer} NOT NULL, owner TEXT, held_until {real})""",
        "CREATE INDEX runs_by_time ON runs (created)",
        "CREATE INDEX runs_by_session ON runs (session_id)",
        "CREATE TABLE records (pos {key}, data TEXT NOT NULL, places TEXT)",
        "CREATE TABLE blobs (digest TEXT PRIMARY KEY, data {bytes} NOT NULL)",
        """CREATE TABLE blob_uses (
            digest TEXT NOT NULL REFERENCES blobs (digest), pos {integer} NOT NULL, PRIMARY KEY (digest, pos))""",
        "CREATE INDEX blob_uses_by_pos ON blob_uses (pos)",
        """CREATE TABLE sessions (
            session_id TEXT PRIMARY KEY, title TEXT NOT NULL, created {real} NOT NULL, updated {real} NOT NULL,
            version {integer} NOT NULL, runs {integer} NOT NULL, last_run TEXT, principal TEXT,
            forked_run TEXT, forked_seq {integer}, history TEXT)""",
        "CREATE INDEX sessions_by_time ON sessions (updated)",
    ),
    (
        "ALTER TABLE runs ADD COLUMN indexed {integer} NOT NULL DEFAULT 0",
        "{found}",
    ),
    ("ALTER TABLE runs ADD COLUMN suspend {integer}",),
    ("{arrivals}",),
    ("{sums}",),
    ("{clocks}",),
    (
        "ALTER TABLE runs ADD COLUMN due {real}",
        "ALTER TABLE runs ADD COLUMN followed {real}",
        "CREATE INDEX runs_due ON runs (due) WHERE due IS NOT NULL",
        "CREATE INDEX runs_running ON runs (number) WHERE status = 'running'",
        """CREATE TABLE inputs (
            number {number}, run_id TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, key TEXT NOT NULL,
            data TEXT NOT NULL, principal TEXT, time {real} NOT NULL, seen {integer} NOT NULL DEFAULT 0,
            taken_by TEXT, UNIQUE (run_id, kind, key))""",
        "{pieces}",
    ),
    (
        "CREATE INDEX runs_by_parent ON runs (parent_run_id) WHERE parent_run_id IS NOT NULL",
        "{vacuums}",
    ),
    (
        "ALTER TABLE runs ADD COLUMN folder TEXT",
        "ALTER TABLE runs ADD COLUMN dialect TEXT",
        "CREATE INDEX runs_by_status ON runs (status, created, run_id)",
        "CREATE INDEX runs_by_agent ON runs (agent, created, run_id)",
        "CREATE INDEX runs_by_principal ON runs (principal, created, run_id) WHERE principal IS NOT NULL",
    ),
)
"""Step n - 1 upgrades version n - 1 to version n.

- Version 1: records, runs, sessions.
- Version 2: search.
- Version 3: the epoch of the lease whose holder must suspend the run.
- Version 4: in SQLite, records in the order of their arrival (`journal.sqlite_connection`).
- Version 5: in SQLite, a checksum with each record, and the processes that have the file open.
- Version 6: in SQLite, the clocks of leases.
- Version 7: when a worker may drive a run, what came for it from outside, and who follows it; in SQLite, the deltas for
  those who follow.
- Version 8: the runs that a run's tools started; in SQLite, how often and how far the file was made smaller.
- Version 9: lists of the runs of a status, an agent or a principal; the folder and the dialect of new runs.
"""

VERSION = len(STEPS)
"""The version that this toolspeak writes and reads."""


def steps_from(version: int, types: Mapping[str, str]) -> Sequence[str]:
    """The statements that upgrade a database of this version to `VERSION`."""
    return [
        statement.format_map(types)
        for step in STEPS[version:]
        for whole in step
        for statement in whole.format_map(types).split(";\n")
        if statement
    ]


def newer(place: str, version: int) -> str:
    """The error text for a database that a later toolspeak wrote."""
    return (
        f"{place} was written by a later toolspeak (schema version {version}; this one reads up to {VERSION}):"
        " upgrade toolspeak, or name another journal"
    )
