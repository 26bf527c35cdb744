"""The file of `--rules`: what two processes change in it at the same time is all there."""

from __future__ import annotations

from forked_commands import completed_text
from toolspeak.data.approvals import Rule
from toolspeak.project.user_files.rules_file import RulesFile


def rules_in(path):
    return [(each.id, each.rule.tool) for each in RulesFile(str(path))]


def test_a_rule_that_was_revoked_does_not_come_back_with_another_processs_next_one(tmp_path):
    path = tmp_path / "rules"
    first = RulesFile(str(path))
    first.add(Rule("approve", "read"))
    first.add(Rule("approve", "shell"))
    process = completed_text(["rules", "rules", "--revoke", "2"], cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    first.add(Rule("approve", "list"))
    assert [tool for _, tool in rules_in(path)] == ["read", "list"]


def test_rules_of_two_processes_are_all_kept_each_under_an_id_of_its_own(tmp_path):
    path = tmp_path / "rules"
    first, second = RulesFile(str(path)), RulesFile(str(path))
    first.add(Rule("approve", "read"))
    second.add(Rule("approve", "list"))
    second.add(Rule("approve", "read"))
    first.add(Rule("approve", "find"))
    assert rules_in(path) == [("1", "read"), ("2", "list"), ("3", "find")]
    first.revoke("1")
    assert [tool for _, tool in rules_in(path)] == ["list", "find"]
