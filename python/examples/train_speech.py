"""Trains a small speech recogniser with CTC, and goes on in the middle of an epoch after any interruption.

    spdl-run --job recogniser.toml -- torchrun --standalone --nproc-per-node 2 python/examples/train_speech.py --checkpoint speech.pt
    torchrun --standalone --nproc-per-node 2 python/examples/train_speech.py --job recogniser.toml      # the pipeline in this process

The job has a column `fbank` of features, whose rows are frames, and a column `text`. The classes are the bytes of UTF-8, so that there is no
vocabulary to make. With `--checkpoint FILE` the training goes on where the file was saved, and saves it after `--every` steps and at the end,
with the receipt of all launches: what `spdl-ctl audit` compares with the plan.
"""

from __future__ import annotations

import argparse
import itertools
import os
import pathlib

import spdl_cluster
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import ctc_loss, log_softmax
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence

#: The class of "no letter here". The others are the bytes.
BLANK = 256


class Recogniser(nn.Module):
    """Gives every second frame a score for each byte."""

    def __init__(self, bands: int, width: int = 96) -> None:
        super().__init__()
        self.before = nn.LayerNorm(bands)
        self.layers = nn.Sequential(
            nn.Conv1d(bands, width, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv1d(width, width, 3, padding=1),
            nn.ReLU(),
        )
        self.memory = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.scores = nn.Linear(2 * width, BLANK + 1)

    def forward(self, frames: Tensor) -> Tensor:
        """Returns the logarithms of probabilities, `[sounds, frames / 2, classes]`."""
        heard, _ = self.memory(self.layers(self.before(frames).transpose(1, 2)).transpose(1, 2))
        return log_softmax(self.scores(heard), -1)


def loss_of(model: nn.Module, batch: spdl_cluster.Batch) -> Tensor:
    """Returns the sum of the samples' losses, each a mean over its letters."""
    fbank, text = batch["fbank"], batch["text"]
    # Shorter sounds end in zeros. At the end of an `exact` epoch a rank can have empty entries, which are one frame long.
    frames = pad_sequence([*fbank, fbank.values.new_zeros(1, fbank.values.shape[1])], batch_first=True)[:-1]
    lengths = ((fbank.lengths + 1) // 2).clamp(min=1)
    # CTC takes the letters of all texts end to end, as the column has them.
    of_samples = ctc_loss(
        model(frames).transpose(0, 1), text.values.long(), lengths, text.lengths, blank=BLANK, reduction="none", zero_infinity=True
    )
    return (of_samples / text.lengths.clamp(min=1) * batch.valid).sum()


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
    parser.add_argument("--bands", type=int, default=80, help="the bands of the features")
    parser.add_argument("--checkpoint", type=pathlib.Path, help="file to save to, and to go on from where it exists")
    parser.add_argument("--every", type=int, default=100, help="steps between two checkpoints")
    parser.add_argument("--steps", type=int, help="steps of this launch, at most")
    arguments = parser.parse_args()

    torch.manual_seed(17)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(Recogniser(arguments.bands))
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
            loss = loss_of(model, batch)
            optimiser.zero_grad()
            # DDP divides gradients by `world`.
            (loss * world / loader.global_batch).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5)
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
