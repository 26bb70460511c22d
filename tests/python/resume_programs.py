"""Trainings in frameworks that are killed and go on: `resume_programs.py NAME DATASET FOLDER EVERY KILL_AFTER`.

Each trains three epochs, saves a checkpoint into `FOLDER` after `EVERY` steps, goes on from the last one that is there, and writes the number and the
ids of each step into `FOLDER/trace-RANK.jsonl`. It kills itself in the step after `KILL_AFTER`, if that is above 0.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
from typing import Any

import spdl_cluster
import torch
import torch.distributed
from framework_programs import Network, job, leave
from torch import nn

EPOCHS = 3


class Trace:
    """What was trained on, step by step."""

    def __init__(self, folder: pathlib.Path, kill_after: int) -> None:
        self.file = open(folder / f"trace-{os.environ.get('RANK', '0')}.jsonl", "a", buffering=1)
        self.kill_after = kill_after

    def write(self, step: int, ids: list[int]) -> None:
        """Writes the ids of a step, counted from 1."""
        self.file.write(json.dumps([step, ids]) + "\n")
        if self.kill_after and step > self.kill_after:
            if torch.distributed.is_initialized():
                # All ranks have saved their parts of the checkpoint, and written this step.
                torch.distributed.barrier()
            os.kill(os.getpid(), signal.SIGKILL)


def plain(dataset: str, folder: pathlib.Path, every: int, trace: Trace) -> None:
    """Takes all batches, in a loop of one's own."""
    with spdl_cluster.local(training(dataset)) as loader:
        batches = (batch for _ in range(EPOCHS) for batch in loader)
        for step, batch in enumerate(batches, 1):
            trace.write(step, batch.ids.tolist())


def training(dataset: str) -> dict[str, Any]:
    """Returns the job: 199 samples are 6 steps of 32 in an epoch."""
    return job(dataset, name="train", global_batch=32, shuffle=True, epochs=EPOCHS)


def lightning(dataset: str, folder: pathlib.Path, every: int, trace: Trace) -> None:
    """Trains with a DataModule that has the loader's state."""
    import lightning as L
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Data(L.LightningDataModule):
        def __init__(self) -> None:
            super().__init__()
            self.loader = spdl_cluster.local(training(dataset))

        def train_dataloader(self) -> Any:
            return self.loader

        def state_dict(self) -> dict[str, Any]:
            return self.loader.state_dict()

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.loader.load_state_dict(state_dict)

    fit(Data(), folder, every, trace, L, ModelCheckpoint)


def lightning_without_state(dataset: str, folder: pathlib.Path, every: int, trace: Trace) -> None:
    """Trains with a DataModule that makes a loader whenever it is asked, as tutorials have it."""
    import lightning as L
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Data(L.LightningDataModule):
        def train_dataloader(self) -> Any:
            return spdl_cluster.local(training(dataset))

    fit(Data(), folder, every, trace, L, ModelCheckpoint)


def fit(data: Any, folder: pathlib.Path, every: int, trace: Trace, L: Any, ModelCheckpoint: Any) -> None:
    """Fits a module to the end."""

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = Network()

        def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
            return {**batch, "ids": batch.ids}

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            trace.write(self.trainer.global_step + 1, batch["ids"].tolist())
            return self.network(batch["pixel_values"], batch["labels"])["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    # Each epoch, as by default, or after some steps.
    when: dict[str, Any] = {"every_n_train_steps": every} if every % 6 else {"every_n_epochs": every // 6}
    keep = ModelCheckpoint(dirpath=folder / "checkpoints", filename="{step}", save_top_k=-1, **when)
    saved = sorted((folder / "checkpoints").glob("*.ckpt"), key=lambda path: int(path.stem.split("=")[1]))
    world = int(os.environ.get("WORLD_SIZE", "1"))
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    strategy = "ddp" if world > 1 else "auto"
    trainer = L.Trainer(max_epochs=EPOCHS, accelerator="cpu", devices=world, strategy=strategy, callbacks=[keep], **quiet)
    trainer.fit(Module(), datamodule=data, ckpt_path=saved[-1] if saved else None, weights_only=False)


def transformers(dataset: str, folder: pathlib.Path, every: int, trace: Trace, skips: bool = False) -> None:
    """Trains with `Trainer`."""
    import spdl_cluster.transformers
    from transformers import Trainer, TrainingArguments

    class OurTrainer(Trainer):
        def get_train_dataloader(self) -> Any:
            return spdl_cluster.local(training(dataset))

        def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
            trace.write(self.state.global_step + 1, inputs.ids.tolist())
            return super().training_step(model, inputs, num_items_in_batch)

    arguments = TrainingArguments(
        output_dir=str(folder / "checkpoints"), num_train_epochs=EPOCHS, save_strategy="steps", save_steps=every, report_to=[], use_cpu=True,
        disable_tqdm=True, ignore_data_skip=not skips,
    )  # fmt: skip
    trainer = OurTrainer(model=Network(), args=arguments, callbacks=[spdl_cluster.transformers.ResumeLoader()])
    trainer.train(resume_from_checkpoint=any((folder / "checkpoints").glob("checkpoint-*")))


def transformers_that_skips(dataset: str, folder: pathlib.Path, every: int, trace: Trace) -> None:
    """Trains with `Trainer`, which skips batches as it does by default."""
    transformers(dataset, folder, every, trace, skips=True)


def accelerate(dataset: str, folder: pathlib.Path, every: int, trace: Trace) -> None:
    """Trains with Accelerate, whose checkpoints have the loader's state."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    network = Network()
    loader = spdl_cluster.local(training(dataset))
    network, optimiser, loader = accelerator.prepare(network, torch.optim.SGD(network.parameters(), lr=0.01), loader)
    accelerator.register_for_checkpointing(loader)
    saved = sorted(int(path.name) for path in (folder / "checkpoints").glob("*"))
    step = saved[-1] if saved else 0
    if saved:
        accelerator.load_state(str(folder / "checkpoints" / str(step)))
    for _ in range(loader.epoch, EPOCHS):
        for batch in loader:
            step += 1
            trace.write(step, batch.ids.tolist())
            loss = network(batch["pixel_values"], batch["labels"])["loss"]
            accelerator.backward(loss)
            optimiser.step()
            optimiser.zero_grad()
            if step % every == 0:
                accelerator.save_state(str(folder / "checkpoints" / str(step)))


def main() -> None:
    """Runs a program."""
    name, dataset, folder, every, kill_after = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    globals()[name](dataset, pathlib.Path(folder), int(every), Trace(pathlib.Path(folder), int(kill_after)))
    leave()


if __name__ == "__main__":
    main()
