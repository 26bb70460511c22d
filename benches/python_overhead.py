"""Measures what the Python layer adds to the cost of taking a batch in Rust, for batches of several sizes.

usage: python benches/python_overhead.py [torch] [numpy] [dlpack]      by default all that are installed

Needs the package: `pip install --config-settings profile=release ./python`.
All slots are filled before a measurement, so it contains no waits. Python and Rust take batches alternately from the
same loader. The result is the median over the rounds, and the added cost is the median of the rounds' differences.
"""

from __future__ import annotations

import importlib.util
import itertools
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import spdl_cluster
from spdl_cluster.demo import pack_pictures

#: The batches of a round, and the slots that they are in.
TAKE, SLOTS = 30, 33
ROUNDS = 15
#: The samples of a batch, and the side of their pictures in pixels: up to 19 MB.
SIZES = ((16, 8), (16, 64), (16, 224), (128, 8), (128, 64), (128, 224))
MAX_US = 30.0


def job(dataset: pathlib.Path, samples: int, size: int) -> dict[str, Any]:
    """Returns a job of pictures with their labels, with many epochs."""
    image = {"name": "image", "from": "jpg", "decode": "image", "ops": [{"random_resized_crop": {"size": size}}]}
    label = {"name": "label", "from": "cls", "decode": "int"}
    return {"name": "overhead", "dataset": dataset, "global_batch": samples, "epochs": 10_000, "column": [image, label]}


def fill(loader: spdl_cluster.Loader) -> None:
    """Waits until every slot holds a batch."""
    while next(s for s in loader.stats()["stages"] if s["name"] == "hand-over")["queue_depth"] < SLOTS:
        time.sleep(0.01)


def batches(loader: spdl_cluster.Loader) -> Iterator[spdl_cluster.Batch]:
    """Returns the batches as a trainer's loops see them: a `for` for each epoch."""
    return itertools.chain.from_iterable(itertools.repeat(loader))


def measure(loader: spdl_cluster.Loader) -> tuple[float, float, float]:
    """Returns the microseconds for a batch: in Python, in Rust alone, and the difference."""
    python, rust = [], []
    loader.next()
    for _ in range(ROUNDS):
        fill(loader)
        start = time.perf_counter_ns()
        for batch in itertools.islice(batches(loader), TAKE):
            del batch
        python.append((time.perf_counter_ns() - start) / TAKE / 1000)
        fill(loader)
        rust.append(loader._native.drain(TAKE) / TAKE / 1000)
    added = [one - other for one, other in zip(python, rust)]
    return statistics.median(python), statistics.median(rust), statistics.median(added)


def main() -> None:
    """Prints a line for each kind of tensors and each size."""
    kinds = sys.argv[1:] or [kind for kind in ("torch", "numpy") if importlib.util.find_spec(kind)] + ["dlpack"]
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        dataset = pathlib.Path(folder, "dataset")
        pack_pictures(dataset, 256)
        print(f"{'tensors':<7}  {'samples':>7}  {'bytes of a batch':>16}  {'Python µs':>9}  {'Rust µs':>8}  {'added µs':>8}")
        for kind, (samples, size) in itertools.product(kinds, SIZES):
            settings: dict[str, Any] = {"slots": SLOTS, "tensors": kind, "cores": 2, "memory_bytes": 2 << 30}
            with spdl_cluster.local(job(dataset, samples, size), **settings) as loader:
                python, rust, added = measure(loader)
            worst = max(worst, added)
            bytes_of = samples * size * size * 3
            print(f"{kind:<7}  {samples:>7}  {bytes_of:>16}  {python:>9.1f}  {rust:>8.1f}  {added:>8.1f}", flush=True)
    print(f"at most {worst:.1f} µs are added; the bar is {MAX_US:.0f}")


if __name__ == "__main__":
    main()
