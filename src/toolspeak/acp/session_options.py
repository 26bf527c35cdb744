"""What the user of an editor may choose for a session: its mode and its model, as the protocol lists them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from toolspeak.acp.call_presentation import JsonObject
from toolspeak.acp.permission_modes import MODES, Mode


def mode_fields(mode: Mode) -> JsonObject:
    """The modes, and the one that is set."""
    modes = [{"id": each, "name": name, "description": text} for each, (name, text) in MODES.items()]
    return {"currentModeId": mode, "availableModes": modes}


def config_options(mode: Mode, model: str, models: Mapping[str, str]) -> list[JsonObject]:
    """The options of a session. `models`: what each name stands for."""
    mode_values = [{"value": each, "name": name, "description": text} for each, (name, text) in MODES.items()]
    names = {} if model in models.values() else {model: model}
    for name, value in models.items():
        names.setdefault(value, name)
    model_values: list[JsonObject] = []
    for value, name in names.items():
        description = {} if name == value else {"description": value}
        model_values.append({"value": value, "name": name, **description})
    return [
        {
            "id": "mode",
            "name": "Mode",
            "category": "mode",
            "type": "select",
            "currentValue": mode,
            "options": mode_values,
        },
        {
            "id": "model",
            "name": "Model",
            "category": "model",
            "type": "select",
            "currentValue": model,
            "options": model_values,
        },
    ]
