#!/usr/bin/env python3
"""Draws the plot of the README from the table "What the comparison gave" in docs/guide/benchmarks.md.

usage: readme_plot.py [--check]

Writes docs/pictures/dataloader.svg. With `--check` it writes nothing, and fails if the picture does not match the
table. It reads the table of the page, so that each number is written in one place only, and needs only the standard
library.
"""

from __future__ import annotations

import pathlib
import sys
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/guide/benchmarks.md"
PICTURE = ROOT / "docs/pictures/dataloader.svg"
#: The loader's name in the table, its name in the picture, and whether it is ours.
LOADERS = [
    ("spdl-cluster, crop-ready shards, worker and local queue", "spdl-cluster, crop-ready JPEGs", True),
    ("spdl-cluster, plain shards, worker and local queue", "spdl-cluster, plain JPEGs", True),
    ("PyTorch DataLoader, torchvision's decoder", "DataLoader, torchvision", False),
    ("PyTorch DataLoader, PIL", "DataLoader, PIL", False),
]
#: A column of the table, its title in the picture, and which direction is better.
PANELS = [
    ("images/s", "images/s", "more is better"),
    ("CPU s / 1,000", "CPU s for 1,000 images", "less is better"),
    ("peak MB", "peak memory, MB", "less is better"),
]
NOTE = "2 cores, JPEGs of 500x375 in the page cache, random resized crop to 224 pixels and flip, batches of 64. Conditions: docs/guide/benchmarks.md"
STYLE = """
    .card { fill: #ffffff; stroke: #d0d7de }
    .text { fill: #1f2328 } .note { fill: #57606a; font-size: 11.5px } .title { font-weight: 600 }
    .ours { fill: #c1440e } .theirs { fill: #8595a3 } .axis { stroke: #afb8c1 }
    @media (prefers-color-scheme: dark) {
      .card { fill: #0d1117; stroke: #30363d }
      .text { fill: #e6edf3 } .note { fill: #9198a1 }
      .ours { fill: #e8703a } .theirs { fill: #768390 } .axis { stroke: #484f58 }
    }
  """
WIDTH, NAMES, BAR, STEP, TOP = 900, 218, 22, 34, 74


def figures() -> dict[str, dict[str, str]]:
    """Returns the rows of the first table of the page's comparison, by loader."""
    section = PAGE.read_text(encoding="utf-8").split("### What the comparison gave\n", 1)[1]
    rows: list[list[str]] = []
    for line in section.splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    head, _, *body = rows
    return {row[0]: dict(zip(head[1:], row[1:])) for row in body}


def draw(table: dict[str, dict[str, str]]) -> str:
    """Returns the picture as SVG."""
    height = TOP + STEP * len(LOADERS) + 40
    room = (WIDTH - NAMES - 24) / len(PANELS)
    parts = []

    def text(x: float, y: float, words: str, kind: str = "text", anchor: str = "start") -> None:
        parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>')

    for row, (_, name, _) in enumerate(LOADERS):
        text(NAMES - 10, TOP + STEP * row + 16, name, anchor="end")
    for panel, (column, title, better) in enumerate(PANELS):
        left = NAMES + panel * room
        text(left, 34, title, "text title")
        text(left, 52, better, "note")
        values = [float(table[loader][column].replace(",", "")) for loader, _, _ in LOADERS]
        for row, (loader, _, ours) in enumerate(LOADERS):
            y, length = TOP + STEP * row, values[row] / max(values) * (room - 74)
            kind = "ours" if ours else "theirs"
            parts.append(f'<rect class="{kind}" x="{left:.1f}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>')
            text(left + length + 6, y + 16, table[loader][column])
        bottom = TOP + STEP * len(LOADERS) - 6
        parts.append(f'<path class="axis" d="M{left:.1f} {TOP - 6}V{bottom}"/>')
    text(WIDTH / 2, height - 16, NOTE, "note", "middle")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img"\n'
        "  font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\" font-size=\"13\">\n"
        "  <title>spdl-cluster beside the PyTorch DataLoader</title>\n"
        f"  <style>{STYLE}</style>\n"
        f'  <rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>\n'
        + "".join(f"  {part}\n" for part in parts)
        + "</svg>\n"
    )


def main(*arguments: str) -> None:
    picture = draw(figures())
    if arguments == ("--check",):
        if PICTURE.read_text(encoding="utf-8") != picture:
            sys.exit(f"{PICTURE.relative_to(ROOT)} is not what {PAGE.relative_to(ROOT)} gives: run {pathlib.Path(__file__).relative_to(ROOT)}")
    elif arguments:
        sys.exit(__doc__)
    else:
        PICTURE.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
