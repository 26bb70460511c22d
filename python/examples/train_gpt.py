"""Trains a small GPT on sequences of tokens, with attention that stays within documents, and goes on with any number of ranks.

    spdl-run --job train.toml -- torchrun --standalone --nproc-per-node 2 python/examples/train_gpt.py --checkpoint gpt.pt --steps 20
    torchrun --standalone --nproc-per-node 2 python/examples/train_gpt.py --job train.toml       # the pipeline in this process

The job has `[sequence]`, a column `tokens`, and `labels` and `positions` that follow it, as `spdl-ctl job init` writes them. With `--checkpoint FILE` the training goes on where the file was saved, and saves it at the end, after `--every` steps, and when
`--steps` are over.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from resumable import Training, options
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention


class Block(nn.Module):
    """Attention and a perceptron, each added to what it gets."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_perceptron = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inward, self.outward = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        rows, places, width = x.shape
        of_heads = self.inward(self.before_attention(x)).view(rows, places, 3, self.heads, width // self.heads)
        queries, keys, values = of_heads.permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        x = x + self.outward(seen.transpose(1, 2).reshape(rows, places, width))
        return x + self.perceptron(self.before_perceptron(x))


def waves(positions: Tensor, width: int) -> Tensor:
    """Returns a code of each position: sines and cosines of many wavelengths."""
    rates = 10_000 ** torch.linspace(0, -1, width // 2, device=positions.device)
    angles = positions[..., None] * rates
    return torch.cat([angles.sin(), angles.cos()], -1)


class GPT(nn.Module):
    """A decoder. A place sees those before it in its document, and no other document."""

    def __init__(self, vocab: int, width: int = 64, heads: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.last, self.scores = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, tokens: Tensor, positions: Tensor, document_ids: Tensor) -> Tensor:
        is_same = document_ids[:, None, :, None] == document_ids[:, None, None, :]
        mask = is_same & torch.ones(tokens.shape[1:] * 2, dtype=torch.bool, device=tokens.device).tril()
        x = self.tokens(tokens)
        x = x + waves(positions, x.shape[-1])
        for block in self.blocks:
            x = block(x, mask)
        return self.scores(self.last(x))


def main() -> None:
    """Trains to the end of the job, or for some steps."""
    parser = options(__doc__)
    parser.add_argument("--vocab", type=int, default=257, help="that of the job's column of tokens")
    arguments = parser.parse_args()
    training = Training(arguments, lambda: GPT(arguments.vocab))
    model, optimiser, rank, world = training.model, training.optimiser, training.rank, training.world
    with training.loader as loader:
        for done, batch in training.batches():
            # Documents are where positions begin again.
            scores = model(batch["tokens"], batch["positions"], (batch["positions"] == 0).cumsum(1))
            # Labels are shifted already, and -100, which is not counted, where nothing follows: at a document's end, and in padding.
            labels = batch["labels"]
            loss = cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="sum")
            # The mean is that of the step's tokens, of which ranks have different numbers. DDP divides gradients by `world`.
            tokens = max(batch.global_loss_tokens, 1)
            optimiser.zero_grad()
            (loss * world / tokens).backward()
            total = loss.detach()
            dist.all_reduce(total)
            optimiser.step()
            at = batch.position
            training.report(f"epoch {at.epoch}, sequence {at.offset}: loss {total.item() / tokens:.3f} of {tokens} tokens")
            if training.is_due(done):
                training.save()
        if arguments.checkpoint:
            training.save()
        print(f"rank {rank} of {world}: audit with --receipt {loader.receipt}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
