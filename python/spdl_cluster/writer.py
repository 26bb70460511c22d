"""Writes a dataset sample by sample, from any program."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from . import encoding
from ._native import NativeWriter
from .datasets import DatasetReport, class_names, shard_records
from .errors import SettingError

_open: weakref.WeakSet[Writer] = weakref.WeakSet()


class Writer:
    """Writes the samples of a program as a dataset, in the order of the calls:

        with spdl_cluster.Writer("dataset", {"image": "jpeg:90", "label": "int"}) as writer:
            for picture, label in samples:
                writer.write({"image": picture, "label": label})

    The dataset is one of WebDataset's tar shards with our indexes and a manifest, as `pack` makes it. It is there when `close`, or the end of the `with`,
    has written the manifest: an exception inside of it leaves nothing, and a process that is killed leaves shards without a manifest, which `force=True`
    removes.
    """

    def __init__(
        self,
        dataset: str | os.PathLike[str],
        fields: Mapping[str, str] | None = None,
        *,
        name: str | None = None,
        classes: Sequence[str] = (),
        shard_size: int | str = "256MiB",
        records_per_shard: int | None = None,
        block_size: int | str = "8MiB",
        crop_ready: bool = False,
        scalable: bool = False,
        force: bool = False,
    ) -> None:
        """Begins a dataset.

        dataset: folder or URL of the dataset: a path, s3://, gs://, az:// ... It is made if it is not there.
        fields: the fields and their types, which are `bytes`, `str`, `int`, `float`, `bool`, `json`, `ndarray` (a `.npy` file), `jpeg` and `png`. Default: those of
            the first sample, with the types that fit its values. `jpeg` has the quality 95, and `jpeg:90` another one; bytes that are a JPEG already stay as they are.
        name: the dataset's name. Default: the last part of its URL.
        classes: the names of the classes, in the order of their numbers. With them, a whole number in the field `cls` or `label` has to be that of a class.
        shard_size: bytes at which a shard is closed and the next one begun. More give fewer objects, and fewer that can be copied at once.
        records_per_shard: samples at which a shard is closed. Default: no limit but the size.
        block_size: bytes of a block, the unit of shuffle, fetch and cache, best 4 to 16 MiB. Larger ones make the shuffle coarser.
        crop_ready: rewrite JPEGs without loss, so that random crops of them decode faster. They become about 1 % larger.
        scalable: pack JPEGs as scalable pictures, some 5 % smaller, of which workers read what a crop's area and scale need; `unpack` gives back the same files.
        force: replace the dataset that is there, once this one is complete, and remove what a killed writer has left.
        """
        self._types = {field: encoding.named(kind, field) for field, kind in (fields or {}).items()}
        #: The names of the fields, in their order; `None` before the first sample, if that decides.
        self._names = None if fields is None else list(fields)
        #: What was written, after `close`.
        self.report: DatasetReport | None = None
        self._native = NativeWriter(
            os.fspath(dataset),
            name=name,
            classes=class_names(classes),
            shard_size=shard_size,
            records_per_shard=shard_records(records_per_shard),
            block_size=block_size,
            crop_ready=crop_ready,
            scalable=scalable,
            force=force,
        )
        _open.add(self)

    def write(self, sample: Mapping[str, Any], key: str | None = None) -> None:
        """Writes a sample. Waits while the store is slower than the program.

        sample: the values by field; the same fields in each sample. With `None`, this sample lacks the field.
        key: the sample's key in its shard, which differs from all others and has no dot after its last slash. Default: the sample's number.

        A value that its field's type does not take is a `SettingError`, which names both. The sample is not written then, and the next one can be.
        """
        number = self._native.count
        if not isinstance(sample, Mapping):
            raise SettingError(f"sample {number} is a `{type(sample).__name__}`, not a dict of fields")
        if key is not None and not isinstance(key, str):
            raise SettingError(f"sample {number} has the key `{key!r}`, which is no text", "give a text, such as `key=str(number)`")
        if "__key__" in sample:
            raise SettingError(f"sample {number} has a field `__key__`", "give the key as `write(sample, key=...)`")
        odd = [name for name in sample if not isinstance(name, str)]
        if odd:
            raise SettingError(f"sample {number} has the field `{odd[0]!r}`, whose name is no text")
        names = list(sample) if self._names is None else self._names
        if set(names) != set(sample):
            differs = ", ".join(f"`{name}`" for name in sorted(set(names) ^ set(sample), key=str))
            raise SettingError(
                f"sample {number} has not the fields of the others: {differs}", "each sample has all fields, some of which may be `None`"
            )
        contents: list[tuple[str, bytes]] = []
        types: dict[str, encoding.Encoder] = {}
        for name in names:
            value = sample[name]
            if value is None:
                continue
            kind = self._types.get(name) or types.setdefault(name, encoding.inferred(value, name, number))
            contents.append((name, kind.bytes_of(value, name, number)))
        self._native.write(key, contents)
        self._names, self._types = names, {**self._types, **types}

    @property
    def samples(self) -> int:
        """The number of samples that were written."""
        return self._native.count if self.report is None else self.report.samples

    def close(self) -> DatasetReport:
        """Writes the rest and the manifest, and returns what was written. The dataset is there afterwards, or nothing of it."""
        if self.report is None:
            try:
                self.report = DatasetReport.of(self._native.finish())
            except BaseException:
                self._native.abort()
                raise
            finally:
                _open.discard(self)
        return self.report

    def abort(self) -> None:
        """Ends without a dataset, and removes what was written."""
        _open.discard(self)
        self._native.abort()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


@atexit.register
def _abort_all() -> None:
    """Removes what writers have written that the program has left open."""
    for writer in list(_open):
        writer.abort()
