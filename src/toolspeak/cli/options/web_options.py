"""The options for what a run may read on the web, and what it may change after that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])


def web_options(command: _CommandT) -> _CommandT:
    """The parameters `web`, `search`, `web_allow`, `robots` and `after_web`."""
    for option in (
        after_web_option,
        click.option("--robots", is_flag=True, help="Let robots.txt decide what `fetch` may read."),
        click.option(
            "--web-allow",
            multiple=True,
            metavar="HOST:PORT",
            help="Let `fetch` reach this host at a private address: wiki.corp:443, 127.0.0.1:8000. Repeatable.",
        ),
        click.option(
            "--search",
            metavar="PROVIDER",
            help="Add `search`, which searches the web: searxng:URL of your SearXNG server, or brave (BRAVE_API_KEY).",
        ),
        click.option("--web", is_flag=True, help="Add `fetch`, which reads web pages (extra web)."),
    ):
        command = option(command)
    return command


def after_web_option(command: _CommandT) -> _CommandT:
    """The parameter `after_web`."""
    return click.option(
        "--after-web",
        type=click.Choice(["ask", "refuse", "allow"]),
        default=None,
        help="What happens to a call that changes something, or reads a URL that the model made up, once the run has"
        " read the web. ask: you decide, even if something else approves it (the default if nobody can be asked: then"
        " it is refused); refuse: it is refused; allow: nothing special (the default at a terminal).",
    )(command)
