"""Batches for training, from a cluster of loaders or from this process.

    import spdl_cluster

    loader = spdl_cluster.connect(rank, world, job="imagenet-train")
    for batch in loader:
        step(batch["image"], batch["label"])

`train, val = spdl_cluster.imagefolder("photos/train", "photos/val")` needs no more than folders of pictures, one for each class.
With `connect`, workers of a cluster make the batches; `local` runs the same pipeline in this process. Both return a
`Loader`: a `for` over it gives one epoch, its `state_dict()` resumes anywhere, and its batches are dicts of tensors, on
the GPU with `device="cuda"`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._native import __version__
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

if TYPE_CHECKING:
    from .batch import Batch, Position, Ragged
    from .control import jobs, remove, status, submit
    from .datasets import DatasetReport, PartReport, TokenPartReport, index, merge, pack
    from .device import DeviceOptions, Normalise
    from .epoch import Epoch
    from .folders import imagefolder, suggest
    from .insight import Diagnosis, LoaderStats, LoaderWindow, Prediction, RunReport
    from .job import Column, Function, Job
    from .loader import Loader, Start
    from .opening import connect, local
    from .packed import MicroBatch, TokenColumns
    from .reading import Dataset, Record, open
    from .sheet import Sheet, show
    from .writer import Writer

__all__ = [
    "Batch",
    "ClosedError",
    "Column",
    "ConnectError",
    "DataError",
    "Dataset",
    "DatasetReport",
    "DeviceError",
    "DeviceMemoryError",
    "DeviceOptions",
    "Diagnosis",
    "Epoch",
    "FinishedError",
    "ForkedError",
    "Function",
    "Job",
    "SlotsExhaustedWarning",
    "Loader",
    "LoaderStats",
    "LoaderTimeout",
    "LoaderWindow",
    "MicroBatch",
    "Normalise",
    "PartReport",
    "PipelineFailure",
    "PipelineTimeout",
    "Position",
    "Prediction",
    "Ragged",
    "Record",
    "RefusedError",
    "RunReport",
    "SettingError",
    "Sheet",
    "SpdlError",
    "Start",
    "StateError",
    "TokenColumns",
    "TokenPartReport",
    "UsageError",
    "Writer",
    "__version__",
    "connect",
    "imagefolder",
    "index",
    "jobs",
    "local",
    "merge",
    "open",
    "pack",
    "remove",
    "show",
    "status",
    "submit",
    "suggest",
]

#: The modules of the names that are imported at their first use: a pipeline of the user's steps need not pay for them.
_MODULES = {
    **dict.fromkeys(["Batch", "Position", "Ragged"], "batch"),
    **dict.fromkeys(["jobs", "remove", "status", "submit"], "control"),
    **dict.fromkeys(["DatasetReport", "PartReport", "TokenPartReport", "index", "merge", "pack"], "datasets"),
    **dict.fromkeys(["DeviceOptions", "Normalise"], "device"),
    **dict.fromkeys(["imagefolder", "suggest"], "folders"),
    **dict.fromkeys(["Diagnosis", "LoaderStats", "LoaderWindow", "Prediction", "RunReport"], "insight"),
    **dict.fromkeys(["Column", "Function", "Job"], "job"),
    "Epoch": "epoch",
    **dict.fromkeys(["Loader", "Start"], "loader"),
    **dict.fromkeys(["connect", "local"], "opening"),
    **dict.fromkeys(["MicroBatch", "TokenColumns"], "packed"),
    **dict.fromkeys(["Dataset", "Record", "open"], "reading"),
    **dict.fromkeys(["Sheet", "show"], "sheet"),
    "Writer": "writer",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    value = globals()[name] = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
