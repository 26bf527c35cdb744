"""Writes pictures of runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from toolspeak.ui.lanes import BatchLanes, as_svg


def write_timeline(path: str, lanes: Sequence[BatchLanes], title: str) -> None:
    """Writes the picture of a run's batches."""
    write_picture(path, as_svg(lanes, title), "--timeline")


def write_picture(path: str, picture: str, option: str) -> None:
    """Writes an SVG. If that fails, prints a message: the run must not fail because of its picture."""
    try:
        Path(path).write_text(picture, encoding="utf-8", errors="replace")
    except OSError as error:
        print(f"toolspeak: {option} {path} was not written: {error}", file=sys.stderr)
    else:
        click.echo(f"toolspeak: the timeline is in {path}", err=True)
