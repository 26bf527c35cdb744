"""The version of the installed package, from its metadata. A module of its own, because `importlib.metadata` takes time
to import."""

from importlib import metadata

__version__ = metadata.version("toolspeak")
"""The version of toolspeak, such as `0.1.0`."""
