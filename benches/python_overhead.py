"""What the Python layer adds to a batch, beyond what taking it in Rust costs, for batches of several sizes.

usage: python benches/python_overhead.py [numpy|torch|dlpack]

Every slot is filled before anything is taken, so nothing is waited for. Best of several rounds, which Python and Rust take in turn.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
import time
from typing import Any

import spdl_cluster
from spdl_cluster.demo import pack_pictures

SLOTS = 33
TAKE = 30
ROUNDS = 12


def job(dataset: pathlib.Path, size: int) -> dict[str, Any]:
    """Batches of 16 pictures, with their labels."""
    image = {"name": "image", "from": "jpg", "decode": "image", "ops": [{"random_resized_crop": {"size": size}}]}
    label = {"name": "label", "from": "cls", "decode": "int"}
    return {"name": "overhead", "dataset": dataset, "global_batch": 16, "epochs": 1000, "column": [image, label]}


def fill(loader: spdl_cluster.Loader, taken: int) -> None:
    """Waits until every slot holds a batch."""
    while next(s for s in loader.stats()["stages"] if s["name"] == "batch")["items"] < taken + SLOTS:
        time.sleep(0.01)


def measure(loader: spdl_cluster.Loader) -> tuple[float, float]:
    """Microseconds for a batch: in Python, and in Rust alone."""
    python, rust = [], []
    taken = 0
    loader.next()
    taken += 1
    for _ in range(ROUNDS):
        fill(loader, taken)
        start = time.perf_counter_ns()
        for _ in range(TAKE):
            loader.next()
        python.append((time.perf_counter_ns() - start) / TAKE / 1000)
        taken += TAKE
        fill(loader, taken)
        rust.append(loader._feed.drain(TAKE) / TAKE / 1000)
        taken += TAKE
    return min(python), min(rust)


def main() -> None:
    """Prints a line for each size."""
    kind: Any = sys.argv[1] if len(sys.argv) > 1 else "numpy"
    with tempfile.TemporaryDirectory() as folder:
        dataset = pathlib.Path(folder, "dataset")
        pack_pictures(dataset, 128)
        print(f"{'bytes of a batch':>16}  {'Python µs':>9}  {'Rust µs':>8}  {'added µs':>8}   ({kind})")
        for size in (8, 32, 96, 224):
            with spdl_cluster.local(job(dataset, size), slots=SLOTS, tensors=kind, cores=2) as loader:
                python, rust = measure(loader)
            print(f"{16 * size * size * 3:>16}  {python:>9.1f}  {rust:>8.1f}  {python - rust:>8.1f}")


if __name__ == "__main__":
    main()
