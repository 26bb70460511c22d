"""A batch: a dict of tensors that lie in the loader's own memory, or in its buffers on a GPU."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, cast

from ._native import DlpackColumn, NativeBatch, StreamPosition
from .errors import SettingError
from .packed import Counted, MicroBatch, Packing
from .tensors import Tensors

_BITS = NativeBatch.flag_bits()
_NO_SAMPLE = _BITS["invalid"] | _BITS["padding"] | _BITS["masked"]


class Position(NamedTuple):
    """A position in the job's stream: `offset` samples into `epoch`. It counts samples, so it means the same at every
    world size."""

    epoch: int
    offset: int

    @classmethod
    def _of(cls, position: StreamPosition) -> Position:
        return cls(position.epoch, position.offset)

    def __str__(self) -> str:
        return f"{self.epoch}:{self.offset}"


class Ragged:
    """A column whose samples differ in length: the rows of all samples end to end, and the offset where each sample
    begins. Of a column of bytes, a row is a byte.

    `ragged[i]` returns the rows of sample `i` without a copy; `len(ragged)` is the number of samples. With torch,
    `torch.nested.nested_tensor_from_jagged(ragged.values, ragged.offsets)` makes a nested tensor of it.

    On a GPU, `ragged[i]` and `len(ragged)` do not wait for the device: the offsets are on the host too, as
    `host_offsets`.
    """

    __slots__ = ("values", "offsets", "_host_offsets")

    #: The rows of all samples, end to end: `[rows, ...]`.
    values: Any
    #: `len(self) + 1` offsets into the rows of `values`: where each sample begins, and where the last one ends.
    offsets: Any

    def __init__(self, values: Any, offsets: Any, host_offsets: Sequence[int] | None = None) -> None:
        self.values = values
        self.offsets = offsets
        self._host_offsets = host_offsets

    @property
    def host_offsets(self) -> Sequence[int]:
        """The same as `offsets`, in the host's memory: as they were when the batch came. Of a `Ragged` that was made
        without them, the first use copies them from its device."""
        if self._host_offsets is None:
            self._host_offsets = array("q", self.offsets.tolist())
        return self._host_offsets

    def __len__(self) -> int:
        return len(self.host_offsets) - 1

    def __getitem__(self, index: int) -> Any:
        samples, at = len(self), operator.index(index)
        if not -samples <= at < samples:
            raise IndexError(f"sample {at} of {samples}")
        at %= samples
        return self.values[self.host_offsets[at] : self.host_offsets[at + 1]]

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    @property
    def lengths(self) -> Any:
        """The length of each sample."""
        return self.offsets[1:] - self.offsets[:-1]

    def groups(self, most: int) -> list[list[int]]:
        """Divides the samples into micro-batches: the numbers of the samples of each, the longest ones first. With each sample padded to the longest of its
        micro-batch, none has more than `most` rows, which bounds the memory of a forward pass; a longer sample is alone. The fewest of them come where
        samples are of like length, as with `bucket` in the job. No GPU is waited for.

        Raises `ValueError` if `most` is below 1.
        """
        if most < 1:
            raise ValueError(f"`most` of `groups` is {most}, not at least 1")
        lengths = [end - begin for begin, end in pairwise(self.host_offsets)]
        groups: list[list[int]] = []
        for sample in sorted(range(len(lengths)), key=lambda sample: -lengths[sample]):
            if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= most:
                groups[-1].append(sample)
            else:
                groups.append([sample])
        return groups

    def text(self) -> list[str]:
        """The samples of a column of text (`decode = "text"`) as strings. From a GPU, they are copied to the host."""
        values = self.values.cpu() if hasattr(self.values, "cpu") else self.values
        data = bytes(values.numpy() if hasattr(values, "numpy") else values)
        return [data[begin:end].decode() for begin, end in pairwise(self.host_offsets)]

    def to(self, *args: Any, **kwargs: Any) -> Ragged:
        """Copies the column to another device; takes the arguments of `torch.Tensor.to`. Lightning and Accelerate call
        it."""
        return Ragged(self.values.to(*args, **kwargs), self.offsets.to(*args, **kwargs), self._host_offsets)

    def __repr__(self) -> str:
        return f"Ragged({len(self)} samples, {self.host_offsets[-1]} rows)"


class Batch(dict[str, Any]):
    """A batch of samples: a dict from the names of the job's columns to tensors, `[samples, ...]`.

    The tensors share the memory that the samples were decoded into, or the GPU memory that they were copied to. That
    memory is reused for another batch when the batch and all its tensors are gone: copy what has to last
    (`tensor.clone()`), and do not collect batches in a list. The tensors may be changed in place.

    On a GPU, the memory is reused only after all work that was enqueued before its release on the stream that was
    current when the batch came. Announce use on any other stream with `wait_on`.

    `batch.to(device)` is a batch, too. A copy that other code makes, as with `dict(batch)`, has only the tensors; `position`, `ids`
    and so on belong to the original batch.
    """

    __slots__ = ("_made_of", "_tensors", "_packing")

    _made_of: NativeBatch | Dealt | None
    _tensors: Tensors | None
    _packing: Packing | None

    def __init__(self, columns: Mapping[str, Any] | None = None) -> None:
        super().__init__(columns or {})
        self._made_of = None
        self._tensors = None
        self._packing = None

    @property
    def position(self) -> Position:
        """The position of the first sample of the global batch that this is a rank's share of."""
        return Position._of(self._source().position)

    @property
    def next_position(self) -> Position:
        """The position after the global batch: where a loader continues that has delivered this batch."""
        return Position._of(self._source().next_position)

    @property
    def samples(self) -> int:
        """The number of entries."""
        return self._source().samples

    @property
    def global_loss_tokens(self) -> int:
        """The number of labels that are learned in the whole global batch of sequences: those of all ranks, the same number on each,
        without a collective. A loss that each rank sums over its labels and divides by this number is the mean over the step, once
        gradients are added up; where they are averaged, as by DDP, multiply it by the number of ranks.

        It is the plan's: a document that turned out bad is masked on its rank, and counts here as if it were not.

        Raises `SettingError` if the job has no labels, or if it is not known before documents are read: with masks (`loss_from`) and
        `method = "chunk"`.
        """
        found = self._source().global_loss_tokens
        if found is None:
            assert self._packing is not None, "set together with the source"
            raise self._packing.no_loss_tokens()
        return found

    @property
    def global_lengths(self) -> list[list[int]]:
        """The lengths of the documents of each sequence of the global batch, in its order, as `document_lengths` has them: of all ranks,
        the same on each, on the host. What divides documents among ranks, as context parallelism of varying size does, begins
        with them. A rank without a sequence in the step has none.

        Raises `SettingError` if the job has no column of `global_lengths`, or the step has more than 1048576 of them for each of the rank's sequences.
        """
        found = self._source().global_lengths()
        if found is None:
            assert self._packing is not None, "set together with the source"
            raise self._packing.no_global_lengths()
        return found

    def packed(self, rows: int | None = None, *, pad_to: int | None = None) -> Iterator[MicroBatch]:
        """Divides a batch of sequences, of a job with `sequence`, into micro-batches of `rows` sequences; the last one has
        what is left. By default, it is one of all. They are views of the batch, with the bounds of documents and the number
        of labels that count. No GPU is waited for.

        pad_to: the number of elements of `cu_seqlens`, whatever the number of documents, as CUDA graphs need it: its end is repeated.
            Of a job with `max_documents`, `rows * (max_documents + 1) + 1` is always enough.

        Raises `SettingError` if the job has no `sequence`, or no column of `document_lengths`, or if a micro-batch has more
        segments than `pad_to` has room for.
        """
        source = self._source()
        assert self._packing is not None, "set together with the source"
        return self._packing.divide(self, source.sequences(), rows, pad_to)

    def to(self, device: Any, non_blocking: bool = False) -> Batch:
        """Copies the columns to a device; those that are there already share this batch's memory. `ids`, `valid`, `position` and
        so on come along; `receipt`, `slab`, `slot` and `content_digest()` stay with this batch. The columns must be torch's.

        With `device=` of `connect` and `local`, the loader makes the copies ahead of need.
        """
        columns = {}
        for name, column in self.items():
            if not hasattr(column, "to"):
                raise SettingError(f"column `{name}` is no tensor of torch, and only these go to a device", 'give `tensors="torch"` to the loader')
            columns[name] = column.to(device, non_blocking=non_blocking)
        if self._made_of is None or self._packing is None:
            return Batch(columns)
        # Copies, which hold no memory of this batch. They follow to the device when they are asked for.
        entries = {name: getattr(self, name).clone() for name in ("ids", "epochs", "offsets", "flags")}
        source = self._made_of
        made = Dealt(
            self.position,
            self.next_position,
            self.samples,
            **entries,
            counted=source.sequences(),
            global_loss_tokens=source.global_loss_tokens,
            lengths=source.global_lengths(),
        )
        return made.batch(columns, device, self._packing)

    def wait_on(self, stream: Any) -> None:
        """Allows use of the batch on `stream`: work that is enqueued there from now on waits for the batch, and when
        the batch is dropped, its memory is reused only after the work that was enqueued there. No thread waits. Not
        needed for the stream that was current when the batch came, nor on the host.

        It does what `tensor.record_stream` does for memory that torch allocated; torch ignores `record_stream` for
        memory of others, such as this.

        stream: a `torch.cuda.Stream`, another object with `__cuda_stream__`, or a `CUstream` as a number, of the batch's
            device. It must live as long as the batch. While it captures a CUDA graph, this raises `DeviceError`: copy
            the batch to a tensor of the graph before a replay.
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
        """The flags of each entry as bits: int32, a view. 1: no sample, at the end of an `exact` epoch. 2: padding, a sample that comes again at the end of a
        `pad` epoch. 4: another sample, in place of a bad one. 8: zeros, in place of a bad sample."""
        return self._tensor(self._source().flags)

    @property
    def valid(self) -> Any:
        """Whether each entry is a sample that counts: not padding, not the empty end of an `exact` epoch, and not the zeros in place of a bad
        sample (`bad_samples = "mask"`). Raises
        `SettingError` where columns are neither torch's nor numpy's, because it is computed."""
        flags = self.flags
        if isinstance(flags, DlpackColumn):
            raise SettingError(
                "`valid` is computed by torch or numpy, and the columns of this loader are of neither",
                'install numpy (`pip install numpy`), or import torch before the first batch; with `tensors="dlpack"`, read `flags`',
            )
        return (flags & _NO_SAMPLE) == 0

    @property
    def receipt(self) -> str:
        """The receipt of this batch alone: 32 hexadecimal digits."""
        return self._source().receipt()

    @property
    def slab(self) -> tuple[int, int]:
        """The address and the bytes of the memory that all batches of the loader lie in: the memory to
        page-lock. Not available for a batch on a GPU, which has left that memory."""
        slab = self._source().slab
        return slab.address, slab.bytes

    @property
    def slot(self) -> int:
        """The number of this batch's slot in the slab. Not available for a batch on a GPU, which has left the
        slab."""
        return self._source().slot

    def content_digest(self) -> str:
        """Returns the digest of every byte of the batch as the loader delivered it: 32 hexadecimal digits, the same as
        `spdl-ctl replay` computes. For a batch on a GPU, it copies the bytes back first."""
        return self._source().content_digest()

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {_shown(value)}" for name, value in self.items())
        place = "" if self._made_of is None else f"{self.samples} samples at {self.position}: "
        return f"Batch({place}{columns})"

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        # A batch that is pickled for another process becomes a dict of copied tensors.
        return dict, (dict(self),)

    def _source(self) -> NativeBatch:
        if self._made_of is None:
            raise AttributeError(
                "only a batch that comes from a loader has `valid`, `ids`, `position`, `packed` and so on; this one was made from tensors, as some frameworks do "
                "on the way to a device. Take what you need before; `batch.to(device)` keeps it"
            )
        # `Dealt` has what its own tensors need.
        return cast(NativeBatch, self._made_of)

    def _tensor(self, column: DlpackColumn) -> Any:
        assert self._tensors is not None, "set together with the source"
        return self._tensors.of_column(column)


@dataclass(frozen=True)
class Dealt:
    """What a batch is made of that is no longer the loader's: tensors of its own."""

    position: Position
    next_position: Position
    samples: int
    ids: Any
    epochs: Any
    offsets: Any
    flags: Any
    counted: Counted | None
    global_loss_tokens: int | None
    lengths: list[list[int]] | None

    def batch(self, columns: Mapping[str, Any], device: Any, packing: Packing) -> Batch:
        """Makes the batch with these columns, which are on the device."""

        def on_device(entries: Any) -> Any:
            return entries.to(device)

        batch = Batch(columns)
        batch._made_of = self
        batch._tensors = Tensors("torch", on_device, on_device, False)
        batch._packing = packing
        return batch

    def sequences(self) -> Counted | None:
        """Returns the lengths of documents and the number of labels that count."""
        return self.counted

    def global_lengths(self) -> list[list[int]] | None:
        """Returns the lengths of documents of the global batch."""
        return self.lengths

    def wait_on(self, stream: Any) -> None:
        """Does nothing: the tensors are torch's."""


def of_native(native: NativeBatch, tensors: Tensors, packing: Packing, columns: frozenset[str] | None) -> Batch:
    """Makes the batch with its tensors: of these columns, or of all."""
    batch = Batch()
    batch._made_of = native
    batch._tensors = tensors
    batch._packing = packing

    def ragged(values: DlpackColumn, offsets: DlpackColumn, host_offsets: bytes) -> Ragged:
        return Ragged(tensors.of_column(values), tensors.of_column(offsets), array("q", host_offsets))

    if tensors.before is not None:
        tensors.before(native)
    native.fill(batch, tensors.of_export, ragged, tensors.takes_capsules, columns)
    return batch


def _shown(value: Any) -> str:
    """Describes an array without its contents."""
    if isinstance(value, Ragged):
        return repr(value)
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def _handle(stream: Any) -> int:
    """Returns the driver's number of a stream."""
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "cuda_stream"):
        return int(stream.cuda_stream)
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    raise TypeError(f"{stream!r} is not a CUDA stream: it has neither `cuda_stream` nor `__cuda_stream__`, and is not a number")
