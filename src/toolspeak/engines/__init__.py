"""Engines, which say who drives a run and when; workers, which drive; and clients of runs that others drive."""

from toolspeak.engines.base import Delivery, Engine, RunHandler, WorkLimits, open_engine
from toolspeak.engines.embedded_engine import EmbeddedEngine
from toolspeak.engines.run_client import RunClient
from toolspeak.engines.worker import Worker

__all__ = [
    "Delivery",
    "EmbeddedEngine",
    "Engine",
    "RunClient",
    "RunHandler",
    "WorkLimits",
    "Worker",
    "open_engine",
]
