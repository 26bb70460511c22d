"""Trains with Lightning: the loader is the `train_dataloaders` of `fit`, and its state is part of Lightning's checkpoint.

    python python/examples/train_lightning.py

Makes pictures, trains one epoch, and goes on from the checkpoint with another trainer.
"""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import lightning
import spdl_cluster
import spdl_cluster.demo
import torch
from torch import nn

JOB = {
    "name": "lightning",
    "global_batch": 16,
    "epochs": 2,
    "column": [
        {"name": "image", "from": "jpg", "decode": "image", "ops": [{"random_resized_crop": {"size": 32}}]},
        {"name": "label", "from": "cls", "decode": "int"},
    ],
}


class Module(lightning.LightningModule):
    """A network that counts what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 64), nn.ReLU(), nn.Linear(64, 16))
        self.seen: list[tuple[int, int]] = []

    def on_before_batch_transfer(self, batch: spdl_cluster.Batch, index: int) -> spdl_cluster.Batch:
        """Notes what came: after the transfer a batch is a dict of tensors and nothing more."""
        self.seen += list(zip(batch.epochs.tolist(), batch.ids.tolist()))
        return batch

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """The loss."""
        return nn.functional.cross_entropy(self.network(batch["image"].float() / 255), batch["label"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class KeepLoader(lightning.Callback):
    """Keeps the loader's state with the checkpoint. It is that of the last batch handed out, so checkpoints are made between steps."""

    def __init__(self, loader: spdl_cluster.Loader) -> None:
        self.loader = loader

    def state_dict(self) -> dict[str, Any]:
        """Called when a checkpoint is saved."""
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Called when one is loaded."""
        self.loader.load_state_dict(state_dict)


def trainer(loader: spdl_cluster.Loader, epochs: int) -> lightning.Trainer:
    """A trainer that leaves nothing behind."""
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return lightning.Trainer(max_epochs=epochs, accelerator="cpu", callbacks=[KeepLoader(loader)], **quiet)


def main() -> None:
    """Trains, goes on, and says what was seen."""
    with tempfile.TemporaryDirectory() as folder:
        spdl_cluster.demo.pack_pictures(pathlib.Path(folder, "dataset"), 128)
        job = {**JOB, "dataset": pathlib.Path(folder, "dataset")}
        checkpoint = pathlib.Path(folder, "checkpoint.pt")
        with spdl_cluster.local(job) as loader:
            first = Module()
            fit = trainer(loader, 1)
            fit.fit(first, train_dataloaders=loader)
            fit.save_checkpoint(checkpoint)
        with spdl_cluster.local(job) as loader:
            second = Module()
            trainer(loader, 2).fit(second, train_dataloaders=loader, ckpt_path=str(checkpoint), weights_only=False)
    seen = first.seen + second.seen
    print(f"saw {len(first.seen)} samples, then {len(second.seen)}; {len(seen) - len(set(seen))} of them twice")


if __name__ == "__main__":
    main()
