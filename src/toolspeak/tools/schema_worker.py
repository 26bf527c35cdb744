"""A separate process that checks one value against one schema, and can be killed if it takes too long.

It runs by its path, and imports only `jsonschema_rs`. Standard input: JSON with the schema, the value, the number of
flaws to list, the library's folder, and the limits of time and memory. Standard output: a line of JSON with whether the
value is valid, and a line with the flaws (`flaws_of`). See `schema_checks.py`.
"""

from __future__ import annotations

import importlib
import json
import sys
from contextlib import suppress
from itertools import islice
from typing import Any, Never


def refuse(uri: str) -> Never:
    """Refuses a reference to another document: the schema must not choose addresses to fetch."""
    raise LookupError(uri)


def flaws_of(validator: Any, value: Any, limit: int) -> list[tuple[list[str | int], str]]:
    """The places where the value does not match, and the reasons."""
    return [(list(error.instance_path), error.message) for error in islice(validator.iter_errors(value), limit)]


def limit_resources(seconds: int, memory: int) -> None:
    """Limits this process, so that it ends even without its parent (POSIX)."""
    with suppress(ImportError, ValueError, OSError):
        resource = importlib.import_module("resource")
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    limit_resources(request["seconds"], request["memory"])
    sys.path.append(request["library"])
    validator = importlib.import_module("jsonschema_rs").validator_for(request["schema"], retriever=refuse)
    valid = validator.is_valid(request["value"])
    print(json.dumps(valid), flush=True)  # the flaws may take much longer
    print(json.dumps([] if valid else flaws_of(validator, request["value"], request["wanted"])))


if __name__ == "__main__":
    main()
