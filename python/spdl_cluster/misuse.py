"""Errors for what users of a DataLoader try first; each names the replacement."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import NoReturn, ParamSpec, TypeVar

from .errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")

_SAMPLER = "no sampler is needed: rank and world slice the job's global batch, and every epoch has its own order"
#: Settings and attributes of a DataLoader.
_INSTEAD = {
    "num_workers": "decoding runs in the cluster's worker processes; of `local`, `cores=` is what it may take of the processor",
    "persistent_workers": "the workers of a cluster outlive every loader; of `local`, `cores=` is what decoding may take",
    "worker_init_fn": "randomness is keyed by sample, not by worker; a column's `transform` gets a generator",
    "multiprocessing_context": "a loader's threads and the cluster's workers are not children of this process",
    "prefetch_factor": "`slots=` are the batches that are filled, waiting or in the caller's hands",
    "pin_memory": "`device=` has batches copied ahead, from page-locked memory",
    "batch_size": "the job's `global_batch` is shared by all ranks; `global_batch=` changes it for one launch, `batch.samples` is a rank's share",
    "shuffle": "`shuffle` is a key of the job, frozen when it is created",
    "drop_last": "`epoch_end` is a key of the job: `drop`, `pad`, `continuous`, `exact` or `partial`",
    "collate_fn": "batches are collated as they are decoded; a column's `transform` names a function of yours for each sample",
    "sampler": _SAMPLER,
    "batch_sampler": _SAMPLER,
    "generator": "`seed` is a key of the job",
    "seed": "`seed` is a key of the job, which `local` can set for a run",
    "epochs": "`epochs` is a key of the job",
    "dataset": "the dataset is the job's: `connect(job=NAME)`, or `local(JOB_FILE)`. To go on in the middle of an epoch, Hugging Face's `Trainer` needs "
    "`ignore_data_skip=True` in its arguments, and `spdl_cluster.transformers.ResumeLoader()` among its callbacks",
}


def explained(function: Callable[P, R]) -> Callable[P, R]:
    """Wraps the function so that a DataLoader's setting raises an error that names the replacement."""
    known = frozenset(inspect.signature(function).parameters)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs.keys() - known:
            if name in _INSTEAD:
                raise UsageError(f"`{name}` is not a setting of `{function.__name__}`", _INSTEAD[name])
        return function(*args, **kwargs)

    return call


def no_such_attribute(name: str) -> NoReturn:
    """Raises an error for an attribute of a DataLoader. It is an `AttributeError`, so `hasattr` returns false."""
    if name in _INSTEAD:
        raise UsageError(f"a loader has no `{name}`", _INSTEAD[name])
    raise AttributeError(f"a loader has no `{name}`")


def no_dataset() -> NoReturn:
    """Raises an error for an index: a DataLoader, and frameworks that make one, index a dataset."""
    raise UsageError(
        "a loader is not a dataset, and a DataLoader cannot wrap it: it yields whole batches in the job's order",
        "use it where the DataLoader was: `for batch in loader`. A framework that makes DataLoaders of datasets has a place for its own: of Hugging Face's "
        "`Trainer`, override `get_train_dataloader` and `get_eval_dataloader` to return the loader, instead of giving it as `train_dataset`",
    )


def no_iterator() -> NoReturn:
    """Raises an error for `next(loader)`."""
    raise UsageError(
        "a loader is not an iterator: `next(loader)` does not name an epoch",
        "`loader.next()` gives the next batch, over the ends of epochs; `batches = iter(loader)` the batches of one epoch",
    )
