"""Transports to model APIs, by name."""

# pyright: reportUnsupportedDunderAll=false

from toolspeak.lazy import lazy_names

_PLACES = {
    "PROVIDERS": "toolspeak.providers.model_strings",
    "Capabilities": "toolspeak.providers.capabilities",
    "ModelRequest": "toolspeak.wire.base",
    "Provider": "toolspeak.providers.base",
    "capabilities_of": "toolspeak.providers.families",
    "get_provider": "toolspeak.providers.model_strings",
}
"""The module of each public name."""

__all__ = list(_PLACES)

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
