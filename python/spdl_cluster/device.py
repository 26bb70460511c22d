"""Options of a loader on a device: how many buffers it has, and how it normalises pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .errors import SettingError


@dataclass(frozen=True)
class Normalise:
    """Normalises a column of pictures on the device: u8 `[n, height, width, 3]` becomes `(value / 255 - mean) / std`,
    `[n, 3, height, width]`.

    So only bytes cross the bus. The result has the same bits as with `normalise` in the job, and on the host too, where
    it takes a thread's time.
    """

    #: Red, green and blue; for values from 0 to 1.
    mean: Sequence[float]
    #: Red, green and blue.
    std: Sequence[float]
    #: Type of the result.
    dtype: Literal["f16", "bf16", "f32"] = "f32"
    #: Order of the result in memory. The shape is the same; with `"channels_last"` the strides are those of torch's
    #: `channels_last`.
    layout: Literal["nchw", "channels_last"] = "nchw"
    #: Probability that a picture is mirrored, left to right; 0 never, 1 always. The draw depends on the sample and the
    #: epoch, not on the world size.
    flip: float = 0.0
    #: Key of these draws. Give each column its own key if columns must be mirrored independently.
    seed: int = 0


@dataclass(frozen=True)
class DeviceOptions:
    """Options of a loader with `device=`."""

    #: The most batches on a GPU at once: held by the caller, ready, and being copied; at least 2. Each one more takes
    #: the GPU memory of one more batch. Where the GPU's memory becomes too short for the larger buffers that ragged
    #: columns can need, the loader goes on with fewer.
    buffers: int = 4
    #: Columns of pictures to normalise on the device, by name.
    normalise: Mapping[str, Normalise] = field(default_factory=dict)
    #: Maximum bytes of a slab that are page-locked. Slots beyond that are copied through the driver's own buffer, which is
    #: slower. A higher limit can lock more memory: of each slot as much as its largest batch takes.
    page_lock_max_bytes: int = 16 << 30


def checked(options: DeviceOptions | None) -> DeviceOptions:
    """Returns the options, or the defaults, after a check of their types; the native half checks their values."""
    options = options or DeviceOptions()
    for column, by in options.normalise.items():
        if not isinstance(by, Normalise):
            raise SettingError(f"column `{column}` is to be normalised by {by!r}, not a `Normalise`")
    return options
