"""Reads JSON files of the user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from toolspeak.errors import ConfigurationError


def read_json(path: str) -> Any:
    """The value in a JSON file, which may start with a byte order mark. Raises ConfigurationError with the file."""
    try:
        return json.loads(Path(path).read_text("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such file; name a JSON file") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{path}: not UTF-8 ({error.reason} at byte {error.start}); convert it first"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: not JSON: {error}") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}") from None
