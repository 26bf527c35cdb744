"""Checks one value against one schema, as a process of its own: what takes too long there can be ended.

It is run by path, with what `jsonschema_rs` needs and no more. Standard input: JSON with the schema, the value, how
many flaws are wanted, where the library is, and what the process may use. Standard output: a line of JSON that says
whether it fits, and one with the flaws (`flaws_of`). See `schema.py`.
"""

from __future__ import annotations

import importlib
import json
import sys
from contextlib import suppress
from itertools import islice
from typing import Any, Never


def refuse(uri: str) -> Never:
    """In place of fetching it, from whatever address a server names."""
    raise LookupError(uri)


def flaws_of(validator: Any, value: Any, wanted: int) -> list[tuple[list[str | int], str]]:
    """Where the value does not fit, and why."""
    return [(list(error.instance_path), error.message) for error in islice(validator.iter_errors(value), wanted)]


def limited(seconds: int, memory: int) -> None:
    """Ends this process by itself, whoever has started it (POSIX)."""
    with suppress(ImportError, ValueError, OSError):
        resource = importlib.import_module("resource")
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    limited(request["seconds"], request["memory"])
    sys.path.append(request["library"])
    validator = importlib.import_module("jsonschema_rs").validator_for(request["schema"], retriever=refuse)
    valid = validator.is_valid(request["value"])
    print(json.dumps(valid), flush=True)  # to say where it does not fit may take much longer
    print(json.dumps([] if valid else flaws_of(validator, request["value"], request["wanted"])))


if __name__ == "__main__":
    main()
