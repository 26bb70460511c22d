"""Trains a ResNet-18 with Accelerate, and computes torchmetrics' accuracies of every validation sample once, on any number of ranks.

    torchrun --nproc-per-node 2 python/examples/train_accelerate.py train.toml val.toml

Started again, it goes on from the last checkpoint, in the middle of an epoch too. docs/recipes/accelerate.md leads from a folder of
pictures to here.
"""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

import accelerate
import spdl_cluster
import torch
import torchvision
from torch import Tensor, nn
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy


def scores(model: nn.Module, batch: Any) -> Tensor:
    """Returns the scores of the classes."""
    found: Tensor = model(batch["image"].permute(0, 3, 1, 2).float() / 255)
    return found


def validate(accelerator: accelerate.Accelerator, model: nn.Module, loader: spdl_cluster.Loader, metrics: MetricCollection) -> str:
    """Returns the metrics of all samples, and their number, as text."""
    metrics.reset()
    seen = 0
    model.eval()
    with torch.inference_mode():
        for batch in loader:
            # Those of all ranks, without what fills up the last batch. A sample that cannot be read is not valid.
            found, labels, valid = accelerator.gather_for_metrics((scores(model, batch), batch["label"], batch.valid))
            metrics.update(found[valid], labels[valid])
            seen += int(valid.sum())
    model.train()
    return ", ".join(f"{name} {value:.3f}" for name, value in metrics.compute().items()) + f" of {seen} samples"


def save(accelerator: accelerate.Accelerator, folder: pathlib.Path, step: int) -> None:
    """Saves a checkpoint that is there as a whole or not at all."""
    partial = folder / "partial"
    accelerator.save_state(str(partial))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        partial.rename(folder / f"step-{step:09}")
    accelerator.wait_for_everyone()


def main() -> None:
    """Trains to the end of the job, or for some steps, and validates after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("training", help="the job file to train with")
    parser.add_argument("validation", help="the job file to validate with")
    parser.add_argument("--checkpoints", type=pathlib.Path, default="checkpoints", help="folder for checkpoints; it goes on from the last one")
    parser.add_argument("--every", type=int, default=100, help="steps from one checkpoint to the next")
    parser.add_argument("--steps", type=int, help="stop after so many steps of the training")
    arguments = parser.parse_args()

    # Without a GPU, Accelerate has to be told that ranks work together.
    accelerator = accelerate.Accelerator(cpu=not torch.cuda.is_available())
    training = spdl_cluster.local(arguments.training, device=accelerator.device)
    validation = spdl_cluster.local(arguments.validation, device=accelerator.device)
    classes = len(training.classes or [])
    network = torchvision.models.resnet18(num_classes=classes)
    model, optimiser = accelerator.prepare(network, torch.optim.Adam(network.parameters(), lr=1e-3))
    # Accelerate has gathered what it counts: each rank has all of it, and torchmetrics must not add up the ranks.
    accuracies = {f"top{k}": MulticlassAccuracy(classes, top_k=k, average="micro", sync_on_compute=False) for k in (1, 5)}
    metrics = MetricCollection(accuracies).to(accelerator.device)  # type: ignore[arg-type]
    accelerator.register_for_checkpointing(training)
    saved = sorted(arguments.checkpoints.glob("step-*"))
    step = 0
    if saved:
        accelerator.load_state(str(saved[-1]))
        step = int(saved[-1].name.removeprefix("step-"))

    for epoch in range(training.epoch, training.epochs):
        for batch in training:
            loss = nn.functional.cross_entropy(scores(model, batch), batch["label"])
            optimiser.zero_grad()
            accelerator.backward(loss)
            optimiser.step()
            step += 1
            if step % arguments.every == 0:
                save(accelerator, arguments.checkpoints, step)
            if step == arguments.steps:
                break
        if step == arguments.steps:
            break
        accelerator.print(f"epoch {epoch}: {validate(accelerator, model, validation, metrics)}", flush=True)
    accelerator.print(f"{training.stats()['samples']} samples for rank 0 in this launch", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
