"""Trains a small speech recogniser with CTC, and goes on in the middle of an epoch after any interruption.

    spdl-run --job recogniser.toml -- torchrun --standalone --nproc-per-node 2 python/examples/train_speech.py --checkpoint speech.pt
    torchrun --standalone --nproc-per-node 2 python/examples/train_speech.py --job recogniser.toml      # the pipeline in this process

The job has a column `fbank` of features, whose rows are frames, and a column `text`. The classes are the bytes of UTF-8, so that there is no
vocabulary to make. With `--checkpoint FILE` the training goes on where the file was saved, and saves it after `--every` steps and at the end,
with the receipt of all launches: what `spdl-ctl audit` compares with the plan.
"""

from __future__ import annotations

import spdl_cluster
from resumable import Training, options
from torch import Tensor, nn
from torch.nn.functional import ctc_loss, log_softmax
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


def main() -> None:
    """Trains to the end of the job, or for some steps."""
    parser = options(__doc__)
    parser.add_argument("--bands", type=int, default=80, help="the bands of the features")
    arguments = parser.parse_args()
    Training(arguments, lambda: Recogniser(arguments.bands)).run(loss_of, clip=5)


if __name__ == "__main__":
    main()
