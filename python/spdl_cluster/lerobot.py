"""What policies of LeRobot take: the batches of a job whose columns are called as a dataset's features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .batch import Ragged

#: The channels of a picture.
_CHANNELS = 3
#: The dimensions of a batch of pictures, at least.
_SIDES = 4


def as_lerobot(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a batch as the dict that a LeRobot policy takes, as LeRobot's own DataLoader makes it.

    Columns keep their names: call them as the features of the dataset, and a column `is_pad` of `action` `action_is_pad`. Columns of
    text, such as `task`, become lists of strings, and columns of pictures of type `u8` floats from 0 to 1, channels first:
    `[samples, 3, height, width]`, or `[samples, frames, 3, height, width]`. All others are the batch's own tensors.
    """
    return {name: _value(values) for name, values in batch.items()}


def _value(values: Any) -> Any:
    if isinstance(values, Ragged):
        return values.text()
    tensor: torch.Tensor = torch.as_tensor(values)
    if tensor.dtype != torch.uint8 or tensor.ndim < _SIDES or _CHANNELS not in (tensor.shape[-1], tensor.shape[-3]):
        return tensor
    # Channels come last in the batch, unless the column has `layout = "nchw"`.
    is_first = tensor.shape[-3] == _CHANNELS and tensor.shape[-1] != _CHANNELS
    return (tensor if is_first else tensor.movedim(-1, -3)).float() / 255
