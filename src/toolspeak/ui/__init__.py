"""A run on a terminal: formatting, the live view, and approvals in step with it."""

from __future__ import annotations

from toolspeak.ui.approval import AfterDisplayApprover, AnnouncingApprover, SerialApprover
from toolspeak.ui.console import make_console, write
from toolspeak.ui.format import printable, summary
from toolspeak.ui.question import Question, screen_rows
from toolspeak.ui.run_renderer import Renderer
from toolspeak.ui.run_watch import watch
from toolspeak.ui.terminal_approver import TerminalApprover

__all__ = [
    "AfterDisplayApprover",
    "AnnouncingApprover",
    "Question",
    "Renderer",
    "SerialApprover",
    "TerminalApprover",
    "make_console",
    "printable",
    "screen_rows",
    "summary",
    "watch",
    "write",
]
