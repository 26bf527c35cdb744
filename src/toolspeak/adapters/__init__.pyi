from toolspeak.adapters.ag_ui_app import AgUiApp
from toolspeak.adapters.ag_ui_events import AgUiEvents
from toolspeak.adapters.foreign_tools import EffectsByName
from toolspeak.adapters.langchain_tools import from_langchain, to_langchain
from toolspeak.adapters.openai_agents_tools import from_openai_agents, to_openai_agents
from toolspeak.adapters.pydantic_ai_tools import from_pydantic_ai, from_pydantic_ai_toolset
from toolspeak.adapters.pydantic_ai_toolset import to_pydantic_ai
from toolspeak.adapters.turn_batches import AdapterOptions

__all__ = [
    "AdapterOptions",
    "AgUiApp",
    "AgUiEvents",
    "EffectsByName",
    "from_langchain",
    "from_openai_agents",
    "from_pydantic_ai",
    "from_pydantic_ai_toolset",
    "to_langchain",
    "to_openai_agents",
    "to_pydantic_ai",
]
