"""Trains a ResNet with Ray Train on all GPUs of a Ray cluster, and goes on from the newest checkpoint when it starts again.

rayjob.yaml runs this on the head. The coordinator and the workers are there as long as this is.
"""

import argparse
import os
import pathlib
import tempfile
from typing import Any

import ray
import ray.train
import spdl_cluster.ray
import torch
import torchvision
from ray.train.torch import TorchTrainer, prepare_model

FILE = "checkpoint.pt"


def train(config: dict[str, Any]) -> None:
    """Trains on one GPU, or on CPUs, as one of the ranks."""
    shard = config["cluster"].get_dataset_shard()
    network = torchvision.models.resnet50(num_classes=config["classes"])
    model = prepare_model(network)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            saved = torch.load(os.path.join(folder, FILE), map_location="cpu", weights_only=True)
        network.load_state_dict(saved["network"])
        optimiser.load_state_dict(saved["optimiser"])
        shard.load_state_dict(saved["loader"])

    def report(loss: torch.Tensor) -> None:
        with tempfile.TemporaryDirectory() as folder:
            kept = None
            if ray.train.get_context().get_world_rank() == 0:
                state = {"network": network.state_dict(), "optimiser": optimiser.state_dict(), "loader": shard.state_dict()}
                torch.save(state, os.path.join(folder, FILE))
                kept = ray.train.Checkpoint.from_directory(folder)
            # All ranks wait here for each other.
            ray.train.report({"loss": loss.item(), "epoch": shard.loader.epoch}, checkpoint=kept)

    step = 0
    for _ in range(shard.loader.epoch, shard.loader.epochs):
        for batch in shard.iter_torch_batches():
            images = batch["image"].permute(0, 3, 1, 2).float() / 255
            loss = torch.nn.functional.cross_entropy(model(images), batch["label"])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            step += 1
            if step % config["every"] == 0:
                report(loss)
    if step % config["every"]:
        report(loss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", default=pathlib.Path(__file__).with_name("example.toml"), help="the job file")
    parser.add_argument("--storage", required=True, help="folder for checkpoints, which all nodes have")
    parser.add_argument("--memory", default="8GiB", help="memory of each worker for slots and cached data")
    parser.add_argument("--cache-dir", help="folder in which each worker caches data of a remote store")
    parser.add_argument("--cache-bytes", default="100GiB", help="how much of it")
    parser.add_argument("--classes", type=int, default=1000, help="at least as many as the labels have")
    parser.add_argument("--every", type=int, default=200, help="steps between two checkpoints")
    arguments = parser.parse_args()

    disk = ["--cache-bytes", arguments.cache_bytes] if arguments.cache_dir else []
    with spdl_cluster.ray.start([arguments.job], memory=arguments.memory, cache_dir=arguments.cache_dir, worker_arguments=disk) as cluster:
        gpus = int(ray.cluster_resources().get("GPU", 0))
        result = TorchTrainer(
            train,
            train_loop_config={"cluster": cluster, "classes": arguments.classes, "every": arguments.every},
            scaling_config=ray.train.ScalingConfig(num_workers=gpus or 1, use_gpu=gpus > 0),
            run_config=ray.train.RunConfig(
                # With the same name and folder, Ray Train goes on from the newest checkpoint.
                name="train",
                storage_path=arguments.storage,
                checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
                failure_config=ray.train.FailureConfig(max_failures=3),
            ),
        ).fit()
    print(result.metrics)


if __name__ == "__main__":
    main()
