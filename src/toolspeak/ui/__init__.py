"""A run on a terminal: formatting, the live view, and approvals in step with it."""

from __future__ import annotations

from toolspeak.ui.approval import AnnouncingApprover, InStep, show_request
from toolspeak.ui.format import printable, summary
from toolspeak.ui.live import watch
from toolspeak.ui.render import Renderer, make_console

__all__ = [
    "AnnouncingApprover",
    "InStep",
    "Renderer",
    "make_console",
    "printable",
    "show_request",
    "summary",
    "watch",
]
