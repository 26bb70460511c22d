"""Pictures with objects: photographs, the class of each pixel as a PNG with a palette, and boxes in the form of COCO."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy
from PIL import Image, ImageDraw

PHOTOGRAPHS = pathlib.Path(__file__).parents[2] / "assets/jpegs"
#: The categories' numbers in COCO's annotations.
CATEGORIES = [1, 3, 18]


def write_scenes(folder: pathlib.Path, count: int) -> pathlib.Path:
    """Writes scenes of 160 to 240 pixels a side: `N.png`, its classes `N.seg.png`, and `instances.json` for all. Each has one to
    four ellipses of the colour of their category. Returns the path of `instances.json`."""
    random = numpy.random.default_rng(5)
    photographs = [Image.open(PHOTOGRAPHS / name).convert("RGB") for name in ("chelsea.jpg", "astronaut_444.jpg")]
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        width, height = (int(side) for side in random.integers(160, 241, 2))
        picture = photographs[number % len(photographs)].resize((width, height))
        classes = Image.new("P", (width, height))
        classes.putpalette([0, 0, 0, 230, 30, 30, 30, 230, 30, 40, 40, 240])
        for _ in range(int(random.integers(1, 5))):
            kind = int(random.integers(len(CATEGORIES)))
            left, top = random.uniform(0, width * 0.6), random.uniform(0, height * 0.6)
            box = [left, top, random.uniform(20, width - left), random.uniform(20, height - top)]
            corners = [box[0], box[1], box[0] + box[2], box[1] + box[3]]
            colour = [(230, 30, 30), (30, 230, 30), (40, 40, 240)][kind]
            ImageDraw.Draw(picture).ellipse(corners, fill=colour)
            ImageDraw.Draw(classes).ellipse(corners, fill=kind + 1)
            annotation = {"id": len(annotations), "image_id": 1000 + number, "category_id": CATEGORIES[kind], "bbox": box}
            annotations.append({**annotation, "iscrowd": 0, "area": box[2] * box[3], "segmentation": [[1, 2, 3]]})
        picture.save(folder / f"{number:04}.png")
        classes.save(folder / f"{number:04}.seg.png")
        images.append({"id": 1000 + number, "file_name": f"{number:04}.png", "width": width, "height": height})
    categories = [{"id": number, "name": f"kind-{number}"} for number in CATEGORIES]
    path = folder / "instances.json"
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return path
