"""Single records of a dataset, to look at them: by their numbers, and by their keys."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Callable, Iterator
from typing import Any, SupportsIndex, overload

from . import ops
from ._native import NativeDataset
from .errors import DataError

_picture = ops.decode_image()
_array = ops.decode_tensor()

#: How a value becomes an object, by what it is.
_DECODED: dict[str, Callable[[bytes], Any]] = {
    "picture": _picture,
    "array": _array,
    "int": int,
    "float": float,
    "json": json.loads,
    "text": bytes.decode,
    "bytes": bytes,
}


class Record(dict[str, Any]):
    """The fields of a record by their names, decoded: a picture is an array `[height, width, 3]` of RGB, upright, as a job without operations has it; a number is
    an `int` or a `float`; a `.npy` file and whatever a format knows as an array is an array; a JSON document is what `json` makes of it; text is a `str`; anything
    else is `bytes`. A field that has no value is not in it."""

    #: The record's key.
    key: str
    #: The number of the sample, as `batch.ids` has it, and that of the sample in the record, which is above 0 only where a record has several.
    sample: int
    sample_in_record: int

    def __repr__(self) -> str:
        return f"<spdl_cluster.Record `{self.key}`: {', '.join(f'{name} {_shown(value)}' for name, value in self.items())}>"


class Dataset:
    """The records of a dataset. Made by `open`; for training there are `local` and `connect`.

    `dataset[i]` is the record of sample `i`, `dataset["key"]` that of a key, and `dataset[10:20]` a list. Each is read when it is asked for, and nothing is kept. It
    may be used by several threads, and belongs to the process that opened it.
    """

    def __init__(self, native: NativeDataset) -> None:
        """Not for callers: use `open`."""
        self._native = native

    def __len__(self) -> int:
        """Returns the number of samples."""
        return self._native.samples

    @overload
    def __getitem__(self, at: SupportsIndex) -> Record: ...
    @overload
    def __getitem__(self, at: str) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> list[Record]: ...
    def __getitem__(self, at: SupportsIndex | str | slice) -> Record | list[Record]:
        """Returns a record or several. The first look-up of a key reads the indexes of all shards, and keeps some 50 bytes for each record.

        Raises `IndexError` or `KeyError` if there is none, and `DataError` if a field cannot be decoded.
        """
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        if isinstance(at, str):
            found = self._native.find(at)
            if found is None:
                raise KeyError(at)
            return self._record(found)
        number = operator.index(at)
        if not -len(self) <= number < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        return self._record(number % len(self))

    def __iter__(self) -> Iterator[Record]:
        """Iterates over the records of all samples, one after the other."""
        return map(self._record, range(len(self)))

    def __contains__(self, key: object) -> bool:
        """Returns whether a record has this key."""
        return isinstance(key, str) and self._native.find(key) is not None

    @property
    def classes(self) -> list[str] | None:
        """The names of the classes, in the order of their numbers; `None` if the dataset lists none."""
        return self._native.classes or None

    @property
    def name(self) -> str:
        """The dataset's name."""
        return self._native.name

    @property
    def url(self) -> str:
        """The URL of its folder."""
        return self._native.url

    @property
    def format(self) -> str:
        """The format of its shards."""
        return self._native.format

    @property
    def fingerprint(self) -> str:
        """The fingerprint of its content, 32 hexadecimal digits."""
        return self._native.fingerprint

    def __repr__(self) -> str:
        return f"<spdl_cluster.Dataset `{self.name}`: {len(self)} samples, {self.format}, {self.url}>"

    def _record(self, sample: int) -> Record:
        key, nth, fields = self._native.record(sample)
        record = Record()
        record.key, record.sample, record.sample_in_record = key, sample, nth
        for name, what, is_list, values in fields:
            try:
                decoded = [None if value is None else _DECODED[what](value) for value in values]
            except (DataError, ValueError) as error:
                raise DataError(f"record `{key}`, field `{name}`: {error}") from error
            record[name] = decoded if is_list else decoded[0]
        return record


def open(dataset: str | os.PathLike[str]) -> Dataset:
    """Opens a dataset that was packed or indexed, to look at its records.

    dataset: folder or URL of the dataset, as a job names it.

    Raises `DataError` if there is none, or it cannot be read.
    """
    return Dataset(NativeDataset.open(os.fspath(dataset)))


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if hasattr(value, "shape"):
        return f"{value.dtype} {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
