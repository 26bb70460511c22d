"""Trains with fully sharded parameters (FSDP2); the loader is used as in any other training loop.

    torchrun --nproc-per-node 2 python/examples/train_fsdp.py

Makes pictures, trains two epochs on them, and in between continues from a state with a new loader.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from typing import Any

import spdl_cluster
import spdl_cluster.demo
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

JOB = {
    "name": "fsdp",
    "global_batch": 32,
    "epochs": 2,
    "column": [
        {"name": "image", "from": "jpg", "decode": "image", "ops": [{"random_resized_crop": {"size": 32}}]},
        {"name": "label", "from": "cls", "decode": "int"},
    ],
}


def main() -> None:
    """Trains to the end of the job, and prints how many samples it saw."""
    torch.manual_seed(17)
    dist.init_process_group("gloo")
    folder = [""]
    if dist.get_rank() == 0:
        folder = [tempfile.mkdtemp(prefix="spdl-fsdp-")]
        atexit.register(shutil.rmtree, folder[0])
        spdl_cluster.demo.pack_pictures(os.path.join(folder[0], "dataset"), 128)
    dist.broadcast_object_list(folder)
    job = {**JOB, "dataset": os.path.join(folder[0], "dataset")}

    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 256), nn.ReLU(), nn.Linear(256, 16))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    state: dict[str, Any] | None = None
    seen, losses = 0, []
    for epoch in range(2):
        # One loader for each epoch, to show that the state is all that has to be kept.
        with spdl_cluster.local(job, state=state) as loader:
            assert loader.epoch == epoch
            for batch in loader:
                loss = nn.functional.cross_entropy(model(batch["image"].float() / 255), batch["label"])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                losses.append(float(loss.detach()))
                seen += batch.samples
            state = loader.state_dict()
    total = torch.tensor(seen)
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"saw {int(total)} samples on {dist.get_world_size()} ranks; loss {losses[0]:.2f} to {losses[-1]:.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
