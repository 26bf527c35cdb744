"""Draws the records of `measure.py throughput`: steps a second by the number of workers, for each engine and the floors
of both databases, and the CPU time of a step with two workers.

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
WORKERS = 2  # of the CPU times
NAMES = {"embedded-sqlite": "embedded, SQLite", "embedded": "embedded, PostgreSQL"}


def draw_speeds(axes: Axes, records: list[dict[str, Any]], steps: int) -> None:
    for engine, colour in COLOURS.items():
        name = NAMES.get(engine, engine)
        rows = [each for each in records if each["engine"] == engine and each["steps"] == steps]
        rows.sort(key=lambda each: each["workers"])
        axes.plot(*_points(rows), "-o", color=colour, label=name, ms=4)
        if engine in NAMES:
            floors = {each["workers"]: each for each in reversed(records) if each["engine"] == f"floor of {engine}"}
            axes.plot(*_points([floors[each] for each in sorted(floors)]), ":", color=colour, label=f"floor of {name}")
    axes.set(xscale="log", yscale="log", xlabel="workers", title=f"steps a second, runs of {steps} steps")
    axes.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
    axes.minorticks_off()


def _points(rows: list[dict[str, Any]]) -> tuple[list[int], list[float]]:
    return [each["workers"] for each in rows], [each["calls_a_second"] for each in rows]


def draw_cpu(axes: Axes, records: list[dict[str, Any]]) -> None:
    rows = [
        (engine, steps, each)
        for engine in COLOURS
        for steps in sorted({each["steps"] for each in records if "steps" in each})
        for each in records
        if (each["engine"], each.get("steps"), each["workers"]) == (engine, steps, WORKERS)
    ]
    labels = [f"{NAMES.get(engine, engine)}, {steps} steps" for engine, steps, _ in rows]
    own, server = ([each.get(key, 0.0) for _, _, each in rows] for key in ("cpu_ms", "db_cpu_ms"))
    axes.barh(labels, own, color=[COLOURS[engine] for engine, _, _ in rows], label="workers")
    axes.barh(labels, server, left=own, color="#ced4da", label="PostgreSQL")
    axes.invert_yaxis()
    axes.set(xlabel=f"ms of CPU for a step, with {WORKERS} workers (grey: PostgreSQL)", title="CPU time")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("records", type=Path)
    options.add_argument("plot", type=Path)
    arguments = options.parse_args()
    records: list[dict[str, Any]] = [json.loads(line) for line in arguments.records.read_text("utf-8").splitlines()]
    steps = min(each["steps"] for each in records if "steps" in each)
    # Text as text and the same names at every run: the file stays small, and its changes mean something.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "toolspeak", "font.family": "sans-serif"})
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    draw_speeds(panels[0], records, steps)
    draw_cpu(panels[1], records)
    for axes in panels:
        axes.grid(visible=True, color="#dee2e6", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    lines = panels[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", fontsize=8, frameon=False, ncols=4)
    figure.savefig(
        arguments.plot, metadata={"Date": None} if arguments.plot.suffix == ".svg" else None, facecolor="white"
    )


if __name__ == "__main__":
    main()
