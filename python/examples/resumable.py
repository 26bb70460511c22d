"""What train_gpt.py, train_policy.py and train_speech.py have in common: a training by the ranks of `torchrun` that goes on in the middle of an
epoch after any interruption. Copy it with the program."""

from __future__ import annotations

import argparse
import itertools
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import spdl_cluster
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def options(text: str | None) -> argparse.ArgumentParser:
    """Returns the options of every program."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", help="a job file; without it, the launcher or the SPDL_* variables name a cluster's job")
    parser.add_argument("--checkpoint", type=pathlib.Path, help="file to save to, and to go on from where it exists")
    parser.add_argument("--every", type=int, default=100, help="steps between two checkpoints")
    parser.add_argument("--steps", type=int, help="steps of this launch, at most")
    return parser


class Training:
    """A model that `make` makes, as its checkpoint has it if there is one, with a loader that goes on where that was saved."""

    def __init__(self, arguments: argparse.Namespace, make: Callable[[], nn.Module]) -> None:
        torch.manual_seed(17)
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.arguments, self.rank, self.world = arguments, dist.get_rank(), dist.get_world_size()
        self.model = DistributedDataParallel(make())
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        saved: dict[str, Any] = {}
        if arguments.checkpoint and arguments.checkpoint.exists():
            saved = torch.load(arguments.checkpoint, weights_only=True)
            self.model.module.load_state_dict(saved["model"])
            self.optimiser.load_state_dict(saved["optimiser"])
        self.earlier, state = int(saved.get("receipt", "0"), 16), saved.get("loader")
        self.loader = spdl_cluster.local(arguments.job, state=state) if arguments.job else spdl_cluster.connect(state=state)

    def batches(self) -> Iterator[tuple[int, spdl_cluster.Batch]]:
        """Gives the batches of all epochs that are left, or of some steps, with their numbers from 1 on."""
        batches = (batch for _ in range(self.loader.epoch, self.loader.epochs) for batch in self.loader)
        return enumerate(itertools.islice(batches, self.arguments.steps), 1)

    def is_due(self, done: int) -> bool:
        """Whether a checkpoint is to be saved after so many steps."""
        return bool(self.arguments.checkpoint) and done % self.arguments.every == 0

    def save(self, **parts: Any) -> None:
        """Saves a checkpoint atomically. The loader's part is the same on all ranks, and good for any number of them."""
        parts |= {"model": self.model.module.state_dict(), "optimiser": self.optimiser.state_dict(), "loader": self.loader.state_dict()}
        if self.rank == 0:
            partial = self.arguments.checkpoint.with_suffix(".partial")
            torch.save(parts, partial)
            os.replace(partial, self.arguments.checkpoint)

    def receipt(self) -> str:
        """Returns the receipt of all ranks, of this launch and of those that led to its checkpoint."""
        mine = torch.tensor(list(bytes.fromhex(self.loader.receipt)))
        of_ranks = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(of_ranks, mine)
        of_all = sum(int.from_bytes(bytes(of_rank.tolist()), "big") for of_rank in of_ranks)
        return f"{(self.earlier + of_all) % (1 << 128):032x}"

    def report(self, text: str) -> None:
        """Prints a line on rank 0, in one piece: all ranks write into one pipe."""
        if self.rank == 0:
            print(f"{text}\n", end="", flush=True)

    def run(self, loss_of: Callable[[nn.Module, spdl_cluster.Batch], Tensor], clip: float | None = None) -> None:
        """Trains to the end of the job, or for some steps. `loss_of` returns the sum of the samples' losses; gradients are cut to the norm `clip`."""
        with self.loader:
            for done, batch in self.batches():
                loss = loss_of(self.model, batch)
                self.optimiser.zero_grad()
                # DDP divides gradients by `world`.
                (loss * self.world / self.loader.global_batch).backward()
                if clip:
                    nn.utils.clip_grad_norm_(self.model.parameters(), clip)
                self.optimiser.step()
                total = torch.stack([loss.detach(), batch.valid.sum()])
                dist.all_reduce(total)
                at = batch.position
                self.report(f"epoch {at.epoch}, sample {at.offset}: loss {total[0] / total[1]:.3f}")
                if self.is_due(done):
                    self.save(receipt=self.receipt())
            if self.arguments.checkpoint:
                self.save(receipt=self.receipt())
            self.report(f"audit with --receipt {self.receipt()}")
        dist.destroy_process_group()
