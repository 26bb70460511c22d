"""Trains with Lightning and validates after each epoch. The loaders are the dataloaders of `fit`, and the state of the
training loader is part of Lightning's checkpoint.

    python python/examples/train_lightning.py --devices 2

Makes pictures, trains one epoch, and continues from the checkpoint with another trainer. Rank and world are those of
the process group that Lightning makes; the loaders read them at their first use.
"""

from __future__ import annotations

import argparse
import atexit
import os
import pathlib
import shutil
import tempfile
from typing import Any

import lightning
import spdl_cluster
import spdl_cluster.demo
import torch
import torch.distributed as dist
from torch import nn

LABEL = {"name": "label", "from": "cls", "decode": "int"}
TRAIN = {
    "name": "lightning",
    "global_batch": 16,
    "epochs": 2,
    "column": [{"name": "image", "from": "jpg", "decode": "image", "ops": [{"random_resized_crop": {"size": 32}}]}, LABEL],
}
#: Every sample once, in the dataset's order; the last batch is short. The loader gives the whole dataset at every `for`,
#: even after Lightning's sanity check took a part of it.
VALIDATION = {
    "name": "lightning-validation",
    "global_batch": 16,
    "shuffle": False,
    "column": [
        {"name": "image", "from": "jpg", "decode": "image", "ops": [{"resize": {"size": 36}}, {"center_crop": {"size": 32}}]},
        LABEL,
    ],
}


class Module(lightning.LightningModule):
    """A network that records the samples that it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 64), nn.ReLU(), nn.Linear(64, 16))
        #: Epoch and id of each sample.
        self.trained: list[tuple[int, int]] = []
        self.validated: list[tuple[int, int]] = []

    def on_before_batch_transfer(self, batch: spdl_cluster.Batch, index: int) -> Any:
        """Records the batch's samples."""
        if self.trainer.training:
            self.trained += zip(batch.epochs.tolist(), batch.ids.tolist())
        elif not self.trainer.sanity_checking:
            self.validated += [(self.current_epoch, sample) for sample in batch.ids.tolist()]
        return batch

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """Returns the loss."""
        return nn.functional.cross_entropy(self.network(batch["image"].float() / 255), batch["label"])

    def validation_step(self, batch: Any, index: int) -> None:
        """Logs the loss."""
        loss = nn.functional.cross_entropy(self.network(batch["image"].float() / 255), batch["label"])
        self.log("loss", loss, sync_dist=True, batch_size=len(batch["label"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class KeepLoader(lightning.Callback):
    """Saves the loader's state in the checkpoint. It is the state after the last batch that was delivered, so
    checkpoints have to be made between steps."""

    def __init__(self, loader: spdl_cluster.Loader) -> None:
        self.loader = loader

    def state_dict(self) -> dict[str, Any]:
        """Returns the state; called when a checkpoint is saved."""
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the state; called when a checkpoint is loaded."""
        self.loader.load_state_dict(state_dict)


def fit(folder: str, devices: int, epochs: int, checkpoint: pathlib.Path) -> Module:
    """Trains up to an epoch, from the checkpoint if there is one, and saves a checkpoint."""
    module = Module()
    with (
        spdl_cluster.local({**TRAIN, "dataset": os.path.join(folder, "train")}) as train,
        spdl_cluster.local({**VALIDATION, "dataset": os.path.join(folder, "validation")}) as validation,
    ):
        quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = lightning.Trainer(
            max_epochs=epochs, accelerator="cpu", devices=devices, callbacks=[KeepLoader(train)], enable_model_summary=False, **quiet
        )
        start = str(checkpoint) if checkpoint.exists() else None
        trainer.fit(module, train_dataloaders=train, val_dataloaders=validation, ckpt_path=start, weights_only=False)
        trainer.save_checkpoint(checkpoint)
    return module


def main() -> None:
    """Trains, resumes, and prints which samples were seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=1, help="ranks, which Lightning starts")
    arguments = parser.parse_args()
    # Lightning starts this program once more for each further rank: those find the data that the first one made.
    if "LOCAL_RANK" not in os.environ:
        folder = os.environ["SPDL_EXAMPLE_FOLDER"] = tempfile.mkdtemp(prefix="spdl-lightning-")
        atexit.register(shutil.rmtree, folder)
        spdl_cluster.demo.pack_pictures(os.path.join(folder, "train"), 128)
        spdl_cluster.demo.pack_pictures(os.path.join(folder, "validation"), 40, seed=1)
    folder = os.environ["SPDL_EXAMPLE_FOLDER"]
    checkpoint = pathlib.Path(folder, "checkpoint.pt")
    modules = [fit(folder, arguments.devices, epochs, checkpoint) for epochs in (1, 2)]

    everything = [[(module.trained, module.validated) for module in modules]]
    if dist.is_initialized():
        everything *= dist.get_world_size()
        dist.all_gather_object(everything, everything[0], group=dist.new_group())
    if os.environ.get("LOCAL_RANK", "0") == "0":
        trained = [sample for rank in everything for seen, _ in rank for sample in seen]
        validated = [sample for rank in everything for _, seen in rank for sample in seen]
        for epoch in (0, 1):
            ours = [sample for at, sample in validated if at == epoch]
            print(f"epoch {epoch}: trained on {sum(at == epoch for at, _ in trained)} samples, validated on {len(ours)}")
        print(f"{len(trained) - len(set(trained))} samples twice, on {len(everything)} ranks")


if __name__ == "__main__":
    main()
