"""The file of `--rules`, with the rules that approve calls without a question."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from toolspeak.data.approvals import Decision, Escalate
from toolspeak.data.protected_files import protect
from toolspeak.errors import ConfigurationError, FormatError
from toolspeak.execute import ApprovalRequest, StandingRule, StandingRules
from toolspeak.execute.approval.approvers import ApprovalAnswer
from toolspeak.tools.files.folder import Folder

_LOCK_SECONDS = 10.0


class RulesFile(StandingRules):
    """The rules in a file. A missing file holds no rules.

    Every change is written to the file. A change of the file by another process counts at once: a rule that is revoked
    approves nothing more. Raises ConfigurationError for a file that does not hold rules.
    """

    def __init__(self, path: str) -> None:
        self._path, self._file = path, Path(path)
        self._stamp: tuple[int, ...] | None = None  # of the file as it was read last
        self._last_read: list[StandingRule] = []
        super().__init__((), lambda _: self._store())
        protect(self._file, "the file of approval rules")
        self._by_id()

    def __len__(self) -> int:
        try:
            return super().__len__()
        except ConfigurationError:
            return 1  # it may hold rules: `decide` says that nobody can read them

    def decide(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """As of all rules, by a rule of this file. If the file cannot be read any more, a person decides."""
        try:
            answer = super().decide(request)
        except ConfigurationError as error:
            return Escalate(str(error), person=True)
        return replace(answer, by=f"{answer.by} of {self._file.name}") if isinstance(answer, Decision) else answer

    def _by_id(self) -> dict[str, StandingRule]:
        try:
            if self._stamp_now() != self._stamp:
                self._read()
        except (OSError, ValueError, FormatError) as error:
            raise ConfigurationError(f"--rules {self._path}: {error}") from None
        return self._rules

    def _stamp_now(self) -> tuple[int, ...]:
        try:
            status = self._file.stat()
        except FileNotFoundError:
            return ()
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _read(self) -> None:
        stamp = self._stamp_now()
        self._last_read = list(StandingRules.loads(self._file.read_text("utf-8") if stamp else ""))
        self._hold(self._last_read)
        self._stamp = stamp  # of before: a change meanwhile is read the next time

    def _store(self) -> None:
        # Another process may have changed the file since: apply only this process's additions and revocations to it.
        mine, before = list(self._rules.values()), [each.rule for each in self._last_read]
        try:
            with Folder.top(os.path.realpath(self._file.parent)) as folder, folder.alone(_LOCK_SECONDS):
                self._read()
                my_rules = [each.rule for each in mine]
                merged_rules = [each for each in self._last_read if each.rule in my_rules or each.rule not in before]
                there = [each.rule for each in merged_rules]
                last = max((int(each.id) for each in self._last_read if each.id.isdigit()), default=0)
                for each in mine:
                    if each.rule not in before and each.rule not in there:
                        last += 1
                        merged_rules.append(replace(each, id=str(last)))
                # Other processes read the old rules or the new ones, never a part of them.
                beside = self._file.with_name(f"{self._file.name}.{os.getpid()}.new")
                beside.write_text(StandingRules(merged_rules).dumps(), "utf-8")
                beside.replace(self._file)
                self._read()
        except (OSError, FormatError) as error:
            raise ConfigurationError(f"--rules {self._path}: the change was not saved: {error}") from error
