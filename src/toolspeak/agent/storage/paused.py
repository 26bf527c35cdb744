"""A run as text, so that another process can go on with it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

from toolspeak.data.codec import dumps, loads
from toolspeak.data.events import Record
from toolspeak.errors import FormatError
from toolspeak.tools.returned_values import Unserialisable, jsonable


def dump_run(records: Iterable[Record], memory: dict[str, Any]) -> str:
    """The run's records, a JSON object a line, and last its tools' memory, as far as that is JSON."""
    stored: dict[str, Any] = {}
    for key, value in memory.items():
        try:
            stored[key] = jsonable(value)
        except Unserialisable:
            continue  # an open connection, say: whoever goes on makes it anew
    return "".join(dumps(record) + "\n" for record in records) + json.dumps({"memory": stored}) + "\n"


def load_run(text: str) -> tuple[list[Record], dict[str, Any]]:
    """The records and the memory that `dump_run` wrote. Raises FormatError for anything else."""
    if not isinstance(cast("object", text), str):
        raise FormatError(f"expected the text that `RunResult.dumps` gives, not {type(text).__name__}")
    *lines, last = [line for line in text.splitlines() if line.strip()] or [""]
    records = [loads(line) for line in lines]
    if not records or not all(isinstance(record, Record) for record in records):
        raise FormatError("expected the records of a run, a JSON object a line, and its memory last")
    try:
        stored: object = json.loads(last)
    except ValueError as error:
        raise FormatError(f"the last line is not JSON: {error}; is the text whole?") from error
    memory = cast("dict[str, Any]", stored).get("memory") if isinstance(stored, dict) else None
    if not isinstance(memory, dict):
        raise FormatError("the last line is not the run's memory; is the text whole?")
    return records, cast("dict[str, Any]", memory)
