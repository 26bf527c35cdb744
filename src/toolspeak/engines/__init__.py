"""Engines: who drives a run, and when (docs/design.md, section 4.8)."""

from toolspeak.engines.base import Delivery, Engine, RunHandler, WorkLimits, open_engine

__all__ = ["Delivery", "Engine", "RunHandler", "WorkLimits", "open_engine"]
