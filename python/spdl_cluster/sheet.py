"""Pictures of batches, to look at: in a notebook, or in a file."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from . import _native
from .batch import Ragged


class Sheet:
    """A PNG of a batch. A notebook shows it."""

    def __init__(self, png: bytes) -> None:
        """Not for callers: use `show`."""
        #: The file.
        self.png = png

    def _repr_png_(self) -> bytes:
        return self.png

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file."""
        pathlib.Path(path).write_bytes(self.png)

    def __repr__(self) -> str:
        return f"<spdl_cluster.Sheet: a PNG of {len(self.png)} bytes, which a notebook shows and `save(path)` writes>"


def show(batch: Mapping[str, Any], *, classes: Sequence[str] | None = None, samples: int = 16) -> Sheet:
    """Draws the pictures of a batch side by side, with what its other columns say about them: masks are laid over the pictures in the colours of their classes,
    boxes (`xyxy`) are drawn with their labels, and labels, numbers and texts stand below.

    batch: a batch, or another mapping of names to arrays of torch or numpy. It may be on a GPU. Pictures are its first column of shape `[samples, height, width,
        channels]` or `[samples, channels, height, width]`, with 1 or 3 channels; floats beyond 0 to 1, as those that were normalised, are stretched to all levels.
    classes: names for the numbers of the column `label`, or of the only column of whole numbers, and of boxes: `loader.classes`.
    samples: the most samples that are drawn.

    Raises `SettingError` if no column has pictures.
    """
    columns = [column for name, value in batch.items() if (column := _column(name, value)) is not None]
    return Sheet(_native.sheet_png(columns, samples, list(classes or ())))


def _column(name: str, value: Any) -> tuple[str, list[int], list[int] | None, str, bytes] | None:
    """Returns a column as the native half draws it."""
    import numpy

    offsets = None
    if isinstance(value, Ragged):
        offsets, value = list(value.host_offsets), value.values
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float().numpy() if value.is_floating_point() else value.numpy()
    elif not hasattr(value, "dtype") or not hasattr(value, "astype"):
        try:
            value = numpy.from_dlpack(value)
        except (AttributeError, TypeError, BufferError):
            return None
    if value.dtype.kind == "u" and value.dtype.itemsize == 2 and value.ndim == 4:
        value = value.astype("f4") / 65535
    if value.dtype.kind == "b" or value.dtype == "u1":
        dtype, array = "u8", value.astype("u1")
    elif value.dtype.kind in "iu":
        dtype, array = "i64", value.astype("<i8")
    else:
        dtype, array = "f32", value.astype("<f4")
    return name, list(array.shape), offsets, dtype, array.tobytes()
