"""Rules and decisions are checked: a typing error in one must not let another call pass, or refuse it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast, get_args

from toolspeak.data.approvals import Action, Decision, EffectKind, Rule
from toolspeak.errors import ConfigurationError, suggest
from toolspeak.execute.approval.command_lines import prefix_words

_ACTIONS: tuple[str, ...] = get_args(Action)
_EFFECTS: tuple[str, ...] = get_args(EffectKind)


def check_rule(rule: Rule) -> None:
    """Raises ConfigurationError for a value that is not a Rule, and for a rule with a field of the wrong type, a path
    pattern
    without a root, a command prefix that fits any command, a prefix in a rule that refuses, or "modify" without a
    change.
    """
    if not isinstance(cast("object", rule), Rule):
        raise ConfigurationError(f"expected a Rule, such as Rule('approve', tool='read'), not {rule!r}")
    _check_fields(rule)
    for prefix in rule.begins:
        prefix_words(prefix)
    if rule.begins and rule.action != "approve":
        raise ConfigurationError(
            f"begins=… needs the action 'approve', not {rule.action!r}: the same command can be written in "
            "many ways, so such a rule would refuse too little"
        )
    for pattern in rule.paths:
        if "/" in pattern and ":" not in pattern and not pattern.startswith("/"):
            raise ConfigurationError(
                f"the pattern {pattern!r} does not say where it starts; write it from the root ('/srv/{pattern}'), "
                "as a key ('file:/…'), or as a name without a slash ('*.md')"
            )
    if (rule.action == "modify") != (rule.change is not None):
        raise ConfigurationError(f"change={{…}} and the action 'modify' go together; the action is {rule.action!r}")


def check_decision(decision: Decision) -> None:
    """Raises ConfigurationError for a decision with a field of the wrong type: the string "no" is a true value."""
    for name in ("approved", "ends_run"):
        if not isinstance(value := getattr(decision, name), bool):
            raise ConfigurationError(f"Decision({name}={value!r}): must be True or False")
    _check_texts(decision, ("reason", "by", "digest"))
    _check_mappings(decision, ("arguments",))
    if decision.always is not None:
        if not isinstance(cast("object", decision.always), Rule):
            raise ConfigurationError(f"Decision(always={decision.always!r}): expected a Rule, such as request.always()")
        check_rule(decision.always)


def _check_fields(rule: Rule) -> None:
    for name, value, known in (("action", rule.action, _ACTIONS), ("effects", rule.effects, _EFFECTS)):
        if value not in known:
            raise ConfigurationError(f"Rule({name}=…): there is no {suggest(str(value), known)}")
    _check_texts(rule, ("tool", "after", "reason", "definition"))
    for name in ("paths", "begins"):
        value = cast("object", getattr(rule, name))
        # A string is a sequence of strings too: the last character of '/tmp/*' is a pattern that fits everything.
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ConfigurationError(
                f"Rule({name}={value!r}): expected a tuple of strings, such as {name}=({str(value)!r},)"
            )
        for each in cast("Sequence[object]", value):
            if not isinstance(each, str):
                raise ConfigurationError(f"Rule({name}={value!r}): {each!r} is not a string")
    _check_mappings(rule, ("arguments", "change"))
    if not isinstance(cast("object", rule.exact), bool):
        raise ConfigurationError(f"Rule(exact={rule.exact!r}): must be True or False")


def _check_texts(value: Rule | Decision, names: Sequence[str]) -> None:
    for name in names:
        if not isinstance(text := getattr(value, name), str):
            raise ConfigurationError(f"{type(value).__name__}({name}={text!r}): expected a string")


def _check_mappings(value: Rule | Decision, names: Sequence[str]) -> None:
    for name in names:
        mapping = getattr(value, name)
        if mapping is not None and not isinstance(mapping, Mapping):
            raise ConfigurationError(
                f"{type(value).__name__}({name}={mapping!r}): expected a dict keyed by argument name"
            )
