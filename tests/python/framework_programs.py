"""Programs of frameworks' users, as their tutorials write them, with a loader of ours where they have a DataLoader.

    torchrun --nproc-per-node 2 framework_programs.py NAME DATASET OUTPUT

Each evaluates the dataset and writes what its rank has found as JSON to `OUTPUT/RANK.json`.
"""

from __future__ import annotations

import gc
import json
import os
import pathlib
import sys
from typing import Any

import spdl_cluster
import torch
import torch.distributed
from torch import nn

#: Of the demo's pictures.
CLASSES = 9


def job(dataset: str, **keys: Any) -> dict[str, Any]:
    """Returns the job of an evaluation, with the names that models of `transformers` have for their inputs."""
    ops = [{"resize": {"size": 36}}, {"center_crop": {"size": 32}}]
    image = {"name": "pixel_values", "from": "jpg", "decode": "image", "ops": ops, "dtype": "f32", "layout": "nchw"}
    label = {"name": "labels", "from": "cls", "decode": "int"}
    return {"name": "evaluation", "dataset": dataset, "global_batch": 64, "shuffle": False, "column": [image, label], **keys}


class Network(nn.Module):
    """A small network, the same in each process."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, CLASSES))

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        """Returns the logits, and the loss if there are labels."""
        logits = self.layers(pixel_values)
        return {"logits": logits} if labels is None else {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def plain(dataset: str) -> dict[str, Any]:
    """Evaluates in a loop of one's own: the right counts."""
    network = Network().eval()
    seen = right = 0
    loss = 0.0
    with torch.no_grad(), spdl_cluster.local(job(dataset, global_batch=16)) as loader:
        for batch in loader:
            logits = network(batch["pixel_values"])["logits"]
            seen += len(batch["labels"])
            right += int((logits.argmax(1) == batch["labels"]).sum())
            loss += float(nn.functional.cross_entropy(logits, batch["labels"], reduction="sum"))
    return {"seen": seen, "right": right, "loss": loss / seen}


def lightning(dataset: str) -> dict[str, Any]:
    """Validates during `fit`, after a sanity check, and with `validate`; the metrics are those of torchmetrics."""
    import lightning as L
    import torchmetrics

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = Network()
            self.accuracy = torchmetrics.classification.MulticlassAccuracy(CLASSES, average="micro")
            self.seen = torchmetrics.SumMetric()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return self.network(batch["pixel_values"], batch["labels"])["loss"]

        def validation_step(self, batch: Any, index: int) -> None:
            logits = self.network(batch["pixel_values"])["logits"]
            self.accuracy(logits, batch["labels"])
            # Lightning has copied the batch to its device.
            self.seen(int(batch.valid.sum()))
            self.log("accuracy", self.accuracy)
            self.log("seen", self.seen)
            self.log("loss", nn.functional.cross_entropy(logits, batch["labels"]), sync_dist=True, on_epoch=True)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            # Nothing is learnt, so that the counts stay the same.
            return torch.optim.SGD(self.parameters(), lr=0.0)

    world = int(os.environ.get("WORLD_SIZE", "1"))
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = L.Trainer(max_epochs=2, accelerator="cpu", devices=world, strategy="ddp" if world > 1 else "auto", **quiet)
    module = Module()
    with spdl_cluster.local(job(dataset, name="train", shuffle=True, epochs=2)) as train, spdl_cluster.local(job(dataset)) as validation:
        trainer.validate(module, dataloaders=validation)
        found = {name: float(value) for name, value in trainer.callback_metrics.items()}
        trainer.fit(module, train_dataloaders=train, val_dataloaders=validation)
        fitted = float(trainer.callback_metrics["seen"])
    return {"seen": found["seen"], "right": found["accuracy"] * found["seen"], "loss": found["loss"], "fitted": fitted}


def transformers(dataset: str, **keys: Any) -> dict[str, Any]:
    """Evaluates with `Trainer.evaluate`."""
    from transformers import EvalPrediction, Trainer, TrainingArguments

    class OurTrainer(Trainer):
        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            return loader

    def metrics(predictions: EvalPrediction) -> dict[str, float]:
        right = (predictions.predictions.argmax(1) == predictions.label_ids).sum()
        return {"seen": len(predictions.label_ids), "right": float(right)}

    with spdl_cluster.local(job(dataset, **keys)) as loader:
        size = loader.global_batch // loader.world
        arguments = TrainingArguments(
            output_dir=os.path.join(os.getcwd(), "trainer"), per_device_eval_batch_size=size, report_to=[], use_cpu=True, disable_tqdm=True
        )
        trainer = OurTrainer(model=Network(), args=arguments, compute_metrics=metrics)
        found = [trainer.evaluate() for _ in range(2)]
    return {name: found[1][f"eval_{name}"] for name in ("seen", "right", "loss")}


def accelerate(dataset: str, **keys: Any) -> dict[str, Any]:
    """Evaluates twice with `prepare` and `gather_for_metrics`."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    with spdl_cluster.local(job(dataset, **keys)) as loader:
        model, loader = accelerator.prepare(Network(), loader)
        model.eval()
        for _ in range(2):
            seen = right = 0
            loss = 0.0
            ids: list[int] = []
            counted = 0
            for batch in loader:
                with torch.no_grad():
                    logits = model(batch["pixel_values"])["logits"]
                logits, labels, numbers = accelerator.gather_for_metrics((logits, batch["labels"], batch.ids.clone()))
                seen += len(labels)
                right += int((logits.argmax(1) == labels).sum())
                loss += float(nn.functional.cross_entropy(logits, labels, reduction="sum"))
                ids += numbers.tolist()
                counted += int(accelerator.reduce(batch.valid.sum()))
                assert len(batch["labels"]) == batch.samples == len(batch.valid)
            assert ids == list(range(seen)) and counted == seen and loader.position == (1, 0), ids
    return {"seen": seen, "right": right, "loss": loss / seen}


def transformers_one_left(dataset: str) -> dict[str, Any]:
    """Evaluates in batches of 66, of which the last has one sample: none for the first of two ranks."""
    return transformers(dataset, global_batch=66)


def accelerate_one_left(dataset: str) -> dict[str, Any]:
    """Evaluates in batches of 66, of which the last has one sample: none for the first of two ranks."""
    return accelerate(dataset, global_batch=66)


def accelerate_padded(dataset: str) -> dict[str, Any]:
    """Evaluates in full batches, where the first samples fill up the last one."""
    return accelerate(dataset, epoch_end="pad")


def alone(dataset: str) -> dict[str, Any]:
    """Begins an evaluation with Accelerate as one of two ranks that torch knows nothing of."""
    from accelerate import Accelerator

    Accelerator(cpu=True)
    with spdl_cluster.local(job(dataset), rank=0, world=2) as loader:
        try:
            next(iter(loader))
        except spdl_cluster.SettingError as error:
            return {"error": str(error)}
    return {}


def leave() -> None:
    """Ends the process group of a program that has used it: Gloo's threads may still hold Python objects, and abort a process that exits
    while they release them (https://github.com/pytorch/pytorch/pull/179291). DDP keeps the threads alive, so it goes first."""
    gc.collect()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def main() -> None:
    """Runs a program and writes what it found."""
    name, dataset, output = sys.argv[1:]
    found = globals()[name](dataset)
    pathlib.Path(output, f"{os.environ.get('RANK', '0')}.json").write_text(json.dumps(found))
    leave()


if __name__ == "__main__":
    main()
