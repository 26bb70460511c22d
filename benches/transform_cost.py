"""Measures the cost of a Python function for a sample, compared with the built-in operations.

usage: python benches/transform_cost.py [CORES]

Needs the package: `pip install --config-settings profile=release ./python`. Runs one job after the other on the demo's pictures,
with crops of 224 pixels; the loader's consumer does nothing. The result is the best of several epochs.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
import time
from typing import Any

import numpy
import spdl_cluster
from numpy.typing import NDArray
from spdl_cluster.demo import pack_pictures

PICTURES = 256
EPOCHS = 4
MEAN = numpy.array([0.485, 0.456, 0.406], numpy.float32)
STD = numpy.array([0.229, 0.224, 0.225], numpy.float32)


def identity(image: Any, rng: numpy.random.Generator) -> Any:
    """Does nothing, so that only the transfer to the process and back is measured."""
    return image


def normalised(image: NDArray[numpy.uint8], rng: numpy.random.Generator) -> NDArray[numpy.float32]:
    """Does the same as `dtype = "f32"`, `normalise` and `layout = "nchw"`."""
    scaled = image.astype(numpy.float32) / numpy.float32(255)
    return numpy.asarray((scaled - MEAN) / STD, numpy.float32).transpose(2, 0, 1)


def microseconds(dataset: pathlib.Path, cores: float, keys: dict[str, Any]) -> float:
    """Returns the microseconds for a sample."""
    crop = [{"random_resized_crop": {"size": 224}}, {"random_flip": {}}]
    column = {"name": "image", "from": "jpg", "decode": "image", "ops": crop, **keys}
    job = {"name": "cost", "dataset": dataset, "global_batch": 32, "epochs": EPOCHS, "column": [column]}
    epochs = []
    with spdl_cluster.local(job, cores=cores) as loader:
        loader.next()
        while loader.epoch < EPOCHS:
            start, samples = time.perf_counter(), 0
            for batch in loader:
                samples += batch.samples
                del batch
            epochs.append((time.perf_counter() - start) / samples * 1e6)
    return min(epochs[1:])


def main() -> None:
    """Prints a line for each column."""
    cores = float(sys.argv[1]) if len(sys.argv) > 1 else 1
    normalise = {"mean": MEAN.tolist(), "std": STD.tolist()}
    columns: dict[str, dict[str, Any]] = {
        "u8, built in": {},
        "u8, and a function that returns what it gets": {"transform": "transform_cost:identity"},
        "f32 nchw normalised, built in": {"dtype": "f32", "layout": "nchw", "normalise": normalise},
        "f32 nchw normalised, by a function": {
            "transform": "transform_cost:normalised",
            "returns": {"dtype": "f32", "shape": [3, 224, 224]},
        },
    }
    with tempfile.TemporaryDirectory() as folder:
        dataset = pathlib.Path(folder, "dataset")
        pack_pictures(dataset, PICTURES)
        print(f"microseconds for a sample, {cores:g} cores")
        for name, keys in columns.items():
            print(f"{name:<46} {microseconds(dataset, cores, keys):>8.0f}")


if __name__ == "__main__":
    main()
