"""The file of `--rules`, with the rules that approve calls without a question."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from toolspeak.data.protected import protect
from toolspeak.errors import ConfigurationError, FormatError
from toolspeak.execute import StandingRule, StandingRules
from toolspeak.tools.builtin.folder import Folder

_LOCK_SECONDS = 10.0


def open_rules(path: str) -> StandingRules:
    """The rules in a file. A missing file holds no rules. Every change is written to the file. Raises
    ConfigurationError for a file that does not hold rules."""
    file = Path(path)
    protect(file, "the file of approval rules")

    def read() -> list[StandingRule]:
        return list(StandingRules.loads(file.read_text("utf-8") if file.exists() else ""))

    def store(rules: StandingRules) -> None:
        # Another process may have changed the file since: apply only this process's additions and revocations to it.
        try:
            with Folder.top(os.path.realpath(file.parent)) as folder, folder.alone(_LOCK_SECONDS):
                now, last_rules = read(), [each.rule for each in last_read]
                mine = [each.rule for each in rules]
                merged = [each for each in now if each.rule in mine or each.rule not in last_rules]
                there = [each.rule for each in merged]
                last = max((int(each.id) for each in now if each.id.isdigit()), default=0)
                for each in rules:
                    if each.rule not in last_rules and each.rule not in there:
                        last += 1
                        merged.append(replace(each, id=str(last)))
                # Other processes read the old rules or the new ones, never a part of them.
                beside = file.with_name(f"{file.name}.{os.getpid()}.new")
                beside.write_text(StandingRules(merged).dumps(), "utf-8")
                beside.replace(file)
        except (OSError, FormatError) as error:
            raise ConfigurationError(f"--rules {path}: the change was not saved: {error}") from error
        last_read[:] = rules

    last_read: list[StandingRule] = []
    try:
        last_read += read()
        return StandingRules(last_read, store)
    except (OSError, ValueError, FormatError) as error:
        raise ConfigurationError(f"--rules {path}: {error}") from None
