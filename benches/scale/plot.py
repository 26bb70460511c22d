#!/usr/bin/env python3
"""Draws docs/pictures/scale.png from what `cargo bench --bench scale -- --json FILE` wrote. Both axes are logarithmic.

usage: plot.py FILE PICTURE.png      needs matplotlib
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"in one job": "#c1440e", "in jobs of 80": "#7a8b99"}
OVER_QUIC = {
    "rank_heartbeat_us": ("beat_coordinator_us", 1),
    "join_us": ("join_coordinator_ms", 1e3),
    "cpu_per_s": ("coordinator_cores", 1),
    "resident_mb": ("coordinator_mb", 1),
}
OF_COORDINATOR = [
    ("rank_heartbeat_us", "CPU for a rank's heartbeat, µs"),
    ("join_us", "CPU for a rank's join, µs"),
    ("cpu_per_s", "cores for all heartbeats, one a second each"),
    ("resident_mb", "memory, MB"),
]
OF_DATASET = [
    ("open_s", "CPU to open a manifest, s"),
    ("plan_s", "CPU to plan a job on it, s"),
    ("sample_us", "CPU to find a sample, µs"),
    ("memory_mb", "memory, MB, without the mapped manifest"),
]


def main(source: str, target: str) -> None:
    measured = json.loads(pathlib.Path(source).read_text())
    figure, axes = plt.subplots(2, len(OF_COORDINATOR), figsize=(15, 7.2))
    rows = measured["coordinator"]
    for axis, (key, title) in zip(axes[0], OF_COORDINATOR):
        for name, colour in COLOURS.items():
            of_kind = [row for row in rows if (row["jobs"] == 1) == (name == "in one job") or row["ranks"] < 80]
            draw(axis, [row["ranks"] for row in of_kind], [row[key] for row in of_kind], colour, name)
        network, (name, scale) = measured["network"], OVER_QUIC[key]
        draw(axis, [row["ranks"] for row in network], [row[name] * scale for row in network], "#2a6f97", "the process, over QUIC")
        label(axis, title, "ranks, 8 to a worker")
    rows = measured["dataset"]
    for axis, (key, title) in zip(axes[1], OF_DATASET):
        draw(axis, [row["shards"] for row in rows], [row[key] for row in rows], COLOURS["in one job"], "")
        label(axis, title, "shards, of 10,000 samples each")
        if key == "sample_us":
            axis.set_ylim(0.01, 1)
    axes[0][0].legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(target, dpi=100)


def draw(axis: plt.Axes, x: list[float], y: list[float], colour: str, name: str) -> None:
    axis.plot(x, y, color=colour, marker="o", markersize=4, label=name)


def label(axis: plt.Axes, title: str, of: str) -> None:
    axis.loglog()
    axis.set_title(title, fontsize=10)
    axis.set_xlabel(of, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)


if __name__ == "__main__":
    main(*sys.argv[1:])
