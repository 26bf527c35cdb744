"""Draws the records of `parsers.py`: what a chunk costs by the length of the argument, and how fast whole text is read.

    .venv-peers/bin/python benchmarks/plot.py results.jsonl docs/images/parsers.svg

Another engine's parser is drawn only where it read the call correctly.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

Records = list[dict[str, Any]]
COLOURS = {"toolspeak": "#0b7285", "vllm": "#e8590c", "sglang": "#9c36b5"}
NAMES = {"toolspeak": "toolspeak", "vllm": "vLLM", "sglang": "SGLang"}
SIZES = {1_000: "1 KB", 10_000: "10 KB", 100_000: "100 KB", 1_000_000: "1 MB", 10_000_000: "10 MB"}


def lines(records: Records, engine: str) -> dict[str, list[tuple[int, float]]]:
    """Returns microseconds per chunk by size, for each of an engine's parsers."""
    wrong = {record["parser"] for record in records if record["engine"] == engine and record.get("ok") is False}
    points: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for record in records:
        is_drawn = record["engine"] == engine and record["content"] == "code" and "us_per_chunk" in record
        if is_drawn and record["parser"] not in wrong:
            points[record["parser"]].append((record["size"], record["us_per_chunk"]))
    return points


def draw_chunks(axes: Axes, records: Records) -> None:
    for engine in reversed(COLOURS):
        for i, points in enumerate(lines(records, engine).values()):
            ours = engine == "toolspeak"
            axes.plot(
                [size for size, _ in points],
                [cost for _, cost in points],
                color=COLOURS[engine],
                marker="o",
                markersize=3,
                linewidth=1.6 if ours else 1.0,
                alpha=1.0 if ours else 0.6,
                zorder=3 if ours else 2,
                label=NAMES[engine] if not i else None,
            )
    floors = [record["floor_us"] for record in records if "floor_us" in record]
    axes.axhspan(min(floors), max(floors), color="#868e96", alpha=0.35, linewidth=0, label="floor of any Python parser")
    axes.set(xscale="log", yscale="log", xlabel="length of the argument (source code)", ylabel="CPU time a chunk (µs)")
    sizes = sorted({record["size"] for record in records})
    axes.set_xticks(sizes, [SIZES.get(size, f"{size}") for size in sizes])
    axes.minorticks_off()
    axes.grid(visible=True, axis="y", color="#dee2e6", linewidth=0.6)
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=4)
    axes.set_title("Streamed in 4-character chunks: a line a parser", fontsize=10)


def draw_whole(axes: Axes, records: Records) -> None:
    ours = [record for record in records if record["engine"] == "toolspeak"]
    largest = max(record["size"] for record in ours)
    names = list(dict.fromkeys(record["dialect"] for record in ours))
    for content, colour, shift in (("plain", "#66a9b6", -0.2), ("code", COLOURS["toolspeak"], 0.2)):
        speed = {r["dialect"]: r["mb_per_s"] for r in ours if r["content"] == content and r["size"] == largest}
        places = [i + shift for i, name in enumerate(names) if name in speed]
        axes.barh(places, [speed[name] for name in names if name in speed], 0.38, color=colour, label=content)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel="MB/s")
    axes.grid(visible=True, axis="x", color="#dee2e6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    axes.set_title(f"Whole text, an argument of {SIZES.get(largest, largest)}", fontsize=10)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("records", type=Path)
    options.add_argument("plot", type=Path)
    arguments = options.parse_args()
    records = [json.loads(line) for line in arguments.records.read_text(encoding="utf-8").splitlines()]
    # Text as text and the same names in every run: the file stays small, and its diffs are meaningful.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "toolspeak", "font.family": "sans-serif"})
    figure, (left_axes, right_axes) = plt.subplots(
        1, 2, figsize=(10, 4.6), layout="constrained", width_ratios=(1.25, 1)
    )
    draw_chunks(left_axes, records)
    draw_whole(right_axes, records)
    for axes in (left_axes, right_axes):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(arguments.plot, metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
