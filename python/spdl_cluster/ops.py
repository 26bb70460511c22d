"""Operations for `spdl_cluster.pipeline` that run without Python and its lock, so that threads run them in parallel.

    from spdl_cluster import ops

    pipeline = (
        PipelineBuilder()
        .add_source(urls)
        .pipe(ops.download, concurrency=16)
        .pipe(ops.decode_image((224, 224), crop="centre"), concurrency=8)
        .aggregate(32)
        .pipe(ops.collate)
        .pipe(ops.to_device("cuda"))
        .add_sink(3)
        .build(num_threads=8)
    )

What one of them passes to the next stays out of Python; other operations and the loop see `bytes` and numpy arrays. Each takes
an item, or a list of items, for which it returns a list. They can be called outside a pipeline too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, TypeVar, overload

from . import _native
from ._native import Transform
from .errors import SettingError

__all__ = [
    "NativeOperation",
    "Transform",
    "collate",
    "decode_image",
    "decode_tensor",
    "download",
    "download_up_to",
    "normalise",
    "resize",
    "ToDevice",
    "to_device",
    "transform",
]

A = TypeVar("A", contravariant=True)
R = TypeVar("R", covariant=True)

#: The largest object that `download` reads, in bytes.
_MAX_BYTES = 256 << 20


class NativeOperation(Generic[A, R]):
    """An operation that runs without Python."""

    def __init__(self, name: str, native: _native.NativeOp) -> None:
        """Not for callers: use the operations of this module."""
        self.__name__ = name
        self._native = native

    @overload
    def __call__(self, item: A, /) -> R: ...
    @overload
    def __call__(self, item: list[A], /) -> list[R]: ...
    def __call__(self, item: Any, /) -> Any:
        """Runs it on one item, or on a list of items; other threads of Python run meanwhile.

        Raises `DataError` with what is wrong with the item.
        """
        return self._native(item)

    def __repr__(self) -> str:
        return f"<spdl_cluster.ops.{self.__name__}>"


def download_up_to(max_bytes: int) -> NativeOperation[str, bytes]:
    """Returns an operation like `download` that refuses objects of more than `max_bytes`."""
    if max_bytes < 1:
        raise SettingError(f"`max_bytes` is {max_bytes!r}, not a number of bytes above 0")
    return NativeOperation("download", _native.NativeOp.download(max_bytes))


#: Reads the object at a path or at a URL with `http`, `https`, `s3`, `gs`, `az` or `file`, of at most 256 MiB; for a list of
#: them, 16 at a time. Connections are used again, and stores take their settings from the environment, as for datasets. A URL
#: with a query, such as a presigned one, is sent as it is, and no error shows its query.
download: NativeOperation[str, bytes] = download_up_to(_MAX_BYTES)


def decode_image(
    size: tuple[int, int] | int | None = None,
    *,
    crop: Literal["centre"] | None = None,
    dtype: Literal["u8", "f16", "f32"] = "u8",
    layout: Literal["nhwc", "nchw"] = "nhwc",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> NativeOperation[bytes, Any]:
    """Returns an operation that decodes a picture to an array, upright and in RGB, of any format that datasets can have. Only
    what the result needs is decoded, and pixels are resampled once.

    size: height and width of the array, or one number for both. Default: the picture's.
    crop: `"centre"` cuts the middle out in the proportions of `size`. Default: the whole picture, in other proportions.
    dtype: type of the elements: `"u8"`, or `"f16"` or `"f32"` for `value / 255`.
    layout: order of the dimensions: `"nhwc"` for height, width, channel; `"nchw"` for channel, height, width.
    mean, std: of red, green and blue, for `(value / 255 - mean) / std` in `"f16"` or `"f32"`. Give both or neither.
    """
    sides = None if size is None else _sides(size)
    _check_crop(crop)
    by = _normalisation(dtype, layout, mean, std)
    native = _native.NativeOp.decode_image(
        sides,
        crops_centre=crop is not None and sides is not None,
        dtype=dtype,
        channels_first=layout == "nchw",
        normalise=by,
    )
    return NativeOperation("decode_image", native)


def decode_tensor(array: str | None = None, *, max_bytes: int = _MAX_BYTES) -> NativeOperation[bytes, Any]:
    """Returns an operation that reads an array from a `.npy` or `.npz` file, of any type and shape. Pickles are never read.

    array: its name in a `.npz` file. Default: the only one.
    max_bytes: the largest array that is read. Default: 256 MiB.
    """
    if max_bytes < 1:
        raise SettingError(f"`max_bytes` is {max_bytes!r}, not a number of bytes above 0")
    return NativeOperation("decode_tensor", _native.NativeOp.decode_tensor(array, max_bytes))


def resize(size: tuple[int, int] | int, *, crop: Literal["centre"] | None = None) -> NativeOperation[Any, Any]:
    """Returns an operation that resizes a decoded picture, an array of bytes with the shape height, width, 3. Where the decoder
    is `decode_image`, give it the size: it then decodes less.

    size, crop: those of `decode_image`.
    """
    sides = _sides(size)
    _check_crop(crop)
    return NativeOperation("resize", _native.NativeOp.resize(sides, crops_centre=crop is not None))


def transform(ops: Sequence[dict[str, Any] | str], *, seed: int = 0) -> Transform:
    """Returns the operations of an `image` column of a job, as a function of decoded pictures: arrays of bytes with the shape
    height, width, 3.

        augment = ops.transform([{"random_resized_crop": 224}, "random_flip", {"color_jitter": {"brightness": 0.4}}], seed=17)
        picture = augment(picture, epoch=3, id=1041)

    ops: as in a job file. Lists that a job refuses are refused; the last one need not give a fixed size.
    seed: a job with this seed draws the same for a sample.
    """
    return Transform(ops, seed)


class ToDevice:
    """Copies batches to a device, by torch; `to_device` makes it."""

    __name__ = "to_device"

    def __init__(self, device: Any) -> None:
        """Not for callers: use `to_device`."""
        try:
            import torch
        except ImportError as error:
            raise SettingError("`to_device` needs torch: `pip install torch`") from error
        from .batch import Ragged

        self._torch: Any = torch
        self._ragged = Ragged
        self._device = torch.device(device)
        if self._device.type == "cuda" and not torch.cuda.is_available():
            raise SettingError(f"`device` is `{device}`, and torch finds no GPU")
        self._stream: Any = self._torch.cuda.Stream(self._device) if self._device.type == "cuda" else None

    def __call__(self, batch: Any, /) -> Any:
        """Returns the batch with copies on the device in place of its arrays and tensors."""
        if self._stream is None:
            return self._map(batch, lambda tensor: tensor.to(self._device))
        with self._torch.cuda.stream(self._stream):
            copied = self._map(batch, self._enqueue)
            done = self._stream.record_event()
        done.synchronize()
        return copied

    def _enqueue(self, tensor: Any) -> Any:
        source = tensor if tensor.is_cuda or tensor.is_pinned() else tensor.pin_memory()
        copied = source.to(self._device, non_blocking=True)
        # Its memory came from the pool of the copies' stream; it must not return there while the trainer's stream reads it.
        copied.record_stream(self._torch.cuda.default_stream(self._device))
        return copied

    def _map(self, value: Any, copy: Callable[[Any], Any]) -> Any:
        if isinstance(value, self._torch.Tensor):
            return copy(value)
        if hasattr(value, "__array_interface__"):
            return copy(self._torch.as_tensor(value))
        if isinstance(value, self._ragged):
            return self._ragged(copy(value.values), copy(value.offsets), value.host_offsets)
        if isinstance(value, dict):
            return {key: self._map(each, copy) for key, each in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self._map(each, copy) for each in value))
        if isinstance(value, (list, tuple)):
            return type(value)(self._map(each, copy) for each in value)
        return value

    def __repr__(self) -> str:
        return f"<spdl_cluster.ops.to_device {self._device}>"


def to_device(device: Any = "cuda") -> ToDevice:
    """Returns an operation that copies batches to a device: the arrays and tensors in dicts, lists and tuples; all else stays.

    device: as torch takes it, such as `"cuda"`, `"cuda:1"` or `"cpu"`.

    To a GPU, the copy goes from page-locked memory, on a stream of its own, while the trainer computes. It is complete when the
    operation returns, so the trainer waits for nothing. The trainer may use the tensors on torch's default stream;
    `tensor.record_stream` announces others.

    Raises `SettingError` if there is no torch, or no such GPU.
    """
    return ToDevice(device)


def normalise(
    *,
    dtype: Literal["u8", "f16", "f32"] = "f32",
    layout: Literal["nhwc", "nchw"] = "nhwc",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> NativeOperation[Any, Any]:
    """Returns an operation that converts a decoded picture, an array of bytes with the shape height, width, 3.

    dtype, layout, mean, std: those of `decode_image`.
    """
    by = _normalisation(dtype, layout, mean, std)
    native = _native.NativeOp.normalise(dtype=dtype, channels_first=layout == "nchw", normalise=by)
    return NativeOperation("normalise", native)


#: Stacks a list of arrays of one shape, which native operations made, to one array with the batch's axis first.
collate: NativeOperation[list[Any], Any] = NativeOperation("collate", _native.NativeOp.collate())


def _sides(size: tuple[int, int] | int) -> tuple[int, int]:
    """Returns height and width."""
    sides = (size, size) if isinstance(size, int) else size
    if len(sides) != 2 or not all(1 <= side <= 16_384 for side in sides):
        raise SettingError(f"`size` is {size!r}, not a height and a width from 1 to 16384")
    return sides


def _check_crop(crop: str | None) -> None:
    if crop not in (None, "centre"):
        raise SettingError(f'`crop` is {crop!r}, not "centre" or `None`')


def _normalisation(
    dtype: str, layout: str, mean: Sequence[float] | None, std: Sequence[float] | None
) -> tuple[Sequence[float], Sequence[float]] | None:
    """Returns mean and standard deviation, after a check of all that says how pixels are converted."""
    if layout not in ("nhwc", "nchw"):
        raise SettingError(f'`layout` is {layout!r}, not "nhwc" or "nchw"')
    if (mean is None) != (std is None) or any(by is not None and len(by) != 3 for by in (mean, std)):
        raise SettingError("`mean` and `std` each need three numbers", "give both or neither")
    if std is not None and (dtype == "u8" or 0 in std):
        raise SettingError('pictures are normalised to `dtype="f16"` or "f32", and by no `std` of 0')
    return None if mean is None or std is None else (mean, std)
