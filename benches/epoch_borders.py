"""Trains a small GPT on documents that are packed anew in each epoch, and once more in the sequences of the first epoch, shuffled: where
who shares a sequence stays the same, it is learned by heart, and the loss falls at each epoch's border.

usage: python benches/epoch_borders.py [--documents 2000] [--epochs 20] [--plot FILE.png]      (needs torch; the plot, matplotlib)

The documents are copies of 64 texts of 16 tokens, in random order, and attention crosses their borders. A text is learned within an epoch
or two; what comes next in a sequence can only be learned by heart, and shows in the loss of documents' first tokens.
"""

import argparse
import pathlib
import subprocess
import sys
import sysconfig
import tempfile

import numpy as np
import spdl_cluster
import torch
from torch import nn
from torch.nn import functional

TEXTS, LENGTH = 64, 16
SEQ_LEN, BATCH = 128, 8
WORDS = 256
#: Ids: the words, and behind them the first tokens of the texts, each of which occurs nowhere else.
VOCAB = WORDS + TEXTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--plot", type=pathlib.Path, help="draws the losses of all steps")
    args = parser.parse_args()
    torch.set_num_threads(1)
    losses = {}
    with tempfile.TemporaryDirectory() as folder:
        job = job_of(pathlib.Path(folder), args.documents)
        losses["packed once"] = train(packed_once(job, args.epochs))
        losses["packed anew in each epoch"] = train(packed_anew(job, args.epochs))
    print(f"loss of documents' first tokens, mean of each epoch; {np.log(TEXTS):.2f} is that of a guess")
    for name, values in losses.items():
        print(f"{name}:", " ".join(f"{epoch.mean():.2f}" for epoch in np.array_split(np.array(values), args.epochs)))
    if args.plot:
        plot(losses, args.epochs, args.plot)


def job_of(folder: pathlib.Path, documents: int) -> dict:
    """Writes the documents as a file of tokens, indexes it, and returns the job."""
    random = np.random.default_rng(3)
    texts = random.integers(0, WORDS, (TEXTS, LENGTH))
    texts[:, 0] = WORDS + np.arange(TEXTS)
    chosen = texts[random.integers(0, TEXTS, documents)]
    chosen.astype("<u2").tofile(folder / "texts.ds")
    (np.arange(1, documents + 1) * LENGTH).astype("<u8").tofile(folder / "texts.ds.index")
    program = pathlib.Path(sysconfig.get_path("scripts")) / "spdl-ctl"
    subprocess.run([program, "index", folder], check=True, stdout=sys.stderr)
    return {
        "name": "borders",
        "dataset": str(folder),
        "seed": 17,
        "global_batch": BATCH,
        "epochs": 1_000,
        "sequence": {"seq_len": SEQ_LEN},
        "column": [{"name": "tokens", "from": "tokens", "decode": "tokens", "vocab": VOCAB}],
    }


def epoch_of(loader: spdl_cluster.Loader) -> list[torch.Tensor]:
    return [torch.as_tensor(batch["tokens"]).long() for batch in loader]


def packed_anew(job: dict, epochs: int):
    with spdl_cluster.local(job) as loader:
        for _ in range(epochs):
            yield from epoch_of(loader)


def packed_once(job: dict, epochs: int):
    with spdl_cluster.local(job) as loader:
        sequences = torch.cat(epoch_of(loader))
    random = torch.Generator().manual_seed(1)
    for _ in range(epochs):
        yield from sequences[torch.randperm(len(sequences), generator=random)].split(BATCH)


def train(batches) -> list[float]:
    """Trains a new model, and returns for each step the loss of the first tokens of documents."""
    torch.manual_seed(0)
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    losses = []
    for tokens in batches:
        targets = tokens[:, 1:]
        loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), targets.flatten(), reduction="none")
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
        losses.append(loss[targets.flatten() >= WORDS].mean().item())
    return losses


class Gpt(nn.Module):
    """1.9 million parameters."""

    def __init__(self, width: int = 192, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, width), nn.Embedding(SEQ_LEN, width)
        options = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, **options)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.out = nn.Linear(width, VOCAB, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        count = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(count)
        hidden = self.tokens(tokens) + self.places(torch.arange(count))
        return self.out(self.layers(hidden, mask=mask, is_causal=True))


def plot(losses: dict[str, list[float]], epochs: int, target: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(9, 3.6))
    for (name, values), colour in zip(losses.items(), ["#7a8b99", "#c1440e"]):
        axis.plot(np.arange(len(values)) * epochs / len(values), values, label=name, color=colour, linewidth=1)
    axis.set_xticks(range(epochs + 1))
    axis.grid(axis="x", color="0.9")
    axis.set_xlabel("epoch")
    axis.set_ylabel("loss of documents' first tokens")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(target, dpi=90)


if __name__ == "__main__":
    main()
