"""Tools of other agent frameworks as toolspeak tools, and toolspeak tools for their agents.

    agent = create_agent(model, to_langchain([read, write], approve=ask_me))

Each framework has an extra: `pydantic-ai`, `langchain`, `openai-agents`. Importing this package imports none of them;
the first use of a name does.
"""

# pyright: reportUnsupportedDunderAll=false

import importlib
from types import ModuleType

from toolspeak.errors import ConfigurationError
from toolspeak.lazy import lazy_names

_PLACES = {
    "AgUiApp": "toolspeak.adapters.ag_ui_app",
    "AgUiEvents": "toolspeak.adapters.ag_ui_events",
    "AdapterOptions": "toolspeak.adapters.turn_batches",
    "EffectsByName": "toolspeak.adapters.foreign_tools",
    "from_langchain": "toolspeak.adapters.langchain_tools",
    "from_openai_agents": "toolspeak.adapters.openai_agents_tools",
    "from_pydantic_ai": "toolspeak.adapters.pydantic_ai_tools",
    "from_pydantic_ai_toolset": "toolspeak.adapters.pydantic_ai_tools",
    "to_langchain": "toolspeak.adapters.langchain_tools",
    "to_openai_agents": "toolspeak.adapters.openai_agents_tools",
    "to_pydantic_ai": "toolspeak.adapters.pydantic_ai_toolset",
}

_EXTRAS = {"ag": "ag-ui", "pydantic": "pydantic-ai", "langchain": "langchain", "openai": "openai-agents"}

__all__ = list(_PLACES)


def _load(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        extra = _EXTRAS[module.rpartition(".")[2].partition("_")[0]]
        raise ConfigurationError(f"this adapter needs: pip install 'toolspeak[{extra}]' ({error})") from error


__getattr__, __dir__ = lazy_names(__name__, _PLACES, _load)
