# What `__init__.py` gives, for type checkers: a test holds the two together.

from toolspeak.providers.base import Provider
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.families import capabilities_of
from toolspeak.providers.model_strings import PROVIDERS, get_provider
from toolspeak.wire.base import ModelRequest

__all__ = ["PROVIDERS", "Capabilities", "ModelRequest", "Provider", "capabilities_of", "get_provider"]
