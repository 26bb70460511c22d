"""Converts columns without a copy: to torch tensors or numpy arrays, or leaves them as the DLPack exporters that they
are."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ._native import ColumnType, DlpackColumn, NativeBatch
from .errors import SettingError

#: `"torch"`, `"numpy"`, `"dlpack"` for the columns unchanged, or `"auto"`.
Kind = Literal["auto", "torch", "numpy", "dlpack"]


@dataclass(frozen=True)
class Tensors:
    """How columns become tensors."""

    kind: Literal["torch", "numpy", "dlpack"]
    #: Makes a tensor of a column.
    of_column: Callable[[DlpackColumn], Any]
    #: Makes a tensor of what `NativeBatch.fill` passes: a capsule if `takes_capsules`, a column otherwise.
    of_export: Callable[[Any], Any]
    takes_capsules: bool
    #: Called with a batch before tensors are made of it; `None` if there is nothing to do.
    before: Callable[[NativeBatch], None] | None = None


def choose(kind: Kind, device: str, columns: list[ColumnType] | None = None) -> Tensors:
    """Returns the tensors of that kind on `cpu` or `cuda:N`. `"auto"` is torch if the program has imported torch by
    now; otherwise numpy if it is installed and can hold them; otherwise the columns unchanged. Only `"torch"` imports
    torch."""
    if kind == "auto":
        has_numpy = device == "cpu" and importlib.util.find_spec("numpy")
        kind = "torch" if "torch" in sys.modules else "numpy" if has_numpy else "dlpack"
    if kind == "torch":
        return _torch() if device == "cpu" else _torch_on(device)
    if kind == "numpy":
        if device != "cpu":
            raise SettingError(f"numpy arrays were requested, which are not on `{device}`", 'use `tensors="torch"` or `"dlpack"`')
        return _numpy(columns or [])
    if kind == "dlpack":
        return Tensors("dlpack", _as_it_is, _as_it_is, False)
    raise SettingError(f"setting `tensors` is {kind!r}, not `auto`, `torch`, `numpy` or `dlpack`")


def _as_it_is(column: DlpackColumn) -> DlpackColumn:
    return column


def _torch() -> Tensors:
    try:
        from torch.utils.dlpack import from_dlpack
    except ImportError as error:
        raise SettingError(f"torch tensors were requested, but torch cannot be imported: {error}") from error

    def of_column(column: DlpackColumn) -> Any:
        return from_dlpack(column.__dlpack__())

    return Tensors("torch", of_column, from_dlpack, True)


def _torch_on(device: str) -> Tensors:
    """Returns tensors on a GPU. The stream that is current when a batch comes waits for it, once for all columns."""
    on_host = _torch()
    import torch

    if not torch.cuda.is_available():
        raise SettingError(
            f"torch tensors on `{device}` were requested, and this torch cannot use CUDA",
            "install a torch that was built with CUDA, or ask for `tensors=\"dlpack\"`",
        )

    def stream() -> int:
        # 0 is the default stream, which DLPack calls 1.
        return int(torch.cuda.current_stream(device).cuda_stream) or 1

    def of_column(column: DlpackColumn) -> Any:
        return on_host.of_export(column.__dlpack__(stream=stream()))

    def before(batch: NativeBatch) -> None:
        batch.wait_on(stream())

    return Tensors("torch", of_column, on_host.of_export, True, before)


def _numpy(columns: list[ColumnType]) -> Tensors:
    try:
        import numpy
    except ImportError as error:
        raise SettingError(f"numpy arrays were requested, but numpy cannot be imported: {error}") from error
    if any(column.dtype == "bf16" for column in columns):
        return _numpy_with_bf16(columns)
    return Tensors("numpy", numpy.from_dlpack, numpy.from_dlpack, False)


def _numpy_with_bf16(columns: list[ColumnType]) -> Tensors:
    """Returns numpy arrays, with bf16 from the package `ml_dtypes`: numpy has no bf16 of its own."""
    import numpy

    try:
        import ml_dtypes
    except ImportError as error:
        names = ", ".join(f"`{column.name}`" for column in columns if column.dtype == "bf16")
        raise SettingError(
            f"{names} is bf16, which numpy does not have",
            "install `ml_dtypes`, use torch tensors, or give the column another `dtype` in the job",
        ) from error

    def of_column(column: DlpackColumn) -> Any:
        if column.dtype == "bf16":
            return numpy.from_dlpack(column.bits()).view(ml_dtypes.bfloat16)
        return numpy.from_dlpack(column)

    return Tensors("numpy", of_column, of_column, False)
