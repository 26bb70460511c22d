"""Habits of a DataLoader's users: each error names the replacement. Also the `repr` of loaders and batches."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import pytest
import spdl_cluster
from conftest import Cluster, MakeJob

torch: Any = None
if not os.environ.get("SPDL_TEST_NO_TORCH"):
    torch = pytest.importorskip("torch")
needs_torch = pytest.mark.skipif(torch is None, reason=os.environ.get("SPDL_TEST_NO_TORCH") or "torch is not installed")


def refuses(kind: type[Exception], text: str, hint: str, call: Callable[[], object]) -> None:
    with pytest.raises(spdl_cluster.UsageError, match=text) as error:
        call()
    assert isinstance(error.value, kind)
    assert hint in (error.value.hint or ""), error.value.hint


def test_settings_of_a_dataloader_are_answered_with_ours(job: MakeJob) -> None:
    untyped: Any = spdl_cluster
    for name, hint in {
        "num_workers": "`cores=`",
        "batch_size": "`global_batch=`",
        "shuffle": "key of the job",
        "drop_last": "`epoch_end`",
        "collate_fn": "`transform`",
        "pin_memory": "`device=`",
        "prefetch_factor": "`slots=`",
        "sampler": "rank and world slice",
    }.items():
        refuses(TypeError, f"`{name}` is not a setting of `local`", hint, lambda: untyped.local(job(), **{name: 4}))
        refuses(TypeError, f"`{name}` is not a setting of `connect`", hint, lambda: untyped.connect(job="x", **{name: 4}))
    with pytest.raises(TypeError, match="unexpected keyword argument 'corse'"):
        untyped.local(job(), corse=1)


def test_what_is_done_to_a_dataloader_is_answered_with_what_to_do(job: MakeJob) -> None:
    with spdl_cluster.local(job()) as loader:
        untyped: Any = loader
        refuses(TypeError, r"not an iterator: `next\(loader\)`", "`loader.next()`", lambda: next(untyped))
        refuses(AttributeError, "a loader has no `dataset`", "`ignore_data_skip=True`", lambda: untyped.dataset)
        refuses(TypeError, "a loader is not a dataset", "`for batch in loader`", lambda: loader[0])
        # Frameworks check with `hasattr` before they call.
        assert not hasattr(loader, "dataset") and getattr(loader, "batch_size", None) is None
        with pytest.raises(AttributeError, match="a loader has no `lenght`"):
            untyped.lenght


@needs_torch
def test_a_dataloader_of_a_loader_raises_with_the_advice_to_use_the_loader(job: MakeJob) -> None:
    with spdl_cluster.local(job()) as loader:
        wrapped: Any = torch.utils.data.DataLoader(loader)
        refuses(TypeError, "a DataLoader cannot wrap it", "use it where the DataLoader was", lambda: next(iter(wrapped)))
        # As Hugging Face's Trainer does with its `train_dataset`.
        shuffled: Any = torch.utils.data.DataLoader(loader, sampler=torch.utils.data.RandomSampler(loader))
        refuses(TypeError, "a loader is not a dataset", "`get_train_dataloader`", lambda: next(iter(shuffled)))


def test_a_loader_shows_its_job_and_place_and_opens_nothing_for_it(job: MakeJob) -> None:
    loader = spdl_cluster.local(job(name="shown"), tensors="numpy")
    assert repr(loader) == "<spdl_cluster.Loader of job `shown`: rank not decided yet, not opened>"
    batch = next(iter(loader))
    assert repr(loader) == "<spdl_cluster.Loader of job `shown`: rank 0 of 1, at 0:24>"
    state = loader.state_dict()
    loader.close()
    assert repr(loader) == "<spdl_cluster.Loader of job `shown`: rank 0 of 1, closed>"
    resumed = spdl_cluster.local(job(name="shown"), 1, 2, state=state)
    assert repr(resumed) == "<spdl_cluster.Loader of job `shown`: rank 1 of 2, not opened, to go on at 0:24>"
    shown = "Batch(24 samples at 0:0: image uint8[24, 32, 32, 3], label int64[24])"
    assert repr(batch) == shown
    assert "array" not in repr({"batch": batch})


@needs_torch
def test_a_batch_shows_names_and_shapes_and_no_pixels(job: MakeJob) -> None:
    raw = {"name": "raw", "from": "jpg", "decode": "bytes", "max_bytes": 400_000}
    with spdl_cluster.local(job(raw), tensors="torch") as loader:
        batch = next(iter(loader))
        text = r"Batch\(24 samples at 0:0: image uint8\[24, 32, 32, 3\], label int64\[24\], raw Ragged\(24 samples, \d+ rows\)\)"
        assert re.fullmatch(text, repr(batch)), repr(batch)
        moved = type(batch)({"label": batch["label"], "epoch": 3})
        assert repr(moved) == "Batch(label int64[24], epoch int)"


def test_a_cluster_s_loader_shows_its_job_before_it_has_joined(cluster: Cluster) -> None:
    loader = cluster.connect(0, 2, job="nobody-has-this")
    assert repr(loader) == "<spdl_cluster.Loader of job `nobody-has-this`: rank 0 of 2, not opened>"


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert spdl_cluster.__version__ == version("spdl-cluster")
