"""Which tools of a run the model reads by their names alone (`--defer`)."""

from __future__ import annotations

import json
from collections.abc import Collection
from fnmatch import fnmatchcase

from toolspeak.project.run_setup import Setup
from toolspeak.tools import DeferredTools, Toolset

SHARE = 0.1
"""The share of the window that the definitions of added tools may fill before they are deferred."""

MOST_TOKENS = 8_000
"""The same in tokens, where the window is unknown."""


def with_deferral(tools: Toolset, setup: Setup, added_names: Collection[str]) -> Toolset | DeferredTools:
    """The tools for an agent, some of them deferred as the settings say. `added_names`: the tools of MCP servers and
    the user's own, which `auto` may defer."""
    patterns = [each.strip() for each in setup.defer.split(",") if each.strip()]
    if patterns == ["auto"]:
        specs = [spec for spec in tools.specs if spec.name in added_names]
        sizes = [len(each.description) + len(json.dumps(dict(each.parameters), default=dict)) for each in specs]
        limit = MOST_TOKENS if setup.window is None else SHARE * setup.window
        return tools.defer(lambda each: each.name in added_names) if sum(sizes) > 4 * limit else tools
    if patterns in ([], ["none"]):
        return tools
    return tools.defer(lambda each: any(fnmatchcase(each.name, pattern) for pattern in patterns))
