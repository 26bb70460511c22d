"""Trains a small policy of a robot by imitation, and goes on in the middle of an epoch after any interruption.

    spdl-run --job robot.toml -- torchrun --standalone --nproc-per-node 2 python/examples/train_policy.py --checkpoint policy.pt
    torchrun --standalone --nproc-per-node 2 python/examples/train_policy.py --job robot.toml      # the pipeline in this process

The job is of a dataset of LeRobot's, and its columns are called as the features: `observation.state` and a camera, both with the frames of
`deltas`, and a chunk of `action` with its `action_is_pad`. With `--checkpoint FILE` the training goes on where the file was saved, and saves it
after `--every` steps and at the end, with the receipt of all launches: what `spdl-ctl audit` compares with the plan.
"""

from __future__ import annotations

from typing import Any

import torch
from resumable import Training, options
from spdl_cluster.lerobot import as_lerobot
from torch import Tensor, nn

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


def main() -> None:
    """Trains to the end of the job, or for some steps."""
    parser = options(__doc__)
    parser.add_argument("--camera", default="observation.images.top", help="the column of the camera")
    parser.add_argument("--frames", type=int, default=2, help="the frames of the camera and of the state")
    parser.add_argument("--state", type=int, default=14, help="the numbers of a state")
    parser.add_argument("--action", type=int, default=7, help="the numbers of an action")
    parser.add_argument("--chunk", type=int, default=50, help="the actions of a chunk")
    arguments = parser.parse_args()
    training = Training(arguments, lambda: Policy(arguments.frames, arguments.state, (arguments.chunk, arguments.action)))
    training.run(lambda model, batch: loss_of(model, arguments.camera, as_lerobot(batch), batch.valid))


if __name__ == "__main__":
    main()
