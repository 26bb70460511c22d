import spdl_cluster
import torch  # noqa: F401, so that batches are tensors of torch

with spdl_cluster.connect() as loader:
    batch = next(iter(loader))
    print(f"first batch of rank {loader.rank}: {tuple(batch['image'].shape)}", flush=True)
