"""Trains a small segmentation network on pictures with masks, and writes the classes that it finds in the size of the stored
pictures. It goes on in the middle of an epoch after any interruption.

    spdl-ctl index photos --out dataset
    spdl-ctl job submit examples/masks-train.toml; spdl-ctl job submit examples/masks-val.toml
    SPDL_COORD=head:7400 SPDL_CERTS=certs/client torchrun --nproc-per-node 8 python/examples/train_segmentation.py \\
        --job masks-train --validate masks-val --classes 21 --checkpoint network.pt --results classes
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
from typing import Any

import spdl_cluster
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

#: The class of pixels beyond the picture: the `ignore_index` of the mask's column.
IGNORED = 255


class Network(nn.Module):
    """Gives each pixel a score for each class."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, classes, 3, padding=1),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Returns the scores of classes, as large as the pictures."""
        scores = self.layers(images.permute(0, 3, 1, 2).float() / 255)
        return nn.functional.interpolate(scores, size=images.shape[1:3], mode="bilinear", align_corners=False)


def to_stored(scores: Tensor, to_picture: Tensor, size: Tensor) -> Tensor:
    """Returns the classes of the stored picture, which has this height and width, from the scores in the batch."""
    height, width = size.tolist()
    rows, columns = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    places = torch.stack([columns, rows, torch.ones_like(rows)], -1) @ torch.linalg.inv(to_picture).T
    # `grid_sample` has -1 and 1 at the edges.
    sides = torch.tensor([scores.shape[2], scores.shape[1]])
    grid = places[..., :2] / places[..., 2:] / sides * 2 - 1
    return nn.functional.grid_sample(scores[None], grid[None], align_corners=False)[0].argmax(0)


def validate(model: nn.Module, loader: spdl_cluster.Loader, arguments: argparse.Namespace) -> str:
    """Returns the mean of the classes' intersections over unions as text, and writes the classes of each picture."""
    counts = torch.zeros(arguments.classes, arguments.classes)
    model.eval()
    with torch.no_grad():
        for batch in loader:
            scores = model(batch["image"])
            mask = batch["mask"].long()
            # The last batch of a rank can have empty entries.
            counted = (mask != IGNORED) & batch.valid[:, None, None]
            pairs = mask[counted] * arguments.classes + scores.argmax(1)[counted]
            counts += torch.bincount(pairs, minlength=arguments.classes**2).view_as(counts)
            for entry in batch.valid.nonzero().flatten().tolist() if arguments.results else []:
                classes = to_stored(scores[entry], batch["to_picture"][entry], batch["picture_size"][entry])
                arguments.results.mkdir(exist_ok=True)
                torch.save(classes.to(torch.uint8), arguments.results / f"{int(batch.ids[entry])}.pt")
    model.train()
    dist.all_reduce(counts)
    unions = counts.sum(0) + counts.sum(1) - counts.diagonal()
    mean = (counts.diagonal() / unions)[unions > 0].mean()
    return f"mean intersection over union {mean:.3f} of {int(counts.sum())} pixels"


def main() -> None:
    """Trains to the end of the job, or for some steps, and validates after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", required=True, help="the cluster's job to train with")
    parser.add_argument("--validate", required=True, help="the cluster's job to validate with")
    parser.add_argument("--classes", type=int, required=True, help="more than the greatest label")
    parser.add_argument("--checkpoint", type=pathlib.Path, required=True, help="file to save to, and to go on from where it exists")
    parser.add_argument("--results", type=pathlib.Path, help="folder for the classes of each picture")
    parser.add_argument("--steps", type=int, help="stop after so many steps; the next start goes on from there")
    arguments = parser.parse_args()

    torch.manual_seed(17)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Network(arguments.classes))
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    state = None
    if arguments.checkpoint.exists():
        checkpoint = torch.load(arguments.checkpoint, weights_only=True)
        model.module.load_state_dict(checkpoint["model"])
        optimiser.load_state_dict(checkpoint["optimiser"])
        state = checkpoint["loader"]

    seen: list[tuple[int, int]] = []
    losses: list[float] = []
    with (
        spdl_cluster.connect(job=arguments.job, state=state) as loader,
        spdl_cluster.connect(job=arguments.validate) as validation,
    ):
        stops = False
        for epoch in range(loader.epoch, loader.epochs):
            for batch in loader:
                seen += zip(batch.epochs.tolist(), batch.ids.tolist(), strict=True)
                loss = nn.functional.cross_entropy(model(batch["image"]), batch["mask"].long(), ignore_index=IGNORED)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                losses.append(float(loss.detach()))
                stops = len(losses) == arguments.steps
                if stops:
                    break
            if dist.get_rank() == 0:
                save(arguments.checkpoint, model.module, optimiser, loader)
            if stops:
                break
            verdict = validate(model.module, validation, arguments)
            if dist.get_rank() == 0:
                print(f"epoch {epoch}: loss {losses[-1]:.3f}; {verdict}")
    everything = gathered(seen)
    if dist.get_rank() == 0:
        print(json.dumps({"seen": [sample for of_rank in everything for sample in of_rank], "losses": losses}))
    dist.destroy_process_group()


def gathered(value: Any) -> list[Any]:
    """Returns the values of all ranks, by rank."""
    everything: list[Any] = [None] * dist.get_world_size()
    # A group of its own: threads of the default group can outlive Python objects that they release.
    dist.all_gather_object(everything, value, group=dist.new_group())
    return everything


def save(path: pathlib.Path, model: nn.Module, optimiser: torch.optim.Optimizer, loader: spdl_cluster.Loader) -> None:
    """Saves a checkpoint atomically."""
    checkpoint = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "loader": loader.state_dict()}
    partial = path.with_suffix(".partial")
    torch.save(checkpoint, partial)
    os.replace(partial, path)


if __name__ == "__main__":
    main()
