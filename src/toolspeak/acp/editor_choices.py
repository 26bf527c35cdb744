"""What the command line of `toolspeak acp` chooses. Imported before the agent is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolspeak.data.values import quick


@quick()
class EditorChoices:
    """- `models`: the first is the default. `mode`: None is that of the configuration.
    - `settings`, `limits`: fields of `Setup` and `Limits`; what is missing is configured.
    """

    models: tuple[str, ...]
    mode: str | None
    settings: Mapping[str, Any]
    limits: Mapping[str, float]
