"""Trains a ResNet-18 with Lightning: a DataModule has the loaders, and in its state the training's place in its epoch. A checkpoint of any
step goes on with the samples that follow it, and each validation counts every sample once, on any number of devices.

    python python/examples/train_lightning.py train.toml val.toml --devices 2

Started again, it goes on from the last checkpoint. docs/recipes/lightning.md leads from a folder of pictures to here.
"""

from __future__ import annotations

import argparse
from typing import Any

import lightning
import spdl_cluster
import torch
import torchvision
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn


class Pictures(lightning.LightningDataModule):
    """The loaders of a training and of its validation."""

    def __init__(self, training: str, validation: str, epochs: int) -> None:
        super().__init__()
        self.training = spdl_cluster.local(training, epochs=epochs)
        self.validation = spdl_cluster.local(validation)

    def train_dataloader(self) -> spdl_cluster.Loader:
        """Returns the loader, of which each `for` is an epoch, or the rest of one."""
        return self.training

    def val_dataloader(self) -> spdl_cluster.Loader:
        """Returns the loader, of which each `for` is the whole dataset, also after Lightning's sanity check."""
        return self.validation

    def state_dict(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps: how far the training is, in a hundred bytes."""
        return self.training.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes where the checkpoint was made."""
        self.training.load_state_dict(state_dict)


class Classifier(lightning.LightningModule):
    """A ResNet-18 that learns a class of each picture."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.network = torchvision.models.resnet18(num_classes=classes)

    def forward(self, batch: Any) -> Tensor:
        """Returns the scores of the classes."""
        scores: Tensor = self.network(batch["image"].permute(0, 3, 1, 2).float() / 255)
        return scores

    def training_step(self, batch: Any, index: int) -> Tensor:
        """Returns the loss."""
        return nn.functional.cross_entropy(self(batch), batch["label"])

    def validation_step(self, batch: Any, index: int) -> None:
        """Counts, over the batches and the devices. A sample that cannot be read is not valid."""
        right = (self(batch).argmax(1) == batch["label"]) & batch.valid
        counts = {"right": right.sum().float(), "seen": batch.valid.sum().float()}
        self.log_dict(counts, on_step=False, on_epoch=True, reduce_fx="sum", sync_dist=True)

    def on_validation_end(self) -> None:
        """Prints the counts."""
        if self.trainer.is_global_zero and not self.trainer.sanity_checking:
            counts = self.trainer.callback_metrics
            print(f"epoch {self.current_epoch}: {counts['right']:.0f} of {counts['seen']:.0f} are right", flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    """Trains to the end of the job, or for some steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("training", help="the job file to train with")
    parser.add_argument("validation", help="the job file to validate with")
    parser.add_argument("--epochs", type=int, default=10, help="epochs of the training; Lightning asks before it knows the ranks")
    parser.add_argument("--devices", type=int, default=1, help="ranks, which Lightning starts")
    parser.add_argument("--checkpoints", default="checkpoints", help="folder for checkpoints; it goes on from the last one that is there")
    parser.add_argument("--every", type=int, default=100, help="steps from one checkpoint to the next")
    parser.add_argument("--steps", type=int, default=-1, help="stop after so many steps of the training")
    arguments = parser.parse_args()
    data = Pictures(arguments.training, arguments.validation, arguments.epochs)
    keep = ModelCheckpoint(dirpath=arguments.checkpoints, every_n_train_steps=arguments.every, save_last=True)
    trainer = lightning.Trainer(
        max_epochs=arguments.epochs, max_steps=arguments.steps, devices=arguments.devices, callbacks=[keep], logger=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    model = Classifier(len(data.training.classes or []))
    trainer.fit(model, datamodule=data, ckpt_path="last", weights_only=False)
    if trainer.is_global_zero:
        print(f"{data.training.stats()['samples']} samples for rank 0 in this launch", flush=True)


if __name__ == "__main__":
    main()
