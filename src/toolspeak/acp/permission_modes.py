"""The modes of a session: which calls an editor's user is asked about. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast, get_args

from toolspeak.data.approvals import Decision
from toolspeak.data.tools import covers
from toolspeak.execute import ApprovalRequest

Mode = Literal["ask", "accept_edits", "approve_all", "plan"]

MODES: Mapping[Mode, tuple[str, str]] = {
    "ask": ("Ask", "Asks before each call that writes or leaves this machine."),
    "accept_edits": ("Accept edits", "Files of the workspace change without a question. Asks before anything else."),
    "approve_all": ("Approve all", "Runs every call without a question."),
    "plan": ("Plan", "Reads only: every call that writes or leaves this machine is refused."),
}
"""Each mode's name and description."""

_PLAN_REASON = (
    "the user's editor is in plan mode: nothing may change. Only read, then answer with a plan of what you would do"
)


def mode_of(name: str) -> Mode | None:
    """The mode of this name; None if there is none."""
    return cast("Mode", name) if name in get_args(Mode) else None


def decision_by_mode(mode: Mode, request: ApprovalRequest, folders: tuple[str, ...]) -> Decision | None:
    """What the mode decides about a call; None: the user is asked.

    `folders`: the session's. No mode approves a repaired call, one that was started before and may have had an effect,
    or one that needs a person.
    """
    if mode == "plan":
        return Decision(False, _PLAN_REASON, by="plan mode", digest=request.digest)
    if request.repaired_from is not None or not request.can_be_revised:
        return None
    if request.effects.approval or request.needs_person:
        return None
    if mode == "approve_all" or (mode == "accept_edits" and _only_edits(request, folders)):
        return Decision(True, by=f"mode {mode}", digest=request.digest)
    return None


def _only_edits(request: ApprovalRequest, folders: tuple[str, ...]) -> bool:
    effects = request.effects
    keys = tuple(f"file:{folder}" for folder in folders)
    return (
        effects.declared
        and request.command_line is None
        and not effects.external
        and bool(effects.writes)
        and all(any(covers(key, write_key) for key in keys) for write_key in effects.writes)
    )
