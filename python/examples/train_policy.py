"""Trains a small policy of a robot by imitation, and goes on in the middle of an epoch after any interruption.

    spdl-run --job robot.toml -- torchrun --standalone --nproc-per-node 2 python/examples/train_policy.py --checkpoint policy.pt
    torchrun --standalone --nproc-per-node 2 python/examples/train_policy.py --job robot.toml      # the pipeline in this process

The job is of a dataset of LeRobot's, and its columns are called as the features: `observation.state` and a camera, both with the frames of
`deltas`, and a chunk of `action` with its `action_is_pad`. With `--checkpoint FILE` the training goes on where the file was saved, and saves it
after `--every` steps and at the end, with the receipt of all launches: what `spdl-ctl audit` compares with the plan.
"""

from __future__ import annotations

import argparse
import itertools
import os
import pathlib
from typing import Any

import spdl_cluster
import torch
import torch.distributed as dist
from spdl_cluster.lerobot import as_lerobot
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

STATE, ACTION = "observation.state", "action"


class Policy(nn.Module):
    """Gives a chunk of actions for the frames of a camera and the states of a robot."""

    def __init__(self, frames: int, state: int, chunk: tuple[int, int], width: int = 64) -> None:
        super().__init__()
        self.chunk = chunk
        self.seen = nn.Sequential(
            nn.Conv2d(3 * frames, 16, 5, stride=4),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.acts = nn.Sequential(nn.Linear(4 * 32 + frames * state, width), nn.ReLU(), nn.Linear(width, chunk[0] * chunk[1]))

    def forward(self, frames: Tensor, states: Tensor) -> Tensor:
        """Returns the actions, `[samples, chunk, action]`."""
        seen = self.seen(frames.flatten(1, 2))
        chunk: Tensor = self.acts(torch.cat([seen, states.flatten(1)], 1)).unflatten(1, self.chunk)
        return chunk


def loss_of(model: nn.Module, camera: str, batch: dict[str, Any], valid: Tensor) -> Tensor:
    """Returns the sum of the samples' losses, each a mean over the actions that are of the episode."""
    is_real = ~batch[f"{ACTION}_is_pad"]
    off = (model(batch[camera], batch[STATE]) - batch[ACTION]).square().mean(-1)
    return ((off * is_real).sum(1) / is_real.sum(1).clamp(min=1) * valid).sum()


def receipt_of_all(receipt: str) -> int:
    """Adds up the receipts of all ranks."""
    mine = torch.tensor(list(bytes.fromhex(receipt)))
    of_ranks = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(of_ranks, mine)
    return sum(int.from_bytes(bytes(of_rank.tolist()), "big") for of_rank in of_ranks)


def main() -> None:
    """Trains to the end of the job, or for some steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", help="a job file; without it, the launcher or the SPDL_* variables name a cluster's job")
    parser.add_argument("--camera", default="observation.images.top", help="the column of the camera")
    parser.add_argument("--frames", type=int, default=2, help="the frames of the camera and of the state")
    parser.add_argument("--state", type=int, default=14, help="the numbers of a state")
    parser.add_argument("--action", type=int, default=7, help="the numbers of an action")
    parser.add_argument("--chunk", type=int, default=50, help="the actions of a chunk")
    parser.add_argument("--checkpoint", type=pathlib.Path, help="file to save to, and to go on from where it exists")
    parser.add_argument("--every", type=int, default=100, help="steps between two checkpoints")
    parser.add_argument("--steps", type=int, help="steps of this launch, at most")
    arguments = parser.parse_args()

    torch.manual_seed(17)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(Policy(arguments.frames, arguments.state, (arguments.chunk, arguments.action)))
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    state, earlier = None, 0
    if arguments.checkpoint and arguments.checkpoint.exists():
        saved = torch.load(arguments.checkpoint, weights_only=True)
        model.module.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        state, earlier = saved["loader"], int(saved["receipt"], 16)

    with spdl_cluster.local(arguments.job, state=state) if arguments.job else spdl_cluster.connect(state=state) as loader:

        def receipt() -> str:
            """Returns the receipt of this launch and of those that led to its checkpoint."""
            return f"{(earlier + receipt_of_all(loader.receipt)) % (1 << 128):032x}"

        def save() -> None:
            """Saves a checkpoint atomically. All ranks call this after the same step."""
            parts = {"model": model.module.state_dict(), "optimiser": optimiser.state_dict()}
            parts.update(loader=loader.state_dict(), receipt=receipt())
            if rank == 0:
                partial = arguments.checkpoint.with_suffix(".partial")
                torch.save(parts, partial)
                os.replace(partial, arguments.checkpoint)

        batches = (batch for _ in range(loader.epoch, loader.epochs) for batch in loader)
        for done, batch in enumerate(itertools.islice(batches, arguments.steps), 1):
            loss = loss_of(model, arguments.camera, as_lerobot(batch), batch.valid)
            optimiser.zero_grad()
            # DDP divides gradients by `world`.
            (loss * world / loader.global_batch).backward()
            optimiser.step()
            total = torch.stack([loss.detach(), batch.valid.sum()])
            dist.all_reduce(total)
            if rank == 0:
                # In one piece: all ranks write into one pipe.
                at = batch.position
                print(f"epoch {at.epoch}, sample {at.offset}: loss {total[0] / total[1]:.3f}\n", end="", flush=True)
            if arguments.checkpoint and done % arguments.every == 0:
                save()
        if arguments.checkpoint:
            save()
        all_of_it = receipt()
        if rank == 0:
            print(f"audit with --receipt {all_of_it}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
