"""Draws the records of `loop.py`: what a step, a piece of a stream and a model call of many runs cost, by runtime.

.venv-loops/bin/python benchmarks/plot_loop.py results.jsonl docs/images/loop.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

OURS, FLOOR = "#0b7285", "#868e96"
OTHERS = "#e8590c"
NAMES = {"floor": "floor (careful loop)"}
PANELS = {
    "step, of 100": ("step", "A step of a run of 100: turn, call, result"),
    "step, of 1,000": ("late", "A step near the end of a run of 1,000"),
    "model call, 1,000 runs": ("call", "A model call, in 1,000 runs at once"),
    "delta of text": ("delta", "A piece of text through to the user"),
}
"""The metrics that are drawn, each with the key of its figure and its title."""


def draw(axes: Axes, costs: dict[str, float], title: str, order: list[str], *, named: bool) -> None:
    places = {name: i for i, name in enumerate(order) if name in costs}
    colours = [OURS if name == "toolspeak" else FLOOR if name == "floor" else OTHERS for name in places]
    # Points instead of bars: on a logarithmic axis, the length of a bar has no meaning.
    axes.hlines(list(places.values()), min(costs.values()) / 2, [costs[name] for name in places], "#ced4da", lw=0.8)
    axes.scatter([costs[name] for name in places], list(places.values()), 30, colours, zorder=3)
    for name, place in places.items():
        cost = costs[name]
        axes.annotate(
            f"{cost:,.0f}" if cost >= 10 else f"{cost:.1f}",
            (cost, place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )
    axes.set_yticks(range(len(order)), [NAMES.get(name, name) for name in order] if named else [], fontsize=8)
    axes.invert_yaxis()
    axes.set(xscale="log", xlim=(min(costs.values()) / 2, max(costs.values()) * 6))
    axes.set_title(title, fontsize=9)
    axes.tick_params(axis="x", labelsize=7)
    axes.minorticks_off()
    axes.grid(visible=True, axis="x", color="#dee2e6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("records", type=Path)
    options.add_argument("plot", type=Path)
    arguments = options.parse_args()
    records: list[dict[str, Any]] = [json.loads(line) for line in arguments.records.read_text("utf-8").splitlines()]
    figures = {
        metric: {record["subject"]: record[key] for record in records if record["metric"] == metric}
        for metric, (key, _) in PANELS.items()
    }
    order = sorted(figures["step, of 100"], key=lambda name: figures["step, of 100"][name])
    # Text as text and the same names in every run: the file stays small, and its diffs are meaningful.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "toolspeak", "font.family": "sans-serif"})
    figure, panels = plt.subplots(2, 2, figsize=(10, 5), layout="constrained")
    for i, (axes, metric) in enumerate(zip(panels.flat, PANELS, strict=True)):
        draw(axes, figures[metric], PANELS[metric][1], order, named=i % 2 == 0)
    figure.supxlabel("CPU time (µs, logarithmic)", fontsize=9)
    figure.savefig(
        arguments.plot, metadata={"Date": None} if arguments.plot.suffix == ".svg" else None, facecolor="white"
    )


if __name__ == "__main__":
    main()
