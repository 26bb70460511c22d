import os

import ray
import ray.train
import spdl_cluster.ray
from ray.train.torch import TorchConfig, TorchTrainer


def train(config):
    batch = next(config["cluster"].get_dataset_shard().iter_torch_batches())
    print(f"first batch of rank {ray.train.get_context().get_world_rank()}: {tuple(batch['image'].shape)}", flush=True)


with spdl_cluster.ray.start(["train.toml"], cores=1, memory="512MiB") as cluster:
    TorchTrainer(
        train,
        train_loop_config={"cluster": cluster},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(storage_path=os.path.abspath("storage")),
    ).fit()
