"""The settings of a new run: what the person chose for it, and the configuration for the rest."""

from __future__ import annotations

import datetime
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypedDict, Unpack

import msgspec

from toolspeak.data.messages import JSON
from toolspeak.data.values import evolve
from toolspeak.project.configuration.config import Config, resolved_model
from toolspeak.project.own_tools import absolute_place
from toolspeak.project.run_setup import Setup
from toolspeak.project.surroundings import surroundings_text
from toolspeak.providers.configured_providers import ConfiguredProvider


class SetupChoices(TypedDict, total=False):
    """What a person chose for one run: fields of `Setup`. A field that is missing is that of the configuration."""

    model: str
    dialect: str
    approve: str
    schedule: str
    starts_in: str
    listing: str | None
    repair: bool
    rules: str
    window: int | None
    prices: str
    mcp: str
    env: tuple[str, ...]
    tools: tuple[str, ...]
    defer: str
    memory: bool
    code_mode: bool
    sandbox: str
    allow_net: tuple[str, ...]
    sandbox_write: tuple[str, ...]
    sandbox_read: tuple[str, ...]
    unasked_reads: bool
    web: bool
    search: str
    web_allow: tuple[str, ...]
    robots: bool
    after_web: str


MODEL_OPTIONS = ("model", "dialect", "starts_in", "listing", "repair")
"""The settings that belong to the model: by default a session keeps those of its last run."""


def configured_setup(config: Config, workspace: str, **choices: Unpack[SetupChoices]) -> Setup:
    """The settings of a run in a folder. A model is resolved: an alias becomes its model string.

    `mcp` takes the place of all configured MCP servers. The variables of `env`, the tools of `tools`, the hosts and
    paths of the sandbox and the hosts of `web_allow` come on top of the configured ones, and the prices of the file
    `prices` come before them.
    """
    setup = Setup(
        model=resolved_model(config, choices.get("model") or config.model),
        dialect=config.dialect,
        workspace=workspace,
        approve=config.approve,
        schedule=config.schedule,
        starts_in=config.starts_in,
        listing=config.listing,
        repair="yes" if choices.get("repair", config.repair) else "no",
        rules=config.rules,
        window=config.window,
        prices=config.prices_file,
        mcp=config.mcp,
        env=" ".join(dict.fromkeys((*config.env, *choices.get("env", ())))),
        aliases=config.aliases,
        providers=config.providers,
        instructions=config.instructions,
        surroundings=surroundings_text(workspace, f"{datetime.date.today():%A, %Y-%m-%d}")
        if config.surroundings
        else "",
        mcp_servers=config.mcp_servers,
        price_table=config.prices,
        theme=config.theme,
        hooks=config.hooks,
        tools=(*config.tools, *(absolute_place(place, os.getcwd()) for place in choices.get("tools", ()))),
        tool_folders=tuple(filter(None, (os.getcwd() if choices.get("tools") else "", config.project_folder))),
        defer=config.defer,
        memory="yes" if choices.get("memory", config.memory) else "no",
        code_mode="yes" if choices.get("code_mode", config.code_mode) else "no",
        sandbox=config.sandbox.mode or "",
        allow_net=(*config.sandbox.allow_net, *choices.get("allow_net", ())),
        sandbox_write=(*config.sandbox.writable, *map(full_path, choices.get("sandbox_write", ()))),
        sandbox_read=(*config.sandbox.readable, *map(full_path, choices.get("sandbox_read", ()))),
        unasked_reads="yes" if choices.get("unasked_reads", config.sandbox.unasked_reads) else "no",
        web="yes" if choices.get("web", config.web.fetch) else "no",
        search=config.web.search,
        web_allow=(*config.web.allow, *choices.get("web_allow", ())),
        robots="yes" if choices.get("robots", config.web.robots) else "no",
        after_web=config.web.after or "",
    )
    merged_names = (
        "model",
        "repair",
        "env",
        "tools",
        "allow_net",
        "sandbox_write",
        "sandbox_read",
        "unasked_reads",
        "memory",
    )
    merged_names = (*merged_names, "web", "web_allow", "robots", "code_mode")
    changes: dict[str, Any] = {name: value for name, value in choices.items() if name not in merged_names}
    for name in ("rules", "prices", "mcp"):
        if changes.get(name):
            changes[name] = str(Path(changes[name]).resolve())
    if changes.get("mcp"):
        changes["mcp_servers"] = {}
    return evolve(setup, **changes)


def full_path(path: str) -> str:
    """The absolute path: a run may be resumed from another folder."""
    return os.path.abspath(os.path.expanduser(path))


def with_model_of(setup: Setup, before: Mapping[str, JSON], choices: Collection[str]) -> Setup:
    """The settings with the model of an earlier run and its options (`MODEL_OPTIONS`), except those in `choices`.
    `before` are the earlier run's settings as JSON, empty for a run of another program."""
    if "model" in choices or not before.get("model"):
        return setup
    earlier = {name: before[name] for name in MODEL_OPTIONS if name not in choices and before.get(name)}
    providers = msgspec.convert(before.get("providers", {}), dict[str, ConfiguredProvider])
    return evolve(setup, **earlier, providers={**providers, **setup.providers})
