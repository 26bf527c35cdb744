"""Draws the records of `measure.py throughput`: steps a second by the number of workers, for each engine and its floor.

.venv-loops/bin/python benchmarks/scale/plot.py results.jsonl docs/images/scale.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

COLOURS = {
    "embedded-sqlite": "#0b7285",
    "embedded": "#1971c2",
    "queue": "#e8590c",
    "restate": "#5f3dc4",
    "dbos": "#2b8a3e",
}
NAMES = {"embedded-sqlite": "embedded, SQLite", "embedded": "embedded, PostgreSQL"}


def draw(axes: Axes, records: list[dict[str, Any]], steps: int) -> None:
    for engine, colour in COLOURS.items():
        for subject, style in ((engine, "-o"), (f"floor of {engine}", ":")):
            rows = [each for each in records if each["engine"] == subject and each.get("steps", steps) == steps]
            if rows:
                rows.sort(key=lambda each: each["workers"])
                label = NAMES.get(engine, engine) if style == "-o" else f"floor of {NAMES.get(engine, engine)}"
                workers = [each["workers"] for each in rows]
                axes.plot(workers, [each["calls_a_second"] for each in rows], style, color=colour, label=label, ms=4)
    axes.set(xscale="log", yscale="log", xlabel="workers", title=f"runs of {steps} steps")
    axes.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
    axes.minorticks_off()
    axes.grid(visible=True, color="#dee2e6", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("records", type=Path)
    options.add_argument("plot", type=Path)
    chosen = options.parse_args()
    records: list[dict[str, Any]] = [json.loads(line) for line in chosen.records.read_text("utf-8").splitlines()]
    counts = sorted({each["steps"] for each in records if "steps" in each})
    # Text as text and the same names at every run: the file stays small, and its changes mean something.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "toolspeak", "font.family": "sans-serif"})
    figure, panels = plt.subplots(1, len(counts), figsize=(10, 4), layout="constrained", squeeze=False)
    for axes, steps in zip(panels.flat, counts, strict=True):
        draw(axes, records, steps)
    panels[0][0].set_ylabel("steps a second (logarithmic)")
    panels[0][0].legend(fontsize=7, frameon=False)
    figure.savefig(chosen.plot, metadata={"Date": None} if chosen.plot.suffix == ".svg" else None, facecolor="white")


if __name__ == "__main__":
    main()
