"""What one begins with: a job for a dataset, and loaders of folders of pictures."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Any, cast, overload

from . import _native, datasets, environment, opening
from .errors import DataError, SettingError
from .loader import Loader

if TYPE_CHECKING:
    from .job import Job

_LOGGER = logging.getLogger("spdl_cluster")
#: From so many pictures on, indexing takes long enough to show how far it is.
_MANY = 50_000
#: Indexes that were not used for so long are removed.
_UNUSED_S = 30 * 24 * 3600.0
#: Part of the name of an index, which changes with what an index is.
_VERSION = "1"
#: Names of folders that are parts of the data, and no classes.
_SPLITS = ({"train", "training"}, {"val", "valid", "validation", "dev", "test", "testing"})


def suggest(
    dataset: str | os.PathLike[str],
    size: int = 224,
    validation: bool = False,
    *,
    batch: int | None = None,
    training: str | os.PathLike[str] | None = None,
) -> Job:
    """Returns a job that reads what the records of a dataset have, as a dict for `local`, `connect` and `submit`: what `spdl-ctl job init` writes.

    dataset: folder or URL of a dataset that was packed or indexed.
    size: side of the pictures in pixels. Pictures that all have one smaller size keep it.
    validation: every sample once, in the dataset's order, with nothing random. Otherwise for training: shuffled, with random crops and flips.
    batch: samples of a batch. Default: 64, or fewer where they would take much memory.
    training: for a validation, the dataset of its training: then the pictures of both have one size.

    It looks at some 256 records. A line of the log, at level WARNING, names each field that it leaves out, with the reason.
    """
    _check("size", size, 16384)
    if batch is not None:
        _check("batch", batch, 1 << 24)
    job, left_out = _native.suggest(os.fspath(dataset), size=size, batch=batch, validation=validation, training=None if training is None else os.fspath(training))
    for name, reason in left_out:
        _LOGGER.warning("the suggested job leaves out the field `%s` of `%s`: %s", name, dataset, reason)
    return cast("Job", job)


@overload
def imagefolder(
    train: str | os.PathLike[str],
    val: None = ...,
    *,
    size: int = ...,
    batch: int | None = ...,
    epochs: int | None = ...,
    cache: str | os.PathLike[str] | None = ...,
    progress: bool = ...,
    **settings: Any,
) -> Loader: ...
@overload
def imagefolder(
    train: str | os.PathLike[str],
    val: str | os.PathLike[str],
    *,
    size: int = ...,
    batch: int | None = ...,
    epochs: int | None = ...,
    cache: str | os.PathLike[str] | None = ...,
    progress: bool = ...,
    **settings: Any,
) -> tuple[Loader, Loader]: ...
def imagefolder(
    train: str | os.PathLike[str],
    val: str | os.PathLike[str] | None = None,
    *,
    size: int = 224,
    batch: int | None = None,
    epochs: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **settings: Any,
) -> Loader | tuple[Loader, Loader]:
    """Returns the loader of a folder of pictures with a folder for each class, as torchvision's `ImageFolder` reads it; with `val`, also that of
    the pictures for validation.

        train, val = spdl_cluster.imagefolder("photos/train", "photos/val")
        for batch in train:
            step(batch["image"], batch["label"])

    train: the folder. Its loader shuffles, crops and flips, and each `for` over it is another epoch.
    val: a folder with folders of the same names, whose classes get the same numbers. Each `for` over its loader is all of it, in order, with
        nothing random.
    size: side of the pictures in pixels. Pictures that all have one smaller size keep it.
    batch: samples of a batch, over all ranks. Default: 64, or fewer where they would take much memory.
    epochs: number of epochs of the training. Default: without an end.
    cache: folder for the indexes, which take some 100 bytes for each picture. Default: `spdl-cluster/imagefolder` in `XDG_CACHE_HOME` or `~/.cache`.
    progress: say on standard error where an index was made.
    settings: others of `local`, for both loaders (`start`, `state` and `repeat` for the first), such as `device="cuda"`, `cores="60%"` or `tuples=("image", "label")`.

    Pictures are read where they are: nothing is copied, and the folder is not written to. It is indexed at the first call; another call uses the same index,
    unless a file was added, removed or changed. `pack` copies pictures into shards, which are read faster from disks and stores that take long for each file.
    """
    cache = os.path.join(environment.cache_folder(), "imagefolder") if cache is None else os.fspath(cache)
    if epochs is None:
        settings = {"repeat": True, **settings}
    trained = _Folder(train)
    index = trained.index(cache, progress)
    made = opening.local(suggest(index, size, batch=batch), epochs=epochs, **settings)
    if val is None:
        return made
    # An evaluation repeats in any case, and where to start is said of the training.
    for of_training in ("repeat", "start", "state"):
        settings.pop(of_training, None)
    job = suggest(_Folder(val, trained).index(cache, progress), size, validation=True, batch=batch, training=index)
    return made, opening.local(job, **settings)


class _Folder:
    """A folder with a folder for each class."""

    def __init__(self, path: str | os.PathLike[str], trained: _Folder | None = None) -> None:
        """`trained` is the folder whose classes this one has, too."""
        self.path = os.path.abspath(os.fspath(path))
        salt = [_VERSION, *(trained.classes if trained else ())]
        self._digest, folders, self._loose = _native.image_folder(self.path, "\n".join(salt))
        pictures = dict(folders)
        self._pictures = self._loose + sum(pictures.values())
        #: The classes in the order of their numbers.
        self.classes: list[str] = trained.classes if trained else sorted(pictures)
        self._check(pictures)
        other = next((name for name in pictures if name not in self.classes), None)
        if trained is not None and other is not None:
            known = ", ".join(f"`{name}`" for name in self.classes[:10]) + (", ..." if len(self.classes) > 10 else "")
            raise DataError(
                f"`{os.path.join(self.path, other)}` is of a class that `{trained.path}` does not have: {known}",
                "name the folders of a class alike in both, or remove the folder",
            )

    def _check(self, pictures: dict[str, int]) -> None:
        train, val = ([name for name in pictures if name in names] for names in _SPLITS)
        if train and val:
            first, second = (os.path.join(self.path, names[0]) for names in (train, val))
            raise SettingError(
                f"`{self.path}` has the folders `{train[0]}` and `{val[0]}`, which are no classes", f"give both: `imagefolder({first!r}, {second!r})`"
            )
        if self._pictures == 0:
            raise DataError(f"there is no picture in `{self.path}`", "it has to have a folder for each class, with pictures in it")
        if self._pictures == self._loose:
            raise DataError(
                f"the pictures of `{self.path}` lie in it, and not in a folder for each class",
                "make these folders; or `spdl_cluster.index` the folder with a table of labels, and `local(suggest(...))` loads it",
            )
        empty = next((name for name, count in pictures.items() if count == 0), None)
        if empty is not None:
            raise DataError(
                f"`{os.path.join(self.path, empty)}` has no picture, and its name is that of a class", "put pictures into it, or remove it"
            )
        if self._loose:
            _LOGGER.warning("pictures that lie in `%s` itself, and in the folder of no class, are left out: %d", self.path, self._loose)

    def index(self, cache: str, progress: bool) -> str:
        """Returns the folder with the index of the pictures, which is made if there is none of what the folder has now."""
        name = os.path.basename(self.path)
        index = os.path.join(cache, f"{name}-{self._digest[:24]}")
        if os.path.isdir(index):
            # What is in use is not removed.
            with contextlib.suppress(OSError):
                os.utime(index)
            return index
        new = f"{index}.new-{os.getpid()}"
        try:
            os.makedirs(new)
        except OSError as error:
            problem = f"`{cache}`, where the index of `{self.path}` belongs, cannot be written: {error.strerror}"
            raise SettingError(problem, "name another folder with `cache=`") from None
        try:
            in_folders = "*/**/*" if self._loose else None
            datasets.index(
                self.path, format="files", out=new, shards=in_folders, name=name, classes=self.classes, progress=progress and self._pictures > _MANY
            )
            # Another rank may have made it meanwhile.
            with contextlib.suppress(OSError):
                os.rename(new, index)
                new = index
        finally:
            if new != index:
                _remove(new)
        _remove_unused(cache)
        if progress and new == index:
            # Loading does not fail because nobody reads this.
            with contextlib.suppress(OSError):
                print(f"`{self.path}`: {self._pictures - self._loose} pictures of {len(self.classes)} classes; their index is in `{index}`", file=sys.stderr)
        return index


def _remove_unused(cache: str) -> None:
    """Removes indexes that were not used for a long time, and what killed processes have left."""
    before = time.time() - _UNUSED_S
    with contextlib.suppress(OSError):
        for entry in os.scandir(cache):
            if entry.is_dir(follow_symlinks=False) and entry.stat().st_mtime < before:
                _remove(entry.path)


def _remove(folder: str) -> None:
    # Imported only here: most calls find an index that is there.
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _check(name: str, value: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise SettingError(f"`{name}` is {value!r}, not a whole number from 1 to {most}")
