"""Trains from an SPDL pipeline whose source is the loader: further stages run in SPDL's threads, and the training loop
takes their results.

    python python/examples/train_spdl.py

Makes pictures, trains one epoch on them, and continues from the middle of it with another loader.
"""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import spdl_cluster
import spdl_cluster.demo
import torch
from spdl.pipeline import PipelineBuilder
from torch import nn

JOB = {
    "name": "spdl",
    "global_batch": 16,
    "epochs": 1,
    "column": [
        {"name": "image", "from": "jpg", "decode": "image", "ops": [{"random_resized_crop": {"size": 32}}]},
        {"name": "label", "from": "cls", "decode": "int"},
    ],
}


def to_float(batch: spdl_cluster.Batch) -> tuple[torch.Tensor, spdl_cluster.Batch]:
    """A stage that converts pictures to numbers from 0 to 1. It passes the batch along, because the batch knows its
    position."""
    return batch["image"].float() / 255, batch


def train(loader: spdl_cluster.Loader, model: nn.Module, steps: int) -> tuple[list[int], dict[str, Any] | None]:
    """Trains for `steps` steps; returns the ids that they saw, and the state after them."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    # Stages hold batches too: give the loader as many slots as the stages and the sink hold, and some more to fill.
    pipeline = PipelineBuilder().add_source(loader).pipe(to_float, concurrency=1).add_sink(1).build(num_threads=1)
    ids: list[int] = []
    state = None
    with pipeline.auto_stop():
        for images, batch in pipeline:
            loss = nn.functional.cross_entropy(model(images), batch["label"])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            ids += batch.ids.tolist()
            # The source runs ahead of this loop, so ask for the state after a batch that came out of the pipeline.
            state = loader.state_dict(after=batch)
            steps -= 1
            if not steps:
                break
    return ids, state


def main() -> None:
    """Trains, resumes, and prints which samples were seen."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 64), nn.ReLU(), nn.Linear(64, 16))
    with tempfile.TemporaryDirectory() as folder:
        spdl_cluster.demo.pack_pictures(pathlib.Path(folder, "dataset"), 128)
        job = {**JOB, "dataset": pathlib.Path(folder, "dataset")}
        with spdl_cluster.local(job, slots=8) as loader:
            first, state = train(loader, model, 3)
        with spdl_cluster.local(job, slots=8, state=state) as loader:
            second, _ = train(loader, model, 1000)
    print(f"saw {len(first)} samples, then {len(second)}; {len(first + second) - len(set(first + second))} of them twice")


if __name__ == "__main__":
    main()
