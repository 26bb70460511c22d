"""A batch: a dict of tensors that lie in the loader's own memory, or in its buffers on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ._native import Batch as Slot
from ._native import Column
from .tensors import Tensors

_BITS = Slot.flag_bits()
_NO_SAMPLE = _BITS["invalid"] | _BITS["padding"]


class Position(NamedTuple):
    """A place in the job's stream: `offset` samples into `epoch`. Counts samples, so it means the same at every world size."""

    epoch: int
    offset: int

    def __str__(self) -> str:
        return f"{self.epoch}:{self.offset}"


class Ragged:
    """A column whose samples differ in length: all values end to end, and where each sample's begin.

    `ragged[i]` are the values of sample `i`, without a copy; `len(ragged)` is the number of samples.
    """

    __slots__ = ("values", "offsets")

    #: The values of all samples, end to end.
    values: Any
    #: `len(self) + 1` places in `values`: where each sample begins, and where the last one ends.
    offsets: Any

    def __init__(self, values: Any, offsets: Any) -> None:
        self.values = values
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Any:
        samples = len(self)
        if not -samples <= index < samples:
            raise IndexError(f"sample {index} of {samples}")
        index %= samples
        return self.values[int(self.offsets[index]) : int(self.offsets[index + 1])]

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    @property
    def lengths(self) -> Any:
        """Length of each sample."""
        return self.offsets[1:] - self.offsets[:-1]

    def to(self, *args: Any, **kwargs: Any) -> Ragged:
        """The same on another device, as `torch.Tensor.to` says: what Lightning and Accelerate call."""
        return Ragged(self.values.to(*args, **kwargs), self.offsets.to(*args, **kwargs))

    def __repr__(self) -> str:
        return f"Ragged({len(self)} samples, {len(self.values)} values)"


class Batch(dict[str, Any]):
    """A batch of samples: a dict from the names of the job's columns to tensors, `[samples, ...]`.

    The tensors share the memory that the samples were decoded into, or the GPU's that they were copied to. It is used for another batch when the
    last of them and the batch itself are gone: copy what has to last (`tensor.clone()`), and do not collect batches in a list.
    They may be changed in place.

    On a GPU, the memory is used again only after all that was put, until then, on the stream that was current when the batch came. Use on another
    stream has to be told: `wait_on`.

    What is made of a batch by others (a copy on another device, `dict(batch)`) has the tensors only; its `position`, `ids` and so on are
    those of the batch that it was made of.
    """

    __slots__ = ("_made_of", "_tensors")

    _made_of: Slot | None
    _tensors: Tensors | None

    def __init__(self, columns: Mapping[str, Any] | None = None) -> None:
        super().__init__(columns or {})
        self._made_of = None
        self._tensors = None

    @property
    def position(self) -> Position:
        """Position of the first sample of the global batch that this is a rank's share of."""
        return Position(*self._source().position)

    @property
    def next_position(self) -> Position:
        """Position after the global batch: where a loader goes on that has handed this batch out."""
        return Position(*self._source().next_position)

    @property
    def samples(self) -> int:
        """Number of entries."""
        return self._source().samples

    def wait_on(self, stream: Any) -> None:
        """To use the batch on `stream` too: what is put there from now on waits for the batch, and the batch's memory, when it dies, for what was put
        there. No thread waits. Nothing to do for the stream that was current when the batch came, nor on the host.

        It is what `tensor.record_stream` is for torch's own memory; for memory of others, as this is, torch ignores that.

        stream: a `torch.cuda.Stream`, another object with `__cuda_stream__`, or a `CUstream` as a number. It has to last as long as the batch.
        """
        self._source().wait_on(_handle(stream))

    @property
    def ids(self) -> Any:
        """The sample id of each entry: int64, a view of the batch's own memory, on the same device."""
        return self._tensor(self._source().ids)

    @property
    def epochs(self) -> Any:
        """The epoch of each entry: int64, a view."""
        return self._tensor(self._source().epochs)

    @property
    def offsets(self) -> Any:
        """The offset of each entry in its epoch's stream: int64, a view."""
        return self._tensor(self._source().offsets)

    @property
    def flags(self) -> Any:
        """What is special about each entry, as bits: int32, a view. 1 no sample, 2 padding, 4 substituted, 8 masked."""
        return self._tensor(self._source().flags)

    @property
    def valid(self) -> Any:
        """Whether each entry is a sample that counts: neither padding nor the empty end of an `exact` epoch."""
        return (self.flags & _NO_SAMPLE) == 0

    @property
    def receipt(self) -> str:
        """Receipt of this batch alone: 32 hexadecimal digits."""
        return self._source().receipt()

    @property
    def slab(self) -> tuple[int, int]:
        """Address and bytes of the memory that all batches of the loader lie in: what to page-lock. Not of a batch on a GPU, which has left it."""
        return self._source().slab

    @property
    def slot(self) -> int:
        """Number of this batch's slot in the slab. Not of a batch on a GPU, which has left it."""
        return self._source().slot

    def content_digest(self) -> str:
        """Digest of every byte of the batch as the loader delivered it, as `spdl-ctl replay` computes it: 32 hexadecimal digits. Of a
        batch on a GPU, it fetches them."""
        return self._source().content_digest()

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {_shown(value)}" for name, value in self.items())
        place = "" if self._made_of is None else f"{self.samples} samples at {self.position}: "
        return f"Batch({place}{columns})"

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        # Another process gets a copy of the tensors.
        return dict, (dict(self),)

    def _source(self) -> Slot:
        if self._made_of is None:
            raise AttributeError("only a batch that comes from a loader knows its place; this one was made of its tensors")
        return self._made_of

    def _tensor(self, column: Column) -> Any:
        assert self._tensors is not None, "set together with the source"
        return self._tensors.of_column(column)


def of_slot(slot: Slot, tensors: Tensors) -> Batch:
    """The batch with its tensors."""
    batch = Batch()
    batch._made_of = slot
    batch._tensors = tensors

    def ragged(column: Column) -> Ragged:
        assert column.offsets is not None, "only ragged columns come here"
        return Ragged(tensors.of_column(column), tensors.of_column(column.offsets))

    if tensors.before is not None:
        tensors.before(slot)
    slot.fill(batch, tensors.of_export, ragged, tensors.takes_capsules)
    return batch


def _shown(value: Any) -> str:
    """What an array is, without what is in it."""
    if isinstance(value, Ragged):
        return repr(value)
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def _handle(stream: Any) -> int:
    """The driver's number of a stream."""
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "cuda_stream"):
        return int(stream.cuda_stream)
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    raise TypeError(f"{stream!r} is no CUDA stream: it has neither `cuda_stream` nor `__cuda_stream__`, and is no number")
