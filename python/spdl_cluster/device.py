"""What a loader on a device is told: how many buffers, and what becomes of pictures on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .errors import SettingError


@dataclass(frozen=True)
class Normalise:
    """What a column of pictures, u8 `[n, height, width, 3]`, becomes on the device: `(value / 255 - mean) / std`, `[n, 3, height, width]`.

    So only bytes cross the bus. The same bits come of it as where the job has `normalise`, on the host too, where it takes a thread's time.
    """

    #: Red, green and blue; of values from 0 to 1.
    mean: Sequence[float]
    #: Red, green and blue.
    std: Sequence[float]
    #: Type of the result.
    dtype: Literal["f16", "bf16", "f32"] = "f32"
    #: Order of the result in memory. The shape is the same; with `"channels_last"` the strides are those of torch's `channels_last`.
    layout: Literal["nchw", "channels_last"] = "nchw"
    #: Probability that a picture is mirrored, left to right; 0 never, 1 always. The draw is the sample's and the epoch's, whatever the world size.
    flip: float = 0.0
    #: Key of these draws; another one for each column that is to be mirrored independently.
    seed: int = 0


@dataclass(frozen=True)
class DeviceOptions:
    """Options of a loader with `device=`."""

    #: Batches that can be on a GPU at once: in the caller's hands, ready, and being copied; at least 2. Raised, more of its memory is taken, a
    #: batch for each.
    buffers: int = 4
    #: Columns of pictures that are normalised on the device, by name.
    normalise: Mapping[str, Normalise] = field(default_factory=dict)
    #: The largest slab that is page-locked; one that is larger is copied through the driver's own buffer, which is slower. Raised, more memory
    #: can be locked: all pages of a slab are.
    page_lock_max_bytes: int = 16 << 30


def written(device: str, options: DeviceOptions | None) -> Any:
    """As the native half reads it."""
    options = options or DeviceOptions()
    normalise = []
    for column, by in options.normalise.items():
        if not isinstance(by, Normalise):
            raise SettingError(f"column `{column}` is to be normalised by {by!r}, not a `Normalise`")
        normalise.append((column, list(by.mean), list(by.std), by.dtype, by.layout, float(by.flip), by.seed))
    return device, options.buffers, normalise, options.page_lock_max_bytes
