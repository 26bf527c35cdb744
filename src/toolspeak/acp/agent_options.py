"""The options of an editor's agents, made of what the command line and the configuration choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from toolspeak.acp.editor_choices import EditorChoices
from toolspeak.acp.permission_modes import Mode, mode_of
from toolspeak.data.run_values import Limits
from toolspeak.data.values import evolve, quick
from toolspeak.errors import ConfigurationError
from toolspeak.project.configuration.config import read_config, resolved_model
from toolspeak.project.configuration.configured_setup import SetupChoices, configured_setup
from toolspeak.project.run_setup import ApproveOption, Setup

_NO_MODEL = (
    "no model is configured. In the editor's settings of this agent, add the arguments `--model openai:NAME` (or the "
    "environment variable TOOLSPEAK_MODEL), and the key or the address of its server to the environment: "
    "OPENAI_API_KEY, OLLAMA_HOST, … Or write the model into the file that `toolspeak config path` names"
)

_MODES: Mapping[ApproveOption, Mode] = {"all": "approve_all", "all+repaired": "approve_all", "none": "plan"}
"""The mode for a configured `approve` other than "ask"."""


@quick()
class AgentOptions:
    """What the sessions in a folder have in common.

    - `setup`: the settings of their agents; a session may choose another model.
    - `limits`: those of each turn.
    - `models`: the names that the user may choose, each with the model that it stands for.
    - `mode`: the mode of a new session.
    - `warnings`: what the user should know of the configuration.
    """

    setup: Setup
    limits: Limits
    models: Mapping[str, str]
    mode: Mode
    warnings: tuple[str, ...]


def agent_options(choices: EditorChoices, folder: str, others: tuple[str, ...] = ()) -> AgentOptions:
    """The options of sessions in a folder, with the `others` that the tools use too. Raises ConfigurationError if there
    is no model, and for a configuration that cannot be read."""
    config = read_config(folder)
    model = choices.models[0] if choices.models else config.model
    if not model:
        raise ConfigurationError(_NO_MODEL)
    # Whatever the mode: a call in doubt is a question.
    setup_choices = cast("SetupChoices", {**choices.settings, "model": model, "approve": "ask"})
    setup = evolve(configured_setup(config, folder, **setup_choices), folders=others)
    models = {name: resolved_model(config, name) for name in (model, *choices.models[1:], *config.aliases)}
    mode = mode_of(choices.mode or "") or _MODES.get(config.approve, "ask")
    return AgentOptions(setup, evolve(config.limits, **choices.limits), models, mode, config.warnings)
