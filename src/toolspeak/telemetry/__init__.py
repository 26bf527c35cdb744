"""OpenTelemetry: traces and metrics of runs and of the gateway. It needs the extra `otel`.

    from toolspeak import telemetry

    telemetry.instrument()

Importing this does nothing.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from toolspeak.agent.recording.tracing import install_tracer
from toolspeak.errors import ConfigurationError

__all__ = ["gateway_telemetry", "instrument", "set_up_sdk", "uninstrument"]

_SET_UP: set[int] = set()
"""The process that has set up the SDK: a forked one has not."""

_PLACES: Mapping[str, str] = {"Telemetry": "live_tracer"}


def instrument(*, content: bool | None = None, tracer_provider: Any = None, meter_provider: Any = None) -> None:
    """Lets every run of this process be traced and measured. Parameters as of `Telemetry`.

    It uses the OpenTelemetry SDK that the program has set up, now or later; `set_up_sdk` sets one up. Raises
    ConfigurationError if OpenTelemetry is not installed.
    """
    tracer = part("live_tracer").Telemetry(
        content=content, tracer_provider=tracer_provider, meter_provider=meter_provider
    )
    install_tracer(tracer)


def uninstrument() -> None:
    """Undoes `instrument`. Runs under way are traced to their end."""
    install_tracer(None)


def set_up_sdk(service: str = "toolspeak") -> None:
    """Sets up OpenTelemetry's SDK as the variables OTEL_* say, for a program that does not do so itself.

    Spans and metrics go by OTLP over HTTP to OTEL_EXPORTER_OTLP_ENDPOINT (http://localhost:4318). `service` is the name
    of the service unless OTEL_SERVICE_NAME is set. Raises ConfigurationError if OpenTelemetry is not installed, and for
    a variable that asks for what is not here.
    """
    part("sdk_setup").set_up(service)
    _SET_UP.add(os.getpid())


def gateway_telemetry() -> Any:
    """The `Telemetry` of a gateway in this process, whose SDK it sets up. Each worker process of a gateway calls it."""
    if os.getpid() not in _SET_UP:
        set_up_sdk()
    return part("live_tracer").Telemetry()


def part(module: str) -> Any:
    """A module of telemetry. Raises ConfigurationError if OpenTelemetry is not installed."""
    try:
        return importlib.import_module(f"toolspeak.telemetry.{module}")  # not at the top: it needs an extra
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigurationError(
            f"telemetry needs an extra: pip install 'toolspeak[otel]' ({error.name} is missing)"
        ) from None


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(part(_PLACES[name]), name)
