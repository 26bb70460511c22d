"""Micro-batches of a job with `sequence`: views of a batch, with the bounds of documents as kernels of attention take them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

from .errors import SettingError

if TYPE_CHECKING:
    from ._native import LoaderFacts

#: What `NativeBatch.sequences` returns: of each sequence the lengths of its documents, and the number of its labels that count.
Counted = tuple[list[list[int]], "list[int] | None"]
#: How context parallelism divides a sequence: see `MicroBatch.cp_slice`.
CpSlicing = Literal["headtail", "contiguous", "document"]

#: The kinds of columns that have a value for each place.
_KINDS = ("tokens", "labels", "positions", "document_ids", "loss_mask")
_NO_LABEL = -100


@dataclass(frozen=True)
class Packing:
    """What a job's batches of sequences are made of."""

    job: str
    #: The tokens of a sequence; `None` if samples are no sequences.
    seq_len: int | None
    #: The name of the first column of each kind.
    names: Mapping[str, str]

    @classmethod
    def of(cls, facts: LoaderFacts) -> Packing:
        return cls(facts.job, facts.seq_len, {column.kind: column.name for column in reversed(facts.columns)})

    def count(self, rows: Mapping[str, list[Any]]) -> Counted | None:
        """Does what `NativeBatch.sequences` does, with the rows of each column as tensors on the host."""
        lengths = self.lengths(rows)
        return None if self.seq_len is None or lengths is None else (lengths, self.loss_tokens(rows))

    def lengths(self, rows: Mapping[str, list[Any]]) -> list[list[int]] | None:
        """Returns the lengths of the documents of each row; `None` if there is no column of them."""
        lengths = rows.get(self.names.get("document_lengths", ""))
        return None if lengths is None else [row.tolist() for row in lengths]

    def loss_tokens(self, rows: Mapping[str, list[Any]]) -> list[int] | None:
        """Returns how many labels of each row count; `None` if there are no labels."""
        labels = rows.get(self.names.get("labels", ""))
        return None if labels is None else [int((row != _NO_LABEL).sum()) for row in labels]

    def no_loss_tokens(self) -> SettingError:
        """Returns the error of a job of which nobody knows how many labels a global batch has."""
        if {"labels", "loss_mask"} & self.names.keys():
            return SettingError(
                f"job `{self.job}` has masks and cuts documents elsewhere in each epoch, so that nobody knows what a global batch learns",
                'add up `m.loss_tokens` of all ranks, or take `method = "best_fit"`',
            )
        return SettingError(f"job `{self.job}` has no column of `labels`, of which `global_loss_tokens` is the number", _missing("labels"))

    def no_global_lengths(self) -> SettingError:
        """Returns the error of a job whose batches do not have the lengths of the documents of the global batch."""
        if "global_lengths" in self.names:
            return SettingError(f"a step of job `{self.job}` has more than 1048576 documents for each sequence of this rank", "set `max_documents`, or a larger `align`")
        return SettingError(f"job `{self.job}` has no column of `global_lengths`", _missing("global_lengths"))

    def divide(self, columns: Mapping[str, Any], counted: Counted | None, rows: int | None, pad_to: int | None) -> Iterator[MicroBatch]:
        """Returns the micro-batches of a batch with these columns."""
        if self.seq_len is None:
            raise SettingError(
                f"job `{self.job}` has no `sequence`, so that its samples are no sequences of tokens",
                'give it `sequence = { seq_len = 8192 }`, a column with `decode = "tokens"`, and one with `decode = "document_lengths"`',
            )
        if counted is None:
            raise SettingError(f"job `{self.job}` has no column of `document_lengths`, of which `packed` makes `cu_seqlens`", _missing("document_lengths"))
        if rows is not None and rows < 1:
            raise SettingError(f"`rows` of `packed` is {rows}, not at least 1")
        places = {kind: columns[self.names[kind]] for kind in _KINDS if self.names.get(kind, "") in columns}
        if not all(hasattr(column, "reshape") for column in places.values()):
            raise SettingError(
                "`packed` makes tensors, and the columns of this loader are neither torch's nor numpy's",
                'install numpy (`pip install numpy`), or import torch before the first batch; with `tensors="dlpack"`, read `document_lengths`',
            )
        return self._divided(self.seq_len, places, counted, rows, pad_to)

    def _divided(self, seq_len: int, places: Mapping[str, Any], counted: Counted, rows: int | None, pad_to: int | None) -> Iterator[MicroBatch]:
        documents, loss_tokens = counted
        step = rows or max(1, len(documents))
        for first in range(0, len(documents), step):
            end = min(first + step, len(documents))
            columns = {kind: column[first:end] for kind, column in places.items()}
            learned = None if loss_tokens is None else sum(loss_tokens[first:end])
            micro = MicroBatch(self.job, columns, seq_len, first, documents[first:end], learned, pad_to)
            if pad_to is not None and len(micro.segment_lengths) >= pad_to:
                raise SettingError(
                    f"`pad_to` of `packed` is {pad_to}, and sequences {first} to {end - 1} of the batch have {len(micro.segment_lengths)} segments, "
                    f"which take {len(micro.segment_lengths) + 1} elements of `cu_seqlens`",
                    f"with `max_documents = n` in the job's `sequence`, rows * (n + 1) + 1 is always enough: {end - first} * (n + 1) + 1 here",
                )
            yield micro


class TokenColumns:
    """The columns of some places of sequences, found by their kinds whatever the job calls them; of several columns of a
    kind, the first. A kind that the job does not have raises `AttributeError`, so `getattr(m, "positions", None)` asks
    for it.
    """

    __slots__ = ("_job", "_columns")

    def __init__(self, job: str, columns: Mapping[str, Any]) -> None:
        """Not for callers: use `Batch.packed`."""
        self._job = job
        self._columns = columns

    def _column(self, kind: str) -> Any:
        if kind not in self._columns:
            raise AttributeError(f"job `{self._job}` has no column of `{kind}`; {_missing(kind)}")
        return self._columns[kind]

    @property
    def tokens(self) -> Any:
        """The ids: int32 or int64, as the job has them."""
        return self._column("tokens")

    @property
    def labels(self) -> Any:
        """What each place has to predict, -100 where nothing is learned: int64 or int32."""
        return self._column("labels")

    @property
    def positions(self) -> Any:
        """The place of each token within its document, from 0: int32 or int64."""
        return self._column("positions")

    @property
    def document_ids(self) -> Any:
        """The number of each token's document within its sequence, from 0, and -1 where no document is: int32."""
        return self._column("document_ids")

    @property
    def loss_mask(self) -> Any:
        """1 where something is learned, and 0 elsewhere: float32, uint8 or bool."""
        return self._column("loss_mask")


class MicroBatch(TokenColumns):
    """Some sequences of a batch, of a job with `sequence`: `tokens`, `labels`, `positions`, `document_ids` and `loss_mask`
    are views of the batch's memory, `[rows, seq_len]`; those that the job has. `m.tokens.view(-1)` is flat, and a view, too.

    Nothing here waits for a GPU: lengths and numbers of labels are known on the host.
    """

    __slots__ = ("_seq_len", "_first", "_documents", "_segments", "_loss_tokens", "_pad_to", "_cu_seqlens")

    def __init__(
        self,
        job: str,
        columns: Mapping[str, Any],
        seq_len: int,
        first: int,
        documents: Sequence[Sequence[int]],
        loss_tokens: int | None,
        pad_to: int | None,
    ) -> None:
        """Not for callers: use `Batch.packed`."""
        super().__init__(job, columns)
        self._seq_len = seq_len
        #: The number of the first sequence in its batch.
        self._first = first
        #: The lengths of each sequence's documents, and with the padding behind the last one.
        self._documents = documents
        self._segments = [[*lengths, rest] if (rest := seq_len - sum(lengths)) else lengths for lengths in documents]
        self._loss_tokens = loss_tokens
        self._pad_to = pad_to
        self._cu_seqlens: Any = None

    @property
    def rows(self) -> int:
        """The number of sequences."""
        return len(self._segments)

    @property
    def segment_lengths(self) -> list[int]:
        """The length of each segment of the flat micro-batch, on the host: of each sequence its documents, in order, and what
        is behind the last one as a segment of its own. They add up to `rows * seq_len`."""
        return [length for row in self._segments for length in row]

    @property
    def row_lengths(self) -> Sequence[Sequence[int]]:
        """The same as `segment_lengths`, sequence by sequence; each adds up to `seq_len`."""
        return self._segments

    @property
    def cu_seqlens(self) -> Any:
        """Where each segment of the flat micro-batch begins, and where the last one ends, on the device of the columns:
        int32, `[segments + 1]`, from 0 to `rows * seq_len`. Kernels of attention over packed sequences take it, with `max_seqlen`.
        With `pad_to`, it is `[pad_to]`: the end is repeated, which kernels and Megatron take for segments without a place."""
        if self._cu_seqlens is None:
            ends = [0, *accumulate(self.segment_lengths)]
            self._cu_seqlens = _ints(ends + ends[-1:] * ((self._pad_to or 0) - len(ends)), "int32", self.tokens)
        return self._cu_seqlens

    @property
    def segment_ids(self) -> Any:
        """The number of each place's segment within its row, from 0, on the device of the columns: int32, `[rows, seq_len]`. Unlike
        `document_ids`, what is behind the last document has a number, and the job needs no column for it."""
        numbers = [number for row in self._segments for number in range(len(row))]
        return _repeated(numbers, self.segment_lengths, self.tokens).reshape(self.rows, -1)

    @property
    def max_seqlen(self) -> int:
        """The length of the longest segment."""
        return max(self.segment_lengths)

    @property
    def loss_tokens(self) -> int:
        """The number of labels that are not -100: what the sum of the losses is divided by. On a GPU, it is of the labels as
        they were when the batch came."""
        if self._loss_tokens is None:
            raise AttributeError(f"job `{self._job}` has no column of `labels`, of which `loss_tokens` is the number; {_missing('labels')}")
        return self._loss_tokens

    def cp_slice(self, rank: int, ranks: int, slicing: CpSlicing) -> TokenColumns:
        """Returns the places of one rank of context parallelism.

        rank: among the ranks that share the sequences, from 0.
        ranks: how many they are.
        slicing: `"contiguous"`: a part of each sequence, `[rows, seq_len / ranks]`; a view.
            `"headtail"`: of 2 * `ranks` equal chunks of each sequence the chunks `rank` and 2 * `ranks` - 1 - `rank`, so that
            all ranks have as much of a causal mask; `[rows, 2, seq_len / (2 * ranks)]`, a view, of which `.reshape(rows, -1)` makes
            the sequence that torch's and Megatron's slices have.
            `"document"`: the same within each segment, one segment after the other, as Transformer Engine divides packed
            sequences; `[rows * seq_len / ranks]`. These are no range, so they are gathered: a copy.

        Raises `SettingError` if the sequence, or a segment of it, does not divide evenly.
        """
        if not 0 <= rank < ranks:
            raise SettingError(f"rank {rank} of {ranks} is none: ranks of context parallelism are from 0 to their number - 1")
        if slicing == "document":
            index = _index(self._chunks(rank, ranks), self.tokens)
            return TokenColumns(self._job, {kind: _take(column, index) for kind, column in self._columns.items()})
        if slicing not in ("headtail", "contiguous"):
            raise SettingError(f'`slicing` is {slicing!r}, not "headtail", "contiguous" or "document"')
        parts = ranks if slicing == "contiguous" else 2 * ranks
        if self._seq_len % parts:
            raise SettingError(
                f"`seq_len` of job `{self._job}` is {self._seq_len}, which does not divide into {parts} equal chunks for {ranks} ranks",
                f"take a multiple of {parts}",
            )
        shape = (self.rows, parts, self._seq_len // parts)
        chunks = {kind: column.reshape(shape) for kind, column in self._columns.items()}
        if slicing == "contiguous":
            return TokenColumns(self._job, {kind: column[:, rank] for kind, column in chunks.items()})
        # The two chunks, and the step from one to the other.
        pair = slice(rank, parts - rank, parts - 1 - 2 * rank)
        return TokenColumns(self._job, {kind: column[:, pair] for kind, column in chunks.items()})

    def _chunks(self, rank: int, ranks: int) -> list[tuple[int, int]]:
        """Returns where each chunk of a rank begins in the flat micro-batch, and its length."""
        chunks, at, parts = [], 0, 2 * ranks
        for row, segments in enumerate(self._segments):
            for number, length in enumerate(segments):
                if length % parts:
                    raise SettingError(
                        f"{self._named(row, number)} of the batch has {length} places, which do not divide into {parts} equal chunks for {ranks} ranks",
                        'with `method = "best_fit"`, each document has a multiple of `align` places where `seq_len` is one, too; "headtail" needs '
                        "no more than a `seq_len` that divides",
                    )
                size = length // parts
                chunks += [(at + rank * size, size), (at + (parts - 1 - rank) * size, size)]
                at += length
        return chunks

    def _named(self, row: int, number: int) -> str:
        """Names a segment of a sequence."""
        is_document = number < len(self._documents[row])
        return f"document {number} of sequence {self._first + row}" if is_document else f"the padding behind the documents of sequence {self._first + row}"

    def __repr__(self) -> str:
        return f"MicroBatch({self.rows} sequences of {self._seq_len}, {len(self.segment_lengths)} segments: {', '.join(self._columns)})"


def check_labels(micro: MicroBatch, taker: str, *, shifted: bool) -> None:
    """Raises an error if labels are not what `taker` takes: the next id of each place if `shifted`, or else its own. It waits for the
    device that the labels are on."""
    labels, tokens = micro.labels, micro.tokens
    # Of labels that are shifted, the last one of a row is of no token in it.
    next_ids, own_ids = (labels[:, :-1], tokens[:, 1:]), (labels, tokens)
    right, wrong = (next_ids, own_ids) if shifted else (own_ids, next_ids)
    if _are_ids(*right) or not _are_ids(*wrong):
        return
    raise SettingError(
        f"labels of job `{micro._job}` are {'the ids at their places' if shifted else 'the next ids'}, and {taker} takes {'the next ids' if shifted else 'the ids at their places'}",
        f"in the job's column of labels, {'leave `shifted = false` out' if shifted else 'set `shifted = false`'}",
    )


def check_lengths(facts: LoaderFacts, taker: str, seq_len: int) -> None:
    """Raises an error if sequences are not as long as `taker` takes them, or if its ranks would not have as many in each step."""
    if facts.seq_len != seq_len:
        raise SettingError(f"`seq_len` of job `{facts.job}` is {facts.seq_len}, and {taker}'s sequences have {seq_len} tokens", "give both the same length")
    if facts.epoch_end == "partial":
        raise SettingError(
            f"the last batch of job `{facts.job}` is short, and {taker} takes batches of one size",
            'set `epoch_end = "exact"` in the job: the places that are left over have nothing to learn',
        )


def _are_ids(labels: Any, ids: Any) -> bool:
    return bool(((labels == _NO_LABEL) | (labels == ids)).all())


def _missing(kind: str) -> str:
    """Returns what to do about a column that the job does not have."""
    keys = 'from = "tokens", decode = "tokens"' if kind == "tokens" else f'decode = "{kind}", follows = "tokens"'
    return f'add {{ name = "{kind}", {keys} }} to its columns'


def _is_torch(tensor: Any) -> bool:
    return hasattr(tensor, "index_select")


def _on_device(made: Any, like: Any) -> Any:
    """Copies a tensor of torch to the device of another. From page-locked memory, so that the host does not wait for the
    device."""
    return made.pin_memory().to(like.device, non_blocking=True) if like.is_cuda else made.to(like.device)


def _ints(values: list[int], dtype: Literal["int32", "int64"], like: Any) -> Any:
    """Makes a tensor of numbers, as `like` is and on its device."""
    if _is_torch(like):
        import torch

        return _on_device(torch.tensor(values, dtype=getattr(torch, dtype)), like)
    import numpy

    return numpy.array(values, dtype)


def _repeated(numbers: list[int], counts: list[int], like: Any) -> Any:
    """Returns each number as often as its count says, on the device of `like`: int32."""
    if _is_torch(like):
        import torch

        return _on_device(torch.tensor(numbers, dtype=torch.int32).repeat_interleave(torch.tensor(counts)), like)
    import numpy

    return numpy.repeat(numpy.array(numbers, "int32"), counts)


def _index(chunks: list[tuple[int, int]], like: Any) -> Any:
    """Returns the numbers of all places of chunks, end to end, on the device of `like`: int64."""
    shifts, sizes, end = [], [], 0
    for first, size in chunks:
        shifts.append(first - end)
        sizes.append(size)
        end += size
    if _is_torch(like):
        import torch

        return _on_device(torch.arange(end) + torch.tensor(shifts).repeat_interleave(torch.tensor(sizes)), like)
    import numpy

    return numpy.arange(end) + numpy.repeat(shifts, sizes)


def _take(column: Any, index: Any) -> Any:
    """Returns these places of the flat column."""
    flat = column.reshape(-1)
    return flat.index_select(0, index) if _is_torch(flat) else flat[index]
