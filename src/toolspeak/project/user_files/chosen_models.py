"""The model that a person chose in a conversation with `/model`, for the next one."""

from __future__ import annotations

import os
from pathlib import Path

from toolspeak.data.protected_files import protect
from toolspeak.errors import ConfigurationError
from toolspeak.project.user_files.string_file import change_strings, read_strings
from toolspeak.project.user_files.user_folders import NO_FOLDER, data_folder

_MOST_FOLDERS = 500


def chosen_models_file() -> Path:
    """Where the choices are stored. No tool may change it: it decides who receives a conversation."""
    file = data_folder() / "models.json"
    protect(file, "the file of the models that you chose")
    return file


def chosen_model(folder: str) -> str:
    """The model string that was chosen last in a folder, else in any folder; "" if none was."""
    models = read_strings(chosen_models_file())
    return models.get(os.path.realpath(folder), next(reversed(models.values()), ""))


def remember_model(folder: str, model: str) -> None:
    """Stores the choice of a model in a folder. Raises ConfigurationError if it cannot be stored."""
    file = chosen_models_file()
    if file.parent == NO_FOLDER:
        raise ConfigurationError("there is no home folder to remember the model in; set HOME or XDG_DATA_HOME")

    def choose(models: dict[str, str]) -> None:
        models.pop(os.path.realpath(folder), None)
        models[os.path.realpath(folder)] = model  # the last one is the latest
        for each in list(models)[:-_MOST_FOLDERS]:
            del models[each]

    try:
        change_strings(file, choose)
    except OSError as error:
        raise ConfigurationError(f"{file}: the model is not remembered: {error.strerror or error}") from None
