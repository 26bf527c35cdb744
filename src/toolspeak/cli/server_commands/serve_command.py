"""`toolspeak serve`: runs the gateway.

Most options have the name of a field of the gateway's `Settings`: `serve_command` collects them in `server` and passes
them on by name.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import click

from toolspeak.cli.configuration import configuration
from toolspeak.cli.options.command_options import prompt_listing_option
from toolspeak.cli.web_view import beside_gateway, gateway_view_options
from toolspeak.dialects import Section
from toolspeak.dialects.base import PromptListing
from toolspeak.errors import ConfigurationError
from toolspeak.gateway.settings.gateway_settings import Settings
from toolspeak.gateway.settings.settings_sources import Sources
from toolspeak.gateway.settings.upstream_settings import Upstream, checked_upstream, upstream_of
from toolspeak.project.configuration.config import resolved_model
from toolspeak.project.user_files.user_folders import data_folder
from toolspeak.providers import PROVIDERS
from toolspeak.sandbox.base import SandboxMode

_NOTHING_TO_SERVE = """\
the upstream is missing. For instance:
  toolspeak serve --upstream http://127.0.0.1:11434/v1 --dialect hermes
  toolspeak serve --upstream ollama:qwen3:8b
  toolspeak serve --config gateway.toml"""

_MISSING = "the gateway needs an extra: pip install 'toolspeak[gateway]' ({missing} is missing)"


@click.command("serve")
@click.option(
    "--upstream", metavar="URL|MODEL", help="The address of an OpenAI-compatible API, a provider, or provider:model."
)
@click.option(
    "--provider", metavar="NAME", help="The kind of server at --upstream URL: vllm, llamacpp, ollama, … (openai)."
)
@click.option("--model", metavar="NAME", help="The model's name at the upstream (default: as in the request).")
@click.option(
    "--dialect",
    default=None,
    metavar="NAME",
    help="How the model writes calls: a dialect, auto, or native (default: auto).",
)
@click.option(
    "--starts-in",
    type=click.Choice(["text", "reasoning"]),
    help="Where a reply starts (text). Even with `text`, the text before an end marker of reasoning without a start "
    "marker is reasoning.",
)
@prompt_listing_option
@click.option("--key-env", metavar="NAME", help="The environment variable that holds the upstream's key.")
@click.option("--repair", type=click.IntRange(0, 3), help="How often the model may rewrite a malformed call (0).")
@click.option("--hold-calls", is_flag=True, help="Send each call in one piece, once it is certain that it counts.")
@click.option(
    "--defer-tools",
    type=click.IntRange(0),
    metavar="COUNT",
    help="If a request has more tools than COUNT, show the model only their names, and find_tools to find the "
    "definitions (all definitions).",
)
@click.option(
    "--config", metavar="FILE", type=click.Path(dir_okay=False), help="A TOML file with several upstreams, by model."
)
@click.option(
    "--tools",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Run the tools of the MCP servers in FILE (mcp.json) in the gateway, and answer when the model is done.",
)
@click.option(
    "--approve-tools",
    metavar="all|NAME,…",
    help="Which of these tools may run although they do more than read, or leave the machine (none).",
)
@click.option(
    "--sandbox",
    envvar="TOOLSPEAK_SANDBOX",
    type=click.Choice(["required", "auto", "off"]),
    help="Whether MCP servers that are programs run in a sandbox: all whose entry does not refuse it (required), those "
    "whose entry asks for it (auto), or none (off).",
)
@click.option(
    "--responses",
    metavar="FILE|URL",
    help="Store responses, so that clients can use previous_response_id: a SQLite file, or postgresql://….",
)
@click.option("--host", help="The address to listen on (127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), help="The port to listen on (8665); 0 is any free port.")
@click.option(
    "--api-keys", metavar="FILE", type=click.Path(dir_okay=False), help="API keys or their digests, one per line."
)
@click.option("--workers", type=click.IntRange(1), help="The number of processes (1).")
@click.option(
    "--max-streams", "streams", type=click.IntRange(1), help="The most concurrent answers per process (1024)."
)
@click.option("--queue", type=click.IntRange(0), help="The most requests that wait for a free stream (256).")
@click.option(
    "--max-body", "body_bytes", type=click.IntRange(1), metavar="BYTES", help="The largest request (33554432)."
)
@click.option(
    "--drain",
    "drain_seconds",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="How long open streams may continue after SIGTERM (30).",
)
@click.option(
    "--cors",
    multiple=True,
    metavar="ORIGIN",
    help="Let web pages of this origin call the gateway (https://app.example); repeatable.",
)
@click.option("--log-content", is_flag=True, help="Log the content of requests and answers, too.")
@gateway_view_options
@click.option(
    "--check",
    "checks",
    is_flag=True,
    help="Do not serve: check the settings, send a request to each upstream, and print what each model gets and why.",
)
def serve_command(
    upstream: str | None,
    config: str | None,
    provider: str | None,
    model: str | None,
    dialect: str | None,
    starts_in: Section | None,
    listing: PromptListing | None,
    key_env: str | None,
    repair: int | None,
    hold_calls: bool,
    defer_tools: int | None,
    api_keys: str | None,
    checks: bool,
    tools: str | None,
    approve_tools: str | None,
    sandbox: SandboxMode | None,
    responses: str | None,
    shows_ui: bool,
    ui_host: str | None,
    ui_port: int | None,
    ui_keys: str | None,
    ui_names: tuple[str, ...],
    journal: str | None,
    **server: Any,
) -> None:
    """Serve any model on any server to OpenAI and Anthropic clients, with tool calls.

    Endpoints: /v1/chat/completions, /v1/responses, /v1/messages, /v1/models, /healthz, /readyz, /metrics. Clients' keys
    are in --api-keys FILE or in TOOLSPEAK_API_KEYS. With --ui the gateway can be watched in a browser, at an address of
    its own.
    """
    options = {
        "provider": provider,
        "model": model,
        "dialect": dialect,
        "starts_in": starts_in,
        "listing": listing,
        "key_variable": key_env,
        "repair": repair,
        "hold_calls": hold_calls or None,
        "defer_tools": defer_tools,
    }
    options = {name: value for name, value in options.items() if value is not None}
    server = {name: value for name, value in server.items() if value is not None and value is not False and value != ()}
    sources = Sources(
        _upstreams(upstream, config, options),
        config,
        server,
        api_keys,
        tools,
        approve_tools,
        sandbox=sandbox,
        responses=responses,
        pins=_pins_file(),
    )
    server_module = _server()
    if checks:
        _check(sources.load(os.environ, {}))
        return
    tracer = None
    if click.get_current_context().find_root().params.get("telemetry"):
        tracer = importlib.import_module("toolspeak.telemetry").gateway_telemetry  # as `_server`
    beside = beside_gateway(
        shows_ui=shows_ui, ui_host=ui_host, ui_port=ui_port, ui_keys=ui_keys, ui_names=ui_names, journal=journal
    )
    server_module.serve(sources, _print_address, tracer, beside)


def _pins_file() -> str:
    """Where the definitions of MCP tools are pinned, as `toolspeak mcp pin` does; "" where this user can store
    nothing."""
    folder = data_folder()
    existing = next((each for each in (folder, *folder.parents) if each.is_dir()), folder)
    return str(folder / "mcp-pins.json") if os.access(existing, os.W_OK) else ""


def _check(settings: Settings) -> None:
    """Prints what each model gets. Exits with 1 if a model cannot answer, or the gateway could not start."""
    checking = importlib.import_module("toolspeak.gateway.config_check")  # as `_server`
    report = asyncio.run(checking.check(settings, os.environ))
    findings = report.models
    for finding in findings:
        click.echo(f"{finding.model} → {finding.upstream}")
        for problem in finding.problems:
            note = " (another upstream of the model answers)" if finding.has_substitute else ""
            click.echo(f"  problem   {problem}{note}")
        for warning in finding.warnings:
            click.echo(f"  warning   {warning}")
        sentences = {"calls": finding.calls, "prompt": finding.prompt, "required": finding.required_call}
        for label, sentence in {**sentences, "window": finding.window}.items():
            if sentence:
                click.echo(f"  {label:<9} {sentence}")
    keys = f"{len(settings.keys)} API keys" if settings.keys else "no API keys"
    where = f"http://{settings.host}:{settings.port}"
    models = {finding.model for finding in findings if not finding.has_substitute}
    broken_models = {finding.model for finding in findings if finding.problems and not finding.has_substitute}
    state = f"{len(broken_models)} of {len(models)} do not answer" if broken_models else f"{len(models)} answer"
    sentences_by_kind = {"problem": report.problems, "warning": report.warnings, "note": report.notes}
    if any(sentences_by_kind.values()):
        click.echo("the gateway")
        for kind, sentences in sentences_by_kind.items():
            for sentence in sentences:
                click.echo(f"  {kind:<9} {sentence}")
    would = "could not serve" if report.problems else "would serve"
    click.echo(f"models: {state}. It {would} at {where} with {keys}.")
    if broken_models or report.problems:
        raise SystemExit(1)


def _print_address(address: str) -> None:
    with suppress(OSError):  # a closed standard error must not stop the gateway
        click.echo(f"toolspeak serves at {address}", err=True)


def _upstreams(upstream: str | None, config: str | None, options: dict[str, Any]) -> tuple[Upstream, ...]:
    """The upstreams of the command line; empty with --config."""
    if config is not None:
        if upstream is not None or options:
            option_names = ", ".join(["upstream", *options] if upstream is not None else options)
            raise ConfigurationError(f"use --config or {option_names}, not both: the file sets these for each model")
        return ()
    if upstream is None:
        raise ConfigurationError(_NOTHING_TO_SERVE)
    kind = options.pop("provider", None)
    if kind is not None and "://" not in upstream:
        raise ConfigurationError(
            "--provider is the kind of server at an address: write --upstream URL, or --upstream PROVIDER:MODEL alone"
        )
    if "://" not in upstream and upstream.partition(":")[0] not in PROVIDERS:
        upstream, options = _configured_upstream(upstream, options)
    upstream_settings = upstream_of(upstream, **options)
    return (checked_upstream(upstream_settings if kind is None else replace(upstream_settings, provider=kind)),)


def _configured_upstream(upstream: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The upstream for an alias or a provider of the user's configuration, with the options for it; unchanged for
    another name."""
    config = configuration(".", asks=False)
    target = resolved_model(config, upstream)
    name, _, model = target.partition(":")
    provider = config.providers.get(name)
    if provider is None:
        return target, dict(options)
    if provider.headers or provider.ca_file:
        raise ConfigurationError(
            f"the gateway sends no `headers` and reads no `ca_file` of the configured provider {name!r}: describe the "
            "upstream in a file for --config"
        )
    own = {"url": provider.base_url, "key_variable": provider.key_env, "options": provider.options, "model": model}
    own = {field: value for field, value in own.items() if value}
    return provider.api, {**own, **options}


def _server() -> Any:
    try:
        return importlib.import_module("toolspeak.gateway.server")  # not at the top: it needs an extra
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("toolspeak"):
            raise
        raise ConfigurationError(_MISSING.format(missing=error.name)) from None
