"""Batches for training, from a cluster of loaders or from this process.

    import spdl_cluster

    loader = spdl_cluster.connect(rank, world, job="imagenet-train")
    for batch in loader:
        step(batch["image"], batch["label"])

With `connect`, workers of a cluster make the batches; `local` runs the same pipeline in this process. Both return a
`Loader`: a `for` over it gives one epoch, its `state_dict()` resumes anywhere, and its batches are dicts of tensors, on
the GPU with `device="cuda"`.
"""

from ._native import __version__
from .batch import Batch, Position, Ragged
from .device import DeviceOptions, Normalise
from .errors import (
    ClosedError,
    ConnectError,
    DataError,
    DeviceError,
    DeviceMemoryError,
    FinishedError,
    ForkedError,
    SlotsExhaustedWarning,
    LoaderTimeout,
    PipelineFailure,
    PipelineTimeout,
    RefusedError,
    SettingError,
    SpdlError,
    StateError,
    UsageError,
)
from .loader import Epoch, Loader, Start, connect, local

__all__ = [
    "Batch",
    "ClosedError",
    "ConnectError",
    "DataError",
    "DeviceError",
    "DeviceMemoryError",
    "DeviceOptions",
    "Epoch",
    "FinishedError",
    "ForkedError",
    "SlotsExhaustedWarning",
    "Loader",
    "LoaderTimeout",
    "Normalise",
    "PipelineFailure",
    "PipelineTimeout",
    "Position",
    "Ragged",
    "RefusedError",
    "SettingError",
    "SpdlError",
    "Start",
    "StateError",
    "UsageError",
    "__version__",
    "connect",
    "local",
]
