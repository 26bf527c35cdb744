"""`toolspeak run`: does a task with a model and the built-in tools, while a person watches."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import click

from toolspeak.agent import Agent, Cassette, Run, Session
from toolspeak.agent.storage.sessions import WhenOpen, new_session_id
from toolspeak.cli.attended_run import Display, open_streams, work, work_on_input
from toolspeak.cli.configuration import choices_of, configuration
from toolspeak.cli.json_input import JsonInput
from toolspeak.cli.options.command_options import (
    active_file_option,
    env_option,
    prompt_listing_option,
    read_reply,
    repair_option,
    starts_in_option,
)
from toolspeak.cli.options.journal_option import journal_of, journal_option
from toolspeak.cli.options.run_options import (
    approve_option,
    chosen_limits,
    code_mode_option,
    continue_option,
    defer_option,
    dialect_choice_option,
    limit_options,
    mcp_option,
    memory_option,
    model_option,
    own_tools_option,
    prices_option,
    rules_option,
    session_option,
    thoughts_option,
    window_option,
    workspace_option,
)
from toolspeak.cli.options.sandbox_options import sandbox_options
from toolspeak.cli.options.web_options import web_options
from toolspeak.cli.piped_text import piped_text
from toolspeak.cli.signals import run_to_end
from toolspeak.data.events import Limits
from toolspeak.data.messages import Message, TextPart
from toolspeak.errors import ConfigurationError
from toolspeak.journal import Journal
from toolspeak.project.configuration.config import Config
from toolspeak.project.configuration.configured_setup import MODEL_OPTIONS, configured_setup, with_model_of
from toolspeak.project.recorded_setup import setup_of
from toolspeak.project.run_lookup import find_session, last_session_of
from toolspeak.project.run_setup import Setup, with_absolute_path

_NO_MODEL = """\
the model is missing. Write --model openai:NAME, or set TOOLSPEAK_MODEL, or write model = "openai:NAME" into the file
that `toolspeak config edit` opens. Set the server's address or key too:
  OPENAI_API_KEY=… toolspeak run --model openai:gpt-4o …
  toolspeak run --model ollama:qwen3:8b …     (at OLLAMA_HOST, by default http://127.0.0.1:11434)
`toolspeak demo` needs no model."""


@click.command("run")
@click.argument("task", required=False)
@model_option
@dialect_choice_option
@workspace_option
@env_option
@active_file_option
@approve_option
@rules_option
@sandbox_options
@web_options
@click.option(
    "--schedule",
    type=click.Choice(["serializable", "parallel", "sequential", "native"]),
    default="serializable",
    help="How the calls of one turn run (default: serializable, concurrently unless their effects conflict).",
)
@limit_options
@prices_option
@window_option
@mcp_option
@own_tools_option
@defer_option
@memory_option
@code_mode_option
@starts_in_option
@prompt_listing_option
@repair_option
@click.option(
    "--timeline",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True),
    help="Draw an SVG picture of when each call ran, and which calls it waited for.",
)
@click.option(
    "--record",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Record the model's turns, the tools' results and your answers for --replay. `toolspeak resume` continues the "
    "recording.",
)
@click.option(
    "--replay",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Replay a recording: without a model, without running tools or asking for approval, and without a journal "
    "unless --journal names one.",
)
@journal_option
@session_option
@continue_option
@click.option(
    "--close",
    is_flag=True,
    help="Close the session's last run if it waits for approval or is suspended: none of its calls runs later.",
)
@thoughts_option
@click.option("--json", "as_json", is_flag=True, help="Print the journal's records, one JSON object per line.")
@click.option("--deltas", is_flag=True, help="With --json: print the pieces of each turn too, as they come.")
@click.option(
    "--input",
    "input_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="With --json: read lines of JSON during the run, from FILE, a FIFO, or standard input (`-`): decisions,"
    " messages, further tasks. The command ends with the input; TASK may be left out.",
)
@click.pass_context
def run_command(
    context: click.Context,
    task: str | None,
    workspace: str,
    active_file: str | None,
    record: str | None,
    replay: str | None,
    journal: str | None,
    session: str | None,
    continue_last: bool,
    close: bool,
    thoughts: bool,
    as_json: bool,
    deltas: bool,
    input_file: str | None,
    timeline: str | None,
    **_of_setup: object,
) -> None:
    """Do TASK with a model and the built-in tools. Piped text is added to TASK: `git diff | toolspeak run "explain
    this"`. Without TASK, and with `-`, the piped text is the task.

    The answer goes to standard output. So does the run's progress if standard output is a terminal; else it goes to
    standard error. Ctrl-C ends the run and everything it started; `toolspeak resume` continues it.

    An option that you leave out has the value of your configuration, if it has one (`toolspeak config` shows it).
    """
    if record and replay:
        raise ConfigurationError(
            "use --record or --replay, not both: a replay uses no model, so there is nothing to record"
        )
    cassette = Cassette.replay(replay, pauses=False) if replay else Cassette.record(record) if record else None
    if replay and cassette is not None:
        journal = journal or "none"
    if session is not None and not session.strip():
        raise ConfigurationError(
            "--session is empty: name a session (`toolspeak sessions` lists them), or omit the option"
        )
    if task == "-" and input_file == "-":
        raise ConfigurationError('--input reads standard input: leave TASK out, and send it as a line {"task": …}')
    pipe_text = "" if input_file or task == "-" else piped_text()
    text = read_reply() if task == "-" else pipe_text or None if task is None else task
    if text is None and not input_file:
        raise ConfigurationError("TASK is missing: write what to do")
    continues = bool(session) or continue_last
    choices = choices_of(context)  # the options that are no parameters here
    explicit = {name for name in MODEL_OPTIONS if name in choices}
    config = Config() if replay else configuration(workspace)
    if replay and cassette is not None:
        choices["model"] = cassette.model
    setup = configured_setup(config, workspace, **choices)
    if not setup.model and not continues:
        raise ConfigurationError(_NO_MODEL)
    if (deltas or input_file) and not as_json:
        raise ConfigurationError("--deltas and --input belong to --json: a program reads and writes lines of JSON")
    if input_file and (cassette is not None or timeline):
        raise ConfigurationError("--input does not go with --record, --replay and --timeline: these are for one run")
    if text is not None and not text.strip():
        raise ConfigurationError("the task is empty: write what to do")
    open_streams()
    limits = replace(config.limits, **chosen_limits(context.params))
    setup = replace(
        setup,
        record="" if record is None else str(Path(record).resolve()),
        active_file=active_file or "",
        recording="" if cassette is None else cassette.id,
        # A recording is played in any folder, on any day.
        surroundings=setup.surroundings if cassette is None else "",
    )
    if close and not continues:
        raise ConfigurationError("--close needs --session or -c: it closes that session's last run")
    display, when_open = Display(as_json, timeline, thoughts, deltas), "close" if close else "refuse"
    run_journal = journal_of(journal)
    first: str | Message | None = text  # a program's input goes on with further ones
    if text is not None and not input_file:
        beside = (TextPart(f"\n\n[Standard input]\n{pipe_text}"),) if task and pipe_text.strip() else ()
        first = Message("user", (TextPart(text), *beside))
    work_of_run = _run(
        first, setup, explicit, limits, run_journal, session, continue_last, when_open, display, cassette, input_file
    )
    sys.exit(run_to_end(work_of_run))


async def _run(
    task: str | Message | None,
    setup: Setup,
    explicit: Collection[str],
    limits: Limits,
    journal: Journal,
    session: str | None,
    continue_last: bool,
    when_open: WhenOpen,
    display: Display,
    cassette: Cassette | None,
    input_file: str | None,
) -> int:
    async def begin(agent: Agent, task: str | Message) -> Run:
        # A replay cannot be resumed, since it has no model: without a set-up in its records, `resume` refuses it.
        setup_json = {} if cassette is not None and cassette.replays else setup.as_json()
        return await Session(agent, session_id).start(task, when_open=when_open, limits=limits, setup=setup_json)

    try:
        session_id = new_session_id()
        if session or continue_last:
            info = await (find_session(journal, session) if session else last_session_of(journal, setup.workspace))
            session_id = info.session_id
            if cassette is None or not cassette.replays:
                setup = with_model_of(setup, await setup_of(journal, info), explicit)
        if not setup.model:
            raise ConfigurationError(_NO_MODEL)
        if cassette is not None and not cassette.replays:
            setup = replace(setup, model=with_absolute_path(setup.model))  # `resume` continues the recording
        if not isinstance(task, Message):
            return await work_on_input(setup, journal, begin, display, JsonInput(input_file or "-"), task)
        return await work(setup, journal, lambda agent: begin(agent, task), display, cassette=cassette)
    finally:
        await journal.aclose()
