"""Datasets: `spdl-ctl pack`, `index` and `merge` from Python."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, overload

from . import _native
from .errors import SettingError
from .progress import shown

if TYPE_CHECKING:
    from typing_extensions import Unpack

    _Path: TypeAlias = str | os.PathLike[str]

    class _PackKeys(TypedDict, total=False):
        """The options of every `pack`."""

        name: str | None
        seed: int
        no_shuffle: bool
        shard_size: int | str
        block_size: int | str
        progress: bool

    class _PackFileKeys(_PackKeys, total=False):
        """The options of a `pack` of files."""

        fields: Mapping[str, str] | Sequence[str] | str | None
        annotations: str | os.PathLike[str] | None
        annotations_beside: bool
        classes: Sequence[str] | Literal["numeric"] | None
        classes_file: str | os.PathLike[str] | None
        classes_from: str | os.PathLike[str] | None
        all_splits: bool
        records_per_shard: int | None
        crop_ready: bool
        scalable: bool
        gop: int | None

    class _PackTokenKeys(_PackKeys, total=False):
        """The options of a `pack` of tokens that may be left out."""

        from_field: str
        eos: int | None


def class_names(classes: Sequence[str]) -> list[str]:
    """Returns the names of classes, which are not one text."""
    if isinstance(classes, str):
        raise SettingError(f"`classes` is the text `{classes}`, not a list of names", f"one class is `[{classes!r}]`")
    return list(classes)


def class_order(
    classes: Sequence[str] | None, file: str | os.PathLike[str] | None, dataset: str | os.PathLike[str] | None
) -> tuple[str, list[str]] | None:
    """Returns how classes are numbered: by what, and its names."""
    given = {"classes": classes, "classes_file": file, "classes_from": dataset}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) > 1:
        raise SettingError(f"{' and '.join(f'`{name}`' for name in given)} are both given", "leave one of them out")
    if file is not None:
        return "file", [os.fspath(file)]
    if dataset is not None:
        return "dataset", [os.fspath(dataset)]
    if classes is None:
        return None
    return ("numeric", []) if classes == "numeric" else ("names", class_names(classes))


def shard_records(records_per_shard: int | None) -> int | None:
    """Returns the number of records of a shard, if it can be one."""
    if records_per_shard is not None and not 1 <= records_per_shard < 1 << 32:
        raise SettingError(f"`records_per_shard` is {records_per_shard}, not a number from 1 to {(1 << 32) - 1}")
    return records_per_shard


@dataclasses.dataclass(frozen=True)
class DatasetReport:
    """What is in a dataset that was made."""

    #: Path or URL of its folder.
    url: str
    samples: int
    records: int
    blocks: int
    shards: int
    #: Of all shards.
    bytes: int
    #: The names of the classes, in the order of their numbers; the first hundred.
    class_names: list[str]
    #: The fields, and the number of records that have each. Empty if the dataset was there before.
    fields: dict[str, int]
    #: Those of the fields of which the number is the most that it can be: Parquet without statistics, ArrayRecord.
    uncounted_fields: list[str]
    #: Number of files of the source that were left out.
    skipped_files: int
    #: The shards that `index` left out because they are bad, and what is wrong with each.
    bad_shards: dict[str, str]
    #: The first hundred oddities, each with the name of what is odd.
    notes: list[str]
    #: Of its manifest.
    fingerprint: str
    #: Number of tokens in its documents, of parts that `spdl-ctl tokenize` has made.
    tokens: int | None = None
    #: Number of documents that it has left out because they are bad.
    bad_documents: int = 0

    @classmethod
    def of(cls, text: str) -> DatasetReport:
        """Reads what `spdl-ctl` prints with `--json`."""
        found = json.loads(text)
        found["bad_shards"] = {bad["shard"]: bad["problem"] for bad in found["bad_shards"]}
        return cls(**{field.name: found[field.name] for field in dataclasses.fields(cls) if field.name in found})


@dataclasses.dataclass(frozen=True)
class PartReport:
    """What is in a part of a dataset that was packed."""

    #: Path or URL of the dataset's folder.
    url: str
    #: Number of the part, from 0, and of parts.
    part: int
    parts: int
    samples: int
    records: int
    shards: int
    #: Number of its shards that an earlier run had packed.
    kept_shards: int
    #: Of its shards.
    bytes: int

    @classmethod
    def of(cls, text: str) -> PartReport:
        """Reads what `spdl-ctl` prints with `--json`."""
        found = json.loads(text)
        return cls(**{field.name: found[field.name] for field in dataclasses.fields(cls)})


@dataclasses.dataclass(frozen=True)
class TokenPartReport:
    """What is in a part of a dataset of tokens that was packed."""

    #: Path or URL of the dataset's folder.
    url: str
    #: Number of the part, from 0, and of parts.
    part: int
    parts: int
    #: Number of units of the source in this part, and in all.
    units: int
    all_units: int
    documents: int
    tokens: int

    @classmethod
    def of(cls, text: str) -> TokenPartReport:
        """Reads what `spdl-ctl` prints with `--json`."""
        found = json.loads(text)
        return cls(**{field.name: found[field.name] for field in dataclasses.fields(cls)})


@overload
def pack(
    source: _Path,
    dataset: _Path,
    *,
    to: Literal["megatron"],
    vocab: int,
    records_per_shard: int | None = ...,
    force: bool = ...,
    exist_ok: bool = ...,
    part: None = ...,
    **keys: Unpack[_PackTokenKeys],
) -> DatasetReport: ...
@overload
def pack(source: _Path, dataset: _Path, *, to: Literal["megatron"], vocab: int, part: str, **keys: Unpack[_PackTokenKeys]) -> TokenPartReport: ...
@overload
def pack(
    source: _Path | Sequence[_Path], dataset: _Path, *, force: bool = ..., exist_ok: bool = ..., part: None = ..., **keys: Unpack[_PackFileKeys]
) -> DatasetReport: ...
@overload
def pack(
    source: _Path | Sequence[_Path], dataset: _Path, *, force: Literal[False] = ..., exist_ok: Literal[False] = ..., part: str, **keys: Unpack[_PackFileKeys]
) -> PartReport: ...
def pack(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    dataset: str | os.PathLike[str],
    *,
    name: str | None = None,
    fields: Mapping[str, str] | Sequence[str] | str | None = None,
    annotations: str | os.PathLike[str] | None = None,
    annotations_beside: bool = False,
    classes: Sequence[str] | Literal["numeric"] | None = None,
    classes_file: str | os.PathLike[str] | None = None,
    classes_from: str | os.PathLike[str] | None = None,
    all_splits: bool = False,
    seed: int = 0,
    no_shuffle: bool = False,
    shard_size: int | str = "256MiB",
    records_per_shard: int | None = None,
    block_size: int | str = "8MiB",
    crop_ready: bool = False,
    scalable: bool = False,
    gop: int | None = None,
    to: Literal["megatron"] | None = None,
    vocab: int | None = None,
    from_field: str = "tokens|input_ids",
    eos: int | None = None,
    force: bool = False,
    exist_ok: bool = False,
    part: str | None = None,
    progress: bool = True,
) -> DatasetReport | PartReport | TokenPartReport:
    """Writes shards from a folder of class folders, or from a text file that lists files; or with `to` the tokens of a dataset: `spdl-ctl pack`.

    source: a folder with one folder per class, on disk or as a URL (`s3://` ...), or a text file with a file's path, and after a tab its label, on each line. Files with one stem are one record.
        Or a list of folders on disk, which make one dataset: what is in folders of one name is of one class. With `to`, one dataset.
    dataset: folder or URL of the dataset: a path, s3://, gs://, az:// ...
    name: the dataset's name. Default: the last part of its URL.
    fields: which files of a record become its fields, by suffix, as `["jpg", "txt"]`, or with new names, as `{"jpg": "jpg", "png": "mask"}`. Default: all files.
    annotations: folder of Pascal VOC annotations, on disk or as a URL, at the paths of the pictures; one sample for each object.
    annotations_beside: use the annotations in the pictures' folders.
    classes: the classes in the order of their numbers, or `"numeric"` for classes whose names are numbers. Default: those that occur, by name.
    classes_file: a text file with the classes in the order of their numbers, one on each line.
    classes_from: take the classes of this dataset, as for validation those of training.
    all_splits: make classes of folders that are called as splits (`train`, `val`), too.
    seed, no_shuffle: records are mixed with this seed; with `no_shuffle` they stay in the source's order, which makes the shuffle of a training coarse.
    shard_size: bytes at which a shard is closed, an int or as `"256MiB"`. More give fewer objects, and fewer that can be written at once.
    records_per_shard: records at which a shard is closed. Default: no limit but the size.
    block_size: bytes of a block, the unit of shuffle, fetch and cache, best 4 to 16 MiB.
    crop_ready: rewrite JPEGs without loss, so that random crops of them decode faster. They become about 1 % larger.
    scalable: pack JPEGs as scalable pictures, some 5 % smaller, of which workers read what a crop's area and scale need; `unpack` gives back the same files.
    gop: code videos anew, with a key frame in every so many frames, 1 to 600, by the program `ffmpeg`: a clip decodes less then. Pixels change. Default: videos stay as they are.
    to: `"megatron"` packs the tokens of a dataset, of any format that has tokens, as pairs of `.bin` and `.idx`. Options of pictures are not for it.
    vocab: with `to`, the number of ids of the tokenizer; a document with another id is an error.
    from_field: with `to`, the field with the tokens; of several, with `|` between them, the first that a record has.
    eos: with `to`, an id that is put after each document that has tokens. Default: nothing is added.
    force: replace the dataset that is there, once this one is complete, and remove what a killed `pack` has left. Of tokens, only the latter.
    exist_ok: if a dataset is there, pack nothing and return its report, whatever it was made of; the report knows nothing of fields then.
    part: `"I/N"` packs only part I of N, from 0, on any machine; `merge` makes the dataset of them.
    progress: show a bar, of `tqdm` if it is installed, or else lines on standard error.

    Ctrl-C stops it, and nothing is left then; of a part, its whole shards, or of tokens its whole units.
    """
    if to is not None:
        given: dict[str, object] = {"fields": fields, "annotations": annotations, "annotations_beside": annotations_beside, "classes": classes}
        given |= {"classes_file": classes_file, "classes_from": classes_from, "all_splits": all_splits, "crop_ready": crop_ready, "scalable": scalable, "gop": gop}
        return _pack_tokens(
            _one_dataset(source, to, [name for name, value in given.items() if value]),
            os.fspath(dataset),
            vocab=vocab,
            from_field=from_field,
            eos=eos,
            name=name,
            seed=seed,
            no_shuffle=no_shuffle,
            shard_size=shard_size,
            records_per_shard=shard_records(records_per_shard),
            block_size=block_size,
            force=force,
            exist_ok=exist_ok,
            part=part,
            progress=progress,
        )
    if vocab is not None or eos is not None:
        raise SettingError(f"`{'eos' if vocab is None else 'vocab'}` is given without `to`", 'tokens are packed with `to="megatron"`')
    if not isinstance(fields, str) and fields is not None:
        fields = ",".join(f"{suffix}={field}" for suffix, field in fields.items()) if isinstance(fields, Mapping) else ",".join(fields)
    with shown("packing", progress) as show:
        text = _native.pack(
            _paths(source),
            os.fspath(dataset),
            name=name,
            fields=fields,
            annotations=annotations,
            annotations_beside=annotations_beside,
            classes=class_order(classes, classes_file, classes_from),
            all_splits=all_splits,
            seed=seed,
            no_shuffle=no_shuffle,
            shard_size=shard_size,
            records_per_shard=shard_records(records_per_shard),
            block_size=block_size,
            crop_ready=crop_ready,
            scalable=scalable,
            gop=gop,
            force=force,
            exist_ok=exist_ok,
            part=part,
            on_progress=show,
        )
    return DatasetReport.of(text) if part is None else PartReport.of(text)


def _one_dataset(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], to: str, of_pictures: list[str]) -> str:
    """Returns the dataset whose tokens are packed; `of_pictures` are the options of pictures that are given."""
    if to != "megatron":
        raise SettingError(f"`to` is {to!r}", 'tokens are packed with `to="megatron"`')
    if of_pictures:
        raise SettingError(f"`{of_pictures[0]}` is given with `to`, and is for pictures", "leave one of them out")
    if not isinstance(source, (str, os.PathLike)):
        raise SettingError("with `to`, the tokens of one dataset are packed, not of a list", "pack each into a folder of its own")
    return os.fspath(source)


def _pack_tokens(source: str, dataset: str, *, vocab: int | None, part: str | None, progress: bool, **options: Any) -> DatasetReport | TokenPartReport:
    if vocab is None:
        raise SettingError("`to` is given without `vocab`", "give the number of ids of the tokenizer")
    with shown("packing", progress) as show:
        text = _native.pack_tokens(source, dataset, vocab=vocab, part=part, on_progress=show, **options)
    return DatasetReport.of(text) if part is None else TokenPartReport.of(text)


def index(
    dataset: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,
    table: str | os.PathLike[str] | None = None,
    frames: bool = False,
    out: str | os.PathLike[str] | None = None,
    shards: str | Sequence[str] | None = None,
    split: str | None = None,
    all_splits: bool = False,
    name: str | None = None,
    boxes: str | None = None,
    key_ends_at: Literal["first-dot", "last-dot"] | None = None,
    dtype: str | None = None,
    end_token: int | None = None,
    classes: Sequence[str] | Literal["numeric"] | None = None,
    classes_file: str | os.PathLike[str] | None = None,
    classes_from: str | os.PathLike[str] | None = None,
    block_size: int | str | None = None,
    skip_bad_shards: int = 0,
    force: bool = False,
    discard_metadata: bool = False,
    progress: bool = True,
) -> DatasetReport:
    """Makes a manifest for shards or loose files that are there, without rewriting them: `spdl-ctl index`.

    dataset: folder or URL with the shards, or with loose files, such as a folder of pictures for each class. Or what matches shards (`"shards/*.tar"`), or a
        list of them: the manifest lies in the folder that they have in common.
    format: its format, such as `"mds"` or `"files"`. Default: by what is there.
    table: for loose files, and for members of tars, a table with a row for each record: a list of paths, `.tsv`, `.csv`, `.jsonl`, or
        COCO's `.json`; or a list of speech: a manifest of NeMo, of files or of tars, a table of Common Voice, a data folder of Kaldi, or a
        folder of lhotse's Shar.
    frames: for loose files, the pictures of a folder are the frames of a video, which is one sample, in the order of the numbers in their names.
        The folders in which those of videos lie are their classes; a row of a `table` names a folder.
    out: folder or URL for the manifest and the indexes, where the folder may only be read.
    shards: only these shards, in this order, or only these loose files, relative to the folder: names, `"train-{000000..000999}.tar"`, `"train-*"`.
    split: only the shards of this split, by their names: `"train"`, `"validation"`, `"test"`, or another that the names have.
    all_splits: make one dataset of all splits. Without it and `split`, several are an error.
    name: the dataset's name. Default: the last part of its URL.
    boxes: field that holds a Pascal VOC annotation: one sample for each object.
    key_ends_at: of tars, where keys end in the names of files: `"first-dot"`, or `"last-dot"`, so that each of `cat.0.jpg` and `cat.1.jpg` is a record.
        Default: the first dot, and an error where that makes few records of many pictures.
    dtype: of files of tokens alone, the type of the tokens, such as `"u16"`. Those of `.u16` and `.u32` need none.
    end_token: of files of tokens alone, the token that ends documents. With it, the format is `"raw_tokens"`.
    classes: the classes in the order of their numbers; others in the annotations follow, by name. Or `"numeric"` for classes whose names are numbers.
    classes_file: a text file with the classes in the order of their numbers, one on each line.
    classes_from: take the classes of this dataset, as for validation those of training.
    block_size: bytes of a block, the unit of shuffle, fetch and cache. Default: 8 MiB.
    skip_bad_shards: leave out up to this many shards that are damaged, or no shards of the format, and name them in `bad_shards` of the report. Without, the first one is an error.
    force: replace a manifest that is there, after all shards are read. It keeps what that has about shards whose bytes are the same.
    discard_metadata: with `force`, drop that too. The result is another dataset: jobs and checkpoints of the old one do not work with it.
    progress: show a bar, of `tqdm` if it is installed, or else lines on standard error.

    Ctrl-C stops it, and nothing is left then.
    """
    if split is not None and (all_splits or shards is not None):
        raise SettingError("`split` and `all_splits` or `shards` are both given", "leave one of them out")
    with shown("indexing", progress) as show:
        text = _native.index(
            _paths(dataset),
            format=format,
            table=table,
            frames=frames,
            out=None if out is None else os.fspath(out),
            shards=None if shards is None else [shards] if isinstance(shards, str) else list(shards),
            split=split,
            all_splits=all_splits,
            name=name,
            boxes=boxes,
            key_ends_at=key_ends_at,
            dtype=dtype,
            end_token=end_token,
            classes=class_order(classes, classes_file, classes_from),
            block_size=block_size,
            skip_bad_shards=skip_bad_shards,
            force=force,
            discard_metadata=discard_metadata,
            on_progress=show,
        )
    return DatasetReport.of(text)


def _paths(some: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    return [os.fspath(path) for path in ([some] if isinstance(some, (str, os.PathLike)) else some)]


def merge(dataset: str | os.PathLike[str]) -> DatasetReport:
    """Makes one dataset of the parts that `pack(..., part="I/N")` has packed, without reading the shards, or that `spdl-ctl tokenize --part I/N` has
    tokenized, whose shards it writes: `spdl-ctl merge`.

    dataset: folder or URL of the dataset.
    """
    return DatasetReport.of(_native.merge_parts(os.fspath(dataset)))
