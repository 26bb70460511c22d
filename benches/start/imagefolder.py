"""The seconds from a program's start to its first batch with `spdl_cluster.imagefolder`, of a folder of small pictures.

usage: python benches/start/imagefolder.py [--pictures N] [--rounds N]

Needs this package (`pip install --config-settings profile=release ./python`), numpy and Pillow. Prints the least and the most of the rounds: of the imports
alone, which are the floor; of the first call, which indexes the folder; and of a later one. Python's own start is not counted in the seconds, and is in the
processor's time, which tells more on a busy machine.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

IMPORTS = """
import time
start = time.perf_counter()
import numpy
import spdl_cluster._native, spdl_cluster.loader
print(time.perf_counter() - start, time.process_time())
"""
BATCH = """
import sys, time
start = time.perf_counter()
import spdl_cluster
loader = spdl_cluster.imagefolder(sys.argv[1], cache=sys.argv[2], progress=False)
batch = next(iter(loader))
image = batch["image"]
print(time.perf_counter() - start, time.process_time())
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        photos, cache = pathlib.Path(folder, "photos"), pathlib.Path(folder, "cache")
        write(photos, options.pictures)
        seconds: dict[str, list[list[float]]] = {"imports": [], "first call": [], "later call": []}
        for _ in range(options.rounds):
            shutil.rmtree(cache, ignore_errors=True)
            for what, code in (("imports", IMPORTS), ("first call", BATCH), ("later call", BATCH)):
                done = subprocess.run([sys.executable, "-c", code, photos, cache], check=True, stdout=subprocess.PIPE, text=True)
                seconds[what].append([float(word) for word in done.stdout.split()])
    for what, rounds in seconds.items():
        wall, processor = ([each[number] for each in rounds] for number in range(2))
        print(f"{what:<11} {min(wall):.2f} to {max(wall):.2f} s, of the processor's time {min(processor):.2f} to {max(processor):.2f} s")


def write(folder: pathlib.Path, count: int) -> None:
    """Writes pictures of 100x75 pixels in ten folders."""
    from PIL import Image

    for number in range(count):
        path = folder / f"class-{number % 10}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((100, 75), 40 + number % 40).convert("RGB").save(path)


if __name__ == "__main__":
    main()
