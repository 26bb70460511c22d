"""Trains a small detector on data in the form of COCO, and writes what it finds as COCO's evaluation reads it. It goes on in the
middle of an epoch after any interruption.

    spdl-ctl index photos --table instances.json --out dataset
    spdl-ctl job submit examples/coco-train.toml; spdl-ctl job submit examples/coco-val.toml
    SPDL_COORD=head:7400 SPDL_CERTS=certs/client torchrun --nproc-per-node 8 python/examples/train_detection.py \\
        --job coco-train --validate coco-val --classes 91 --checkpoint detector.pt --results results.json

The model takes and returns what torchvision's detection models do: put one of these in its place. If the validation's job has the columns
`boxes` and `labels` too, torchmetrics computes the mean average precision.
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

#: Pixels of a side of a cell.
CELL = 16


class Detector(nn.Module):
    """Looks for the middle of an object in each cell of the picture."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        channels = [3, 16, 32, 64, 64]
        layers: list[nn.Module] = []
        for before, after in zip(channels, channels[1:], strict=False):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GroupNorm(8, after), nn.ReLU()]
        # Whether there is an object, its class, and how far its edges are from the cell's middle.
        self.layers = nn.Sequential(*layers, nn.Conv2d(channels[-1], 1 + classes + 4, 3, padding=1))

    def forward(self, images: list[Tensor], targets: list[dict[str, Tensor]] | None = None) -> Any:
        """Returns the losses by name, or without targets the `boxes`, `labels` and `scores` that are found in each picture."""
        found = self.layers(torch.stack(images)).permute(0, 2, 3, 1)
        there, kinds, edges = found.split([1, self.classes, 4], dim=-1)
        if targets is None:
            return [self.best(*of_picture) for of_picture in zip(there[..., 0].sigmoid(), kinds, edges, strict=True)]
        wanted = torch.zeros_like(there[..., 0])
        picture = torch.cat([torch.full((len(target["boxes"]),), number) for number, target in enumerate(targets)])
        boxes = torch.cat([target["boxes"] for target in targets])
        labels = torch.cat([target["labels"] for target in targets])
        middle = (boxes[:, :2] + boxes[:, 2:]) / 2
        column, row = (middle / CELL).long().clamp(min=0).unbind(1)
        row, column = row.clamp(max=wanted.shape[1] - 1), column.clamp(max=wanted.shape[2] - 1)
        wanted[picture, row, column] = 1
        centre = (torch.stack([column, row], 1) + 0.5) * CELL
        reach = torch.cat([centre - boxes[:, :2], boxes[:, 2:] - centre], 1) / CELL
        return {
            "there": nn.functional.binary_cross_entropy_with_logits(there[..., 0], wanted),
            "kinds": nn.functional.cross_entropy(kinds[picture, row, column], labels, reduction="sum") / max(1, len(labels)),
            "edges": nn.functional.l1_loss(edges[picture, row, column], reach, reduction="sum") / max(1, len(labels)),
        }

    @staticmethod
    def best(scores: Tensor, kinds: Tensor, edges: Tensor, most: int = 20) -> dict[str, Tensor]:
        """Returns the objects of a picture with the highest scores."""
        best = scores.flatten().topk(min(most, scores.numel()))
        row, column = best.indices // scores.shape[1], best.indices % scores.shape[1]
        centre, reach = (torch.stack([column, row], 1) + 0.5) * CELL, edges[row, column] * CELL
        boxes = torch.cat([centre - reach[:, :2], centre + reach[:, 2:]], 1)
        return {"boxes": boxes, "labels": kinds[row, column].argmax(1), "scores": best.values}


def images_of(batch: spdl_cluster.Batch) -> list[Tensor]:
    """Returns the pictures as torchvision's models take them: a list, channels first, from 0 to 1."""
    return list(batch["image"].permute(0, 3, 1, 2).float() / 255)


def targets_of(batch: spdl_cluster.Batch) -> list[dict[str, Tensor]]:
    """Returns the boxes and labels of each picture."""
    return [{"boxes": boxes, "labels": labels} for boxes, labels in zip(batch["boxes"], batch["labels"], strict=True)]


def to_stored(boxes: Tensor, to_picture: Tensor, size: Tensor) -> Tensor:
    """Returns boxes in pixels of the stored picture, which has this height and width. A letterbox scales and moves."""
    scale, offset = torch.diagonal(to_picture)[:2], to_picture[:2, 2]
    corners = boxes.view(-1, 2, 2) * scale + offset
    return corners.clamp(min=0).minimum(size.flip(0).to(corners)).view(-1, 4)


def validate(model: nn.Module, loader: spdl_cluster.Loader, arguments: argparse.Namespace) -> str:
    """Finds the objects of all pictures, and returns their number, and how good they are, as text."""
    results = []
    judged = []
    model.eval()
    with torch.no_grad():
        for batch in loader:
            found = model(images_of(batch))
            ways = zip(found, batch["to_picture"], batch["picture_size"], batch["image_id"], strict=True)
            # The last batch of a rank can have empty entries.
            for (objects, to_picture, size, image_id), valid in zip(ways, batch.valid.tolist(), strict=True):
                boxes = to_stored(objects["boxes"], to_picture, size)
                boxes[:, 2:] -= boxes[:, :2]
                each = zip(boxes.tolist(), objects["labels"].tolist(), objects["scores"].tolist(), strict=True)
                results += [
                    {"image_id": int(image_id), "category_id": label, "bbox": box, "score": score}
                    for box, label, score in each
                    if valid
                ]
            if "boxes" in batch:
                # Copies, because the batch's memory is used again.
                targets = [{name: value.clone() for name, value in target.items()} for target in targets_of(batch)]
                judged += [pair for pair, valid in zip(zip(found, targets), batch.valid.tolist(), strict=True) if valid]
    model.train()
    of_all = [result for of_rank in gathered(results) for result in of_rank]
    pairs = [pair for of_rank in gathered(judged) for pair in of_rank]
    if arguments.results and dist.get_rank() == 0:
        arguments.results.write_text(json.dumps(of_all))
    text = f"{len(of_all)} objects in {len({result['image_id'] for result in of_all})} pictures"
    return f"{text}; {precision(pairs)}" if pairs and dist.get_rank() == 0 else text


def precision(pairs: list[tuple[Any, Any]]) -> str:
    """Returns the mean average precision of what was found, beside what is there, of all ranks' pictures."""
    from torchmetrics.detection import MeanAveragePrecision

    # torchmetrics would gather from the ranks what they have exchanged already, which fails where one has fewer pictures.
    metric = MeanAveragePrecision(sync_on_compute=False)
    metric.update([found for found, _ in pairs], [target for _, target in pairs])
    scores = metric.compute()
    return f"mAP {scores['map']:.3f}, at 0.5 {scores['map_50']:.3f}, of {len(pairs)} pictures"


def main() -> None:
    """Trains to the end of the job, or for some steps, and validates after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", required=True, help="the cluster's job to train with")
    parser.add_argument("--validate", required=True, help="the cluster's job to validate with")
    parser.add_argument("--classes", type=int, required=True, help="more than the greatest label")
    parser.add_argument("--checkpoint", type=pathlib.Path, required=True, help="file to save to, and to go on from where it exists")
    parser.add_argument("--results", type=pathlib.Path, help="file for the objects, as `pycocotools` loads it")
    parser.add_argument("--steps", type=int, help="stop after so many steps; the next start goes on from there")
    arguments = parser.parse_args()

    torch.manual_seed(17)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Detector(arguments.classes))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
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
                loss = sum(model(images_of(batch), targets_of(batch)).values())
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
