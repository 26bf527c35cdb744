"""An output to a terminal that shows a change of many rows at once."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output


class SteadyOutput(Vt100_Output):
    """An output that can hold what is written, so that a change of many rows reaches the terminal at once."""

    _holds = False

    def get_default_color_depth(self) -> ColorDepth:
        """Returns how many colours the terminal has: none if NO_COLOR is set."""
        return ColorDepth.from_env() or super().get_default_color_depth()

    def flush(self) -> None:
        """Writes to the terminal, unless it holds."""
        if not self._holds:
            super().flush()

    @contextmanager
    def at_once(self) -> Generator[None]:
        """Writes everything of the block in one piece. The terminal shows it as one change, if it knows how."""
        self.write_raw("\x1b[?2026h")
        self._holds = True
        try:
            yield
        finally:
            self._holds = False
            self.write_raw("\x1b[?2026l")
            self.flush()
