import os
import subprocess

import spdl_cluster
import torch  # noqa: F401, so that batches are tensors of torch

if not os.path.exists("dataset"):
    subprocess.run(["spdl-ctl", "pack", "photos", "dataset"], check=True, capture_output=True)
batch = next(iter(spdl_cluster.local("train.toml")))
print(f"first batch of rank 0: {tuple(batch['image'].shape)}", flush=True)
