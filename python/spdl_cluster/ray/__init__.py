"""Loaders in a Ray cluster: servers that Ray places, and batches for the workers of Ray Train.

    import spdl_cluster.ray

    with spdl_cluster.ray.start(jobs=["train.toml"]) as cluster:

        def train(config):
            shard = cluster.get_dataset_shard("train.toml")
            for epoch in range(2):
                for batch in shard.iter_torch_batches():
                    step(batch["image"], batch["label"])

        TorchTrainer(train, scaling_config=ScalingConfig(num_workers=8, use_gpu=True)).fit()

`start` places a coordinator on the head and a worker on each node. Ray starts them again where they end.
"""

from .cluster import RayCluster, start
from .shard import DatasetShard

__all__ = ["DatasetShard", "RayCluster", "start"]
