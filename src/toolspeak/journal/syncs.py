"""Where a sync is waited for: in a thread, or in the event loop because it is over before a thread had begun."""

from __future__ import annotations

SHORT = 0.001
"""Seconds that an event loop may stand still: to hand a sync over to a thread and back costs up to a tenth of that, and
much more where the cores are busy."""

_SHARE = 1 / 8  # what the last sync counts for in the mean
_UNKNOWN = 0.02  # as a disk that turns: some 25 short ones are seen before the loop waits for one


class Syncs:
    """Knows how long the last syncs took, as a mean in which the newest counts most: one that was long is felt for
    the next ten or so, a disk that has become slow at once."""

    __slots__ = ("_mean",)

    def __init__(self) -> None:
        self._mean = _UNKNOWN

    @property
    def short(self) -> bool:
        """Whether the event loop can wait for the next one."""
        return self._mean < SHORT

    def took(self, seconds: float) -> None:
        self._mean += (seconds - self._mean) * _SHARE
