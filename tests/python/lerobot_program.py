"""Writes a dataset with LeRobot's own writer, and reads it with LeRobot's own reader: `lerobot_program.py FOLDER ITEMS DELTAS CODEC`.

`DELTAS` is JSON: the frames of each feature that a sample has. All samples are saved to the file `ITEMS`. With `CODEC` `none`, no video is written.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot_files import CAMERAS, FPS, OWN_LENGTHS, PATCH, SIZE

TASKS = ["push the block", "lift the lid"]
#: Files of so many bytes of a camera are followed by another one: those of some episodes.
FILE_MB = 0.006


def picture(draw: numpy.random.Generator) -> Any:
    """Returns a picture of patches that no other one has."""
    patches = draw.integers(0, 255, (SIZE[0] // PATCH, SIZE[1] // PATCH, 3)).astype("uint8")
    return patches.repeat(PATCH, axis=0).repeat(PATCH, axis=1)


def main(folder: str, items: str, deltas: str, codec: str) -> None:
    shapes = {"observation.state": (4,), "action": (3,), "grid": (2, 3)}
    features: dict[str, Any] = {name: {"dtype": "float32", "shape": shape, "names": None} for name, shape in shapes.items()}
    names = ["height", "width", "channels"]
    features["observation.image"] = {"dtype": "image", "shape": (24, 32, 3), "names": names}
    cameras = CAMERAS if codec != "none" else []
    features |= {name: {"dtype": "video", "shape": (*SIZE, 3), "names": names} for name in cameras}
    chosen: dict[str, Any] = {"vcodec": codec} if cameras else {}
    written = LeRobotDataset.create("ours/robot", fps=FPS, features=features, root=folder, use_videos=bool(cameras), **chosen)
    written.meta.update_chunk_settings(video_files_size_in_mb=FILE_MB)  # type: ignore[arg-type]
    draw = numpy.random.default_rng(0)
    for number, length in enumerate(OWN_LENGTHS):
        for frame in range(length):
            arrays = {name: draw.normal(size=shape).astype("float32") for name, shape in shapes.items()}
            pictures = {name: picture(draw) for name in cameras}
            noise = draw.integers(0, 255, (24, 32, 3)).astype("uint8")
            written.add_frame({**arrays, **pictures, "observation.image": noise, "task": TASKS[(number + (frame >= 5)) % 2]})
        written.save_episode()
    written.finalize()
    seconds = {name: [delta / FPS for delta in frames] for name, frames in json.loads(deltas).items()}
    read = LeRobotDataset("ours/robot", root=folder, delta_timestamps=seconds)
    torch.save([read[number] for number in range(len(read))], items)


if __name__ == "__main__":
    main(*sys.argv[1:])
