"""Trains with Accelerate. Accelerate prepares model and optimiser, and gathers; the loader is used directly, because it
knows rank and world.

    torchrun --nproc-per-node 2 python/examples/train_accelerate.py

Makes pictures and trains two epochs on them. The loader needs no `prepare`, which returns it as it is: it has its rank's
share already.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

import accelerate
import accelerate.utils
import spdl_cluster
import spdl_cluster.demo
import torch
from torch import nn

JOB = {
    "name": "accelerate",
    "global_batch": 32,
    "epochs": 2,
    "column": [
        {"name": "image", "from": "jpg", "decode": "image", "ops": [{"random_resized_crop": {"size": 32}}]},
        {"name": "label", "from": "cls", "decode": "int"},
    ],
}


def main() -> None:
    """Trains to the end of the job, and prints how many samples it saw."""
    accelerator = accelerate.Accelerator(cpu=True)
    folder = [""]
    if accelerator.is_main_process:
        folder = [tempfile.mkdtemp(prefix="spdl-accelerate-")]
        atexit.register(shutil.rmtree, folder[0])
        spdl_cluster.demo.pack_pictures(os.path.join(folder[0], "dataset"), 128)
    accelerate.utils.broadcast_object_list(folder)

    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 64), nn.ReLU(), nn.Linear(64, 16))
    model, optimiser = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=1e-3))
    seen: set[tuple[int, int]] = set()
    job = {**JOB, "dataset": os.path.join(folder[0], "dataset")}
    with spdl_cluster.local(job, accelerator.process_index, accelerator.num_processes) as loader:
        for _ in range(loader.epochs):
            for batch in loader:
                ids, epochs = accelerator.gather((batch.ids.clone(), batch.epochs.clone()))
                seen.update(zip(epochs.tolist(), ids.tolist()))
                on_device = accelerate.utils.send_to_device(batch, accelerator.device)
                loss = nn.functional.cross_entropy(model(on_device["image"].float() / 255), on_device["label"])
                optimiser.zero_grad()
                accelerator.backward(loss)
                optimiser.step()
    accelerator.print(f"saw {len(seen)} samples on {accelerator.num_processes} ranks")
    # The main process removes the pictures when it ends.
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
