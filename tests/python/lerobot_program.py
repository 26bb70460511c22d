"""Writes a dataset with LeRobot's own writer, and reads it with LeRobot's own reader: `lerobot_program.py FOLDER ITEMS DELTAS`.

`DELTAS` is JSON: the frames of each feature that a sample has. All samples are saved to the file `ITEMS`. No video is written or read, so that the
package that LeRobot imports for these is replaced by an empty one.
"""

from __future__ import annotations

import json
import os
import sys
import types
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"


class Absent:
    """Anything of a package that is not there, at import."""

    def __getattr__(self, _name: str) -> Absent:
        return Absent()


class AbsentPackage(types.ModuleType):
    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent()


sys.modules["av"] = AbsentPackage("av")

import numpy  # noqa: E402
import torch  # noqa: E402
from lerobot.datasets.lerobot_dataset import LeRobotDataset  # noqa: E402

FPS = 10
TASKS = ["push the block", "lift the lid"]
#: Frames of each episode.
LENGTHS = [7, 12, 3, 4, 30, 11]


def main(folder: str, items: str, deltas: str) -> None:
    shapes = {"observation.state": (4,), "action": (3,), "grid": (2, 3)}
    features: dict[str, Any] = {name: {"dtype": "float32", "shape": shape, "names": None} for name, shape in shapes.items()}
    features["observation.image"] = {"dtype": "image", "shape": (24, 32, 3), "names": ["height", "width", "channels"]}
    written = LeRobotDataset.create("ours/robot", fps=FPS, features=features, root=folder, use_videos=False)
    draw = numpy.random.default_rng(0)
    for number, length in enumerate(LENGTHS):
        for frame in range(length):
            arrays = {name: draw.normal(size=shape).astype("float32") for name, shape in shapes.items()}
            picture = draw.integers(0, 255, (24, 32, 3)).astype("uint8")
            written.add_frame({**arrays, "observation.image": picture, "task": TASKS[(number + (frame >= 5)) % 2]})
        written.save_episode()
    written.finalize()
    seconds = {name: [delta / FPS for delta in frames] for name, frames in json.loads(deltas).items()}
    read = LeRobotDataset("ours/robot", root=folder, delta_timestamps=seconds)
    torch.save([read[number] for number in range(len(read))], items)


if __name__ == "__main__":
    main(*sys.argv[1:])
