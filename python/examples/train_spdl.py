"""An SPDL pipeline whose source is the loader: further stages run in SPDL's threads, and training takes what comes out.

    python python/examples/train_spdl.py

Makes pictures, trains one epoch on them, and goes on from the middle of it with another loader.
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
    """A stage: pictures as numbers from 0 to 1. The batch goes along: it knows its place."""
    return batch["image"].float() / 255, batch


def train(loader: spdl_cluster.Loader, model: nn.Module, steps: int) -> tuple[list[int], dict[str, Any] | None]:
    """So many steps; the ids that they saw, and the state after them."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    # Stages hold batches too: give the loader as many slots as they and the sink hold, and some to fill.
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
            # The source runs ahead of this loop, so the state is asked for after a batch that came out.
            state = loader.state_dict(after=batch)
            steps -= 1
            if not steps:
                break
    return ids, state


def main() -> None:
    """Trains, goes on, and says what was seen."""
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
