"""Draws a summary as a PNG. Usage: plot.py SUMMARY.json PICTURE.png; runs in an environment with matplotlib."""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OURS, THEIRS = "#c1440e", "#7a8b99"
PANELS = [
    ("images_per_s", "images/s", True),
    ("cpu_s_per_1000", "CPU seconds per 1,000 images", False),
    ("peak_mb", "peak memory, MB", False),
]


def main(source: str, target: str) -> None:
    with open(source) as file:
        report = json.load(file)
    loaders = {name: entry for name, entry in report["loaders"].items() if "error" not in entry}
    names = list(loaders)[::-1]
    figure, axes = plt.subplots(1, len(PANELS), figsize=(15, 1.2 + 0.36 * len(names)), sharey=True)
    for axis, (key, title, more_is_better) in zip(axes, PANELS):
        values = [loaders[name][key] for name in names]
        colours = [OURS if loaders[name]["ours"] else THEIRS for name in names]
        bars = axis.barh([loaders[name]["title"] for name in names], values, color=colours)
        axis.bar_label(
            bars, [f"{value:,.2f}" if value < 10 else f"{value:,.0f}" for value in values], padding=3, fontsize=8
        )
        axis.set_title(f"{title} ({'more' if more_is_better else 'less'} is better)", fontsize=10)
        axis.set_xlim(0, max(values) * 1.18)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    figure.suptitle(report["setting"], fontsize=10)
    figure.tight_layout()
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
