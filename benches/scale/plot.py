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
PANELS = [
    ("rank_heartbeat_us", "CPU for a rank's heartbeat, µs"),
    ("join_us", "CPU for a rank's join, µs"),
    ("cpu_per_s", "cores for all heartbeats, one a second each"),
    ("resident_mb", "memory, MB"),
]


def main(source: str, target: str) -> None:
    rows = json.loads(pathlib.Path(source).read_text())["coordinator"]
    figure, axes = plt.subplots(1, len(PANELS), figsize=(15, 3.6))
    for axis, (key, title) in zip(axes, PANELS):
        for name, colour in COLOURS.items():
            of_kind = [row for row in rows if (row["jobs"] == 1) == (name == "in one job") or row["ranks"] < 80]
            ranks = [row["ranks"] for row in of_kind]
            axis.plot(ranks, [row[key] for row in of_kind], color=colour, marker="o", markersize=4, label=name)
        axis.loglog()
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("ranks, 8 to a worker", fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    axes[0].legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(target, dpi=100)


if __name__ == "__main__":
    main(*sys.argv[1:])
